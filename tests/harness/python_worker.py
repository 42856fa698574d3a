"""Attention in Python's standard library: a worker program, for f32 and causal masks alone.

    python_worker.py                right
    python_worker.py keeps BYTES    uses so many bytes a pair of memory that it took when it started
"""

import json
import math
import mmap
import os
import struct
import sys

REQUESTS, REPLIES, INPUTS, OUTPUTS = 3, 4, 5, 6
MOST_PAIRS = 512 * 512

DESCRIPTION = {
    "name": "python", "version": "1", "vendor": "test", "profiles": [], "dtypes": ["f32"],
    "features": ["lse", "causal"], "alignment": 4,
    "memory": {"growth": "linear", "workspace": {"fixed": 0}},
}

bytes_per_pair = int(sys.argv[2]) if sys.argv[1:2] == ["keeps"] else 0
scratch = bytearray(b"\1") * (bytes_per_pair * MOST_PAIRS)  # all of it written


def read(count):
    data = b""
    while len(data) < count:
        more = os.read(REQUESTS, count - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def rows_of(tensor, memories):
    """The rows [s] of the only head of a tensor, which is dense."""
    memory = memories[tensor["memory"]]
    width = tensor["shape"][3]
    begin = tensor["offset"]
    flat = memory[begin:begin + 4 * tensor["shape"][2] * width].cast("f")
    return [flat[s * width:(s + 1) * width] for s in range(tensor["shape"][2])]


def forward(problem, tensors, memories):
    pairs = problem["query_len"] * problem["key_len"]
    for at in range(0, bytes_per_pair * pairs, mmap.PAGESIZE):
        scratch[at] = 2
    q, k, v, o, lse = (rows_of(tensors[name], memories) for name in ("q", "k", "v", "o", "lse"))
    keys = [list(row) for row in k]
    values = [list(row) for row in v]
    for i, query in enumerate(q):
        query = [problem["scale"] * x for x in query]
        seen = min(i + 1, len(keys))
        scores = [sum(map(float.__mul__, query, key)) for key in keys[:seen]]
        top = max(scores)
        weights = [math.exp(s - top) for s in scores]
        total = sum(weights)
        lse[i][0] = top + math.log(total)
        for d in range(len(o[i])):
            o[i][d] = sum(w * row[d] for w, row in zip(weights, values)) / total


def main():
    memories = {
        "input": memoryview(mmap.mmap(INPUTS, 0, mmap.MAP_SHARED, mmap.PROT_READ)),
        "output": memoryview(mmap.mmap(OUTPUTS, 0)),
    }
    while True:
        request = json.loads(read(struct.unpack("<I", read(4))[0]))
        reply = {"nonce": request["nonce"], "status": "ok"}
        if request["op"] == "describe":
            reply["kernels"] = [{"name": "python", "description": DESCRIPTION}]
        elif request["op"] == "supports":
            mask = request["problem"]["mask"]
            if mask["kind"] != "band" or mask["left"] is not None or mask["right"] != 0:
                reply.update(status="refused", message="causal masks alone")
        else:
            forward(request["problem"], request["tensors"], memories)
        text = json.dumps(reply).encode()
        os.write(REPLIES, struct.pack("<I", len(text)) + text)


main()
