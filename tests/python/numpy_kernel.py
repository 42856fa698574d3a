"""Attention as a problem of Attest says it, in NumPy, behind two doors: attend() takes tensors as
attest vectors writes them; as a program it is a worker (SPEC.md, chapter Worker). One argument is a
fault of FAULTS that it then has.
"""
import functools
import json
import mmap
import operator
import sys

import numpy as np

import textbook

DESCRIPTION = {
    "name": "numpy", "version": "1", "vendor": "tests", "profiles": [], "dtypes": ["f32"],
    "features": ["alibi", "backward", "bias", "causal", "dbias", "dense-mask", "dlse", "dropout",
                 "gqa", "lengths", "lse", "mask-and", "mask-or", "prefix", "sink", "softcap",
                 "strides", "transposed", "expanded", "value-dim", "window"],
    "arithmetic": {"f32": {"deterministic": True, "kv_splits": 1, "p": "f32", "ds": "f32"}}}

FAULTS = ["top_left", "scale_twice"]

# What it declares besides as "dispatched", which is no fault.
DISPATCH = [{"name": "forward", "passes": "forward", "points": [
    {"of": "head_dim", "up_to": [16, 24]}, {"of": "mask", "values": ["full", "causal"]}]}]


def lengths(p, t):
    """Queries and keys of each batch element, [B,1,1,1]."""
    full = np.ones((p["batch"], 1, 1, 1), np.int64)
    return t.get("query_lens", full * p["query_len"]), t.get("key_lens", full * p["key_len"])


def allowed(mask, p, t, ahead, bottom_right, fault):
    """Booleans that broadcast to [B,Hq,Sq,Sk]; ahead is j - i."""
    kind = mask["kind"]
    if kind == "full":
        return np.array(True)
    if kind == "dense":
        return t[mask["table"]] != 0
    if kind == "prefix":
        return np.arange(p["key_len"]) < t[mask["table"]]
    if kind == "band":
        corner = mask["anchor"] == "bottom_right" and fault != "top_left"
        far = ahead - mask["offset"] - (bottom_right if corner else 0)
        left, right = mask["left"], mask["right"]
        return (left is None or far >= -left) & (right is None or far <= right)
    parts = [allowed(part, p, t, ahead, bottom_right, fault) for part in mask["parts"]]
    return functools.reduce(operator.and_ if kind == "all_of" else operator.or_, parts)


def attend(p, t, fault=None):
    """The outputs of a problem by name, of the inputs by theirs."""
    query_len, key_len = lengths(p, t)
    i, j = np.arange(p["query_len"])[:, None], np.arange(p["key_len"])
    real_rows, real_keys = i < query_len, j[:, None] < key_len
    visible = real_rows & (j < key_len) & allowed(p["mask"], p, t, j - i, key_len - query_len,
                                                  fault)
    shape = (p["batch"], p["query_heads"], p["query_len"], p["key_len"])
    bias = np.zeros((1, 1, 1, 1), np.float32)
    if p["bias"]:
        bias = t["bias"]
        visible = visible & (bias > -np.inf)
        bias = np.where(bias > -np.inf, bias, 0)
    if p["alibi"]:
        bias = bias - t["slopes"] * np.abs(i + (key_len - query_len) - j).astype(np.float32)
    kernel = textbook.Kernel(
        visible=np.broadcast_to(visible, shape), bias=bias, softcap=p["softcap"],
        scale=p["scale"] ** 2 if fault == "scale_twice" else p["scale"], real=np.float32,
        sinks=t["sink"].reshape(-1) if p["sink"] else None, keep=t.get("keep"),
        dropout_p=np.float32(p["dropout"]["probability"]))
    # Whatever lies beyond a length is not even multiplied by 0.
    q, k, v = (np.where(real, t[name], 0) for name, real in
               (("q", real_rows), ("k", real_keys), ("v", real_keys)))
    o, lse = kernel.forward(q, k, v)
    outputs = {"o": o, "lse": np.where(real_rows, lse[..., None], -np.inf)}
    if p["backward"]:
        d_lse = np.where(real_rows[..., 0], t["d_lse"][..., 0], 0) if p["dlse"] else None
        dq, dk, dv, ds, dsink = kernel.backward(np.where(real_rows, t["d_o"], 0), d_lse)
        outputs |= {"dq": dq, "dk": dk, "dv": dv}
        if p["bias"]:
            axes = tuple(a for a in range(4) if t["bias"].shape[a] == 1)
            outputs["dbias"] = ds.sum(axes, keepdims=True)
        if p["sink"]:
            outputs["dsink"] = dsink.reshape(1, -1, 1, 1)
    return {name: np.asarray(array, np.float32) for name, array in outputs.items()}


def view(memory, tensor):
    """A tensor of a request where it lies; a keep-mask as the booleans that its bits are."""
    kinds = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": "u2", "i64": "i8", "i32": "i4", "u8": "u1"}
    buffer, shape, stride = memory[tensor["memory"]], tensor["shape"], tensor["stride"]
    if tensor["dtype"] == "bits":
        rows = np.ndarray((*shape[:3], (shape[3] + 7) // 8), "u1", buffer, tensor["offset"],
                          [s // 8 for s in stride[:3]] + [1])
        return np.unpackbits(rows, axis=3, count=shape[3], bitorder="little").astype(bool)
    dtype = np.dtype(kinds[tensor["dtype"]])
    return np.ndarray(shape, dtype, buffer, tensor["offset"],
                      [s * dtype.itemsize for s in stride])


def work(fault):
    requests, replies = open(3, "rb"), open(4, "wb", buffering=0)
    memory = {"input": mmap.mmap(5, 0, prot=mmap.PROT_READ), "output": mmap.mmap(6, 0)}
    while size := int.from_bytes(requests.read(4), "little"):
        asked = json.loads(requests.read(size))
        told = {"nonce": asked["nonce"], "status": "ok"}
        if asked["op"] == "describe":
            told["kernels"] = [{"name": DESCRIPTION["name"], "description": DESCRIPTION}]
        if asked["op"] in ("forward", "backward"):
            tensors = {name: view(memory, t) for name, t in asked["tensors"].items()}
            forward = asked["op"] == "forward"
            results = attend(asked["problem"] | ({"backward": False} if forward else {}), tensors,
                             fault)
            for name, array in results.items():
                if forward == (name in ("o", "lse")):
                    tensors[name][...] = array
        frame = json.dumps(told).encode()
        replies.write(len(frame).to_bytes(4, "little") + frame)


if __name__ == "__main__":
    said = sys.argv[1] if len(sys.argv) > 1 else None
    if said == "dispatched":
        DESCRIPTION["dispatch"] = DISPATCH
    work(None if said == "dispatched" else said)
