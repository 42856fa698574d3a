"""Kernels on a GPU, which device_run.py has judged: right ones, in PyTorch, Triton and JAX, and one
with each fault that guards and modes are to find. What is right here is slow and plain."""
import torch
import triton
import triton.language as tl

import attest_attention as attest

MODES = ["stream", "two-streams", "graph", "new-shapes"]
FEATURES = ["lse", "gqa", "value-dim", "strides", *MODES]
LIMITS = {"query_len": {"min": 1}, "key_len": {"min": 1}}


def kernel(function=None, **declared):
    def decorate(function):
        return attest.kernel(**{"dtypes": ["f32"], "features": FEATURES, "limits": LIMITS,
                                "arrays": "torch", "device": "cuda", **declared})(function)

    return decorate if function is None else decorate(function)


# ---- PyTorch -------------------------------------------------------------------------------------


def formula(p, q, k, v, scale=None, seen=None):
    k, v = (x.float().repeat_interleave(p.query_heads // p.key_heads, 1) for x in (k, v))
    s = (p.scale if scale is None else scale) * (q.float() @ k.transpose(2, 3))
    s = s.masked_fill(~(p.visible() if seen is None else seen), -torch.inf)
    lse = s.logsumexp(3)
    weights = (s - lse[..., None]).exp().nan_to_num()
    return (weights @ v).to(q.dtype), lse


def put(p, o, lse):
    p.out("o").copy_(o)
    p.out("lse").copy_(lse)


@kernel(dtypes=["f32", "f16", "bf16"], features=[*FEATURES, "causal", "lengths"])
def torch_in_place(p, q, k, v):
    put(p, *formula(p, q, k, v))


@kernel(dtypes=["f32", "f16", "bf16"], features=[*FEATURES, "causal"], backward="autograd")
def torch_returned(p, q, k, v):
    return formula(p, q, k, v)


# ---- Triton --------------------------------------------------------------------------------------


@triton.jit
def attend(q, k, v, o, lse, qb, qh, qs, qd, kb, kh, ks, kd, vb, vh, vs, vd, ob, oh, os, od, lb, lh,
           ls, heads, group, queries, keys, channels, values, scale, rows: tl.constexpr,
           columns: tl.constexpr, inner: tl.constexpr, outer: tl.constexpr):
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    c, e = tl.arange(0, inner), tl.arange(0, outer)
    real, mine = i < queries, batch * qb + head * qh
    x = tl.load(q + mine + i[:, None] * qs + c[None, :] * qd,
                mask=real[:, None] & (c < channels)[None, :], other=0.).to(tl.float32)
    top = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    result = tl.zeros([rows, outer], tl.float32)
    for first in range(0, keys, columns):
        j = first + tl.arange(0, columns)
        seen = j < keys
        y = tl.load(k + batch * kb + (head // group) * kh + j[:, None] * ks + c[None, :] * kd,
                    mask=seen[:, None] & (c < channels)[None, :], other=0.).to(tl.float32)
        z = tl.load(v + batch * vb + (head // group) * vh + j[:, None] * vs + e[None, :] * vd,
                    mask=seen[:, None] & (e < values)[None, :], other=0.).to(tl.float32)
        s = scale * tl.dot(x, tl.trans(y), input_precision="ieee")
        s = tl.where(seen[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        weights, shrunk = tl.exp(s - higher[:, None]), tl.exp(top - higher)
        total = total * shrunk + tl.sum(weights, 1)
        result = result * shrunk[:, None] + tl.dot(weights, z, input_precision="ieee")
        top = higher
    tl.store(o + batch * ob + head * oh + i[:, None] * os + e[None, :] * od,
             (result / total[:, None]).to(o.dtype.element_ty),
             mask=real[:, None] & (e < values)[None, :])
    tl.store(lse + batch * lb + head * lh + i * ls, top + tl.log(total), mask=real)


def padded(size):
    return max(16, triton.next_power_of_2(size))


def in_place(p, q, k, v, o=None, lse=None):
    o, lse = p.out("o") if o is None else o, p.out("lse") if lse is None else lse
    attend[triton.cdiv(p.query_len, 16), p.batch * p.query_heads](
        q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
        p.query_heads, p.query_heads // p.key_heads, p.query_len, p.key_len, p.head_dim,
        p.value_dim, p.scale, rows=16, columns=16, inner=padded(p.head_dim),
        outer=padded(p.value_dim))
    return o, lse


@kernel
def triton_in_place(p, q, k, v):
    in_place(p, q, k, v)


@triton.jit
def set_one(x, place):
    tl.store(x + place, 1.)


@triton.jit
def add_nothing(o, x, place):
    tl.store(o, tl.load(o) + 0 * tl.load(x + place))


def length(x):
    """From the first element to that behind the last."""
    return 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride()))


# ---- Guards --------------------------------------------------------------------------------------


@kernel
def before(p, q, k, v):
    o, _ = in_place(p, q, k, v)
    set_one[1,](o, -1)


@kernel
def behind(p, q, k, v):
    o, _ = in_place(p, q, k, v)
    set_one[1,](o, length(o))


@kernel
def far_before_an_input(p, q, k, v):
    """Beyond its pages."""
    in_place(p, q, k, v)
    set_one[1,](k, -1023)


@kernel
def gap(p, q, k, v):
    o, _ = in_place(p, q, k, v)
    set_one[1,](o, o.shape[3])


@kernel
def mutated(p, q, k, v):
    in_place(p, q, k, v)
    v[0, 0, -1, -1] = 7


@kernel
def unwritten(p, q, k, v):
    o, _ = in_place(p, q, k, v, o=torch.empty(*q.shape[:3], p.value_dim, device="cuda"))
    to = p.out("o")
    to[:, :, :, 1:] = o[:, :, :, 1:]
    to[:, :, 1:, 0] = o[:, :, 1:, 0]


@kernel
def unwritten_returned(p, q, k, v):
    o, lse = torch.empty(*q.shape[:3], p.value_dim, device="cuda"), p.out("lse")
    found, _ = in_place(p, q, k, v, o=torch.empty_like(o))
    o.flatten()[1:] = found.flatten()[1:]
    return o, lse


@kernel
def uncleared_workspace(p, q, k, v):
    """It takes its memory for 0, as fresh memory is."""
    o, lse = formula(p, q, k, v)
    put(p, o + torch.empty(3 << 18, device="cuda")[:p.value_dim], lse)


@kernel
def slack(p, q, k, v):
    o, _ = in_place(p, q, k, v)
    add_nothing[1,](o, k, length(k))


# ---- Modes ---------------------------------------------------------------------------------------

KEPT = {}


@kernel
def default_stream(p, q, k, v):
    with torch.cuda.stream(torch.cuda.default_stream()):
        in_place(p, q, k, v)


@kernel
def shared_scratch(p, q, k, v):
    """What passes from one launch to the next lies in memory that is every call's."""
    o = p.out("o")
    scratch = KEPT.setdefault(("scratch", *o.shape), torch.empty(o.shape, device="cuda"))
    in_place(p, q, k, v, o=scratch)
    torch.cuda._sleep(200_000)  # cycles
    o.copy_(scratch)


@kernel
def baked(p, q, k, v):
    """While it is captured it takes a copy of q that was made by the call before."""
    if not torch.cuda.is_current_stream_capturing():
        KEPT["q"] = q.clone()
    in_place(p, KEPT["q"], k, v)


@kernel
def counter_cleared_by_host(p, q, k, v):
    """Its graph counts, and is right while the counter is as calls before have cleared it."""
    captured = torch.cuda.is_current_stream_capturing()
    if not captured:
        KEPT["count"] = torch.zeros((), device="cuda")
    o, lse = formula(p, q, k, v)
    put(p, o.masked_fill(KEPT["count"] > 0, 0), lse)
    if captured:
        KEPT["count"].add_(1)


@kernel(features=[*FEATURES, "lengths"])
def baked_lengths(p, q, k, v):
    """While it is captured it takes the key lengths that the call before had."""
    if not torch.cuda.is_current_stream_capturing():
        KEPT["lengths"] = [p.key_len] * p.batch if p.key_lengths is None else p.key_lengths.tolist()
    seen = torch.stack([torch.arange(p.key_len, device="cuda") < n for n in KEPT["lengths"]])
    put(p, *formula(p, q, k, v, seen=seen[:, None, None, :]))


@kernel
def shares_plan(p, q, k, v):
    """What it leaves for its second launch is every call's."""
    plan = KEPT.setdefault("plan", torch.zeros((), device="cuda"))
    plan.fill_(p.scale)
    torch.cuda._sleep(200_000)  # cycles
    put(p, *formula(p, q, k, v, scale=plan))


@kernel
def item_then_default_stream(p, q, k, v):
    """It waits for its stream, as for the longest of the lengths, and launches in another one."""
    q[0, 0, 0, 0].item()
    with torch.cuda.stream(torch.cuda.default_stream()):
        in_place(p, q, k, v)


@kernel
def former_shape(p, q, k, v):
    """Goes over no more keys than the shortest call had."""
    KEPT["keys"] = min(KEPT.get("keys", p.key_len), p.key_len)
    o, lse = formula(p, q, k, v) if KEPT["keys"] == p.key_len else (
        torch.zeros(*q.shape[:3], p.value_dim, device="cuda"), torch.zeros(q.shape[:3],
                                                                           device="cuda"))
    return o, lse


# ---- Errors that leave the device unusable: in one of several cases ------------------------------


def is_the_one(p, q):
    return q.stride(2) == p.head_dim + 3


@kernel
def illegal_address(p, q, k, v):
    o, _ = in_place(p, q, k, v)
    if is_the_one(p, q):
        set_one[1,](o, 1 << 40)


@kernel
def failed_assertion(p, q, k, v):
    in_place(p, q, k, v)
    if is_the_one(p, q):
        torch._assert_async(torch.zeros(1, device="cuda"))
