"""The smallest worker (SPEC.md, chapter Worker): attention without a mask, in f32, forward.
    attest run --testee 'exec:python3 impl/skeleton.py' --tier smoke --profile none"""
import itertools, json, math, mmap, operator
requests, replies = open(3, "rb"), open(4, "wb", buffering=0)
memory = {"input": mmap.mmap(5, 0, prot=mmap.PROT_READ), "output": mmap.mmap(6, 0)}
description = {"name": "plain", "version": "1", "vendor": "mine", "profiles": [], "dtypes": ["f32"],
               "features": ["lse", "gqa", "value-dim", "zero-sizes", "strides", "any-scale"]}

def supports(p, t):  # whatever is declared, and nothing else: CALL-1
    more = "backward softcap packed page_size bias alibi sink".split()
    return (p["dtype"] == "f32" and p["mask"]["kind"] == "full" and not any(p[x] for x in more)
            and p["dropout"]["mode"] == "none" and max(p["query_len"], p["key_len"]) <= 16384
            and "query_lens" not in t and "key_lens" not in t)
def dot(x, y):
    return sum(map(operator.mul, x, y))
def row(tensor, *place):  # the channels at (b, h, s): LAYOUT-1
    begin = tensor["offset"] + 4 * dot(place, tensor["stride"])
    return memoryview(memory[tensor["memory"]])[begin:begin + 4 * tensor["shape"][3]].cast("f")
def attend(p, t, b, h, i):  # one row
    g, keys = h * p["key_heads"] // p["query_heads"], range(p["key_len"])  # HEAD-1
    q, V = row(t["q"], b, h, i), [row(t["v"], b, g, j) for j in keys]
    s = [p["scale"] * dot(q, row(t["k"], b, g, j)) for j in keys]  # SCORE-1
    top = max(s, default=-math.inf)
    e = [math.exp(x - top) for x in s]  # SOFTMAX-2
    row(t["lse"], b, h, i)[0] = top + math.log(sum(e)) if s else top  # LSE-1, EMPTY-2
    for c in range(p["value_dim"]):  # SOFTMAX-1, EMPTY-1
        row(t["o"], b, h, i)[c] = dot(e, (v[c] for v in V)) / (sum(e) or 1)

while size := int.from_bytes(requests.read(4), "little"):
    asked = json.loads(requests.read(size))
    told = {"nonce": asked["nonce"], "status": "ok"}
    if asked["op"] == "describe":
        told["kernels"] = [{"name": "plain", "description": description}]
    if asked["op"] == "supports" and not supports(asked["problem"], asked["tensors"]):
        told |= {"status": "refused", "message": "f32, forward and no mask alone"}
    if asked["op"] == "forward":
        for place in itertools.product(*map(range, asked["tensors"]["o"]["shape"][:3])):
            attend(asked["problem"], asked["tensors"], *place)
    frame = json.dumps(told).encode()
    replies.write(len(frame).to_bytes(4, "little") + frame)
