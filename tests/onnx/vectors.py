"""The test vectors of ONNX's operator Attention, put as SPEC.md's chapter "ONNX" says, and compared
with the reference:

    vectors.py PROGRAM

PROGRAM is compare.cpp. Ends with 77 where the package onnx is missing, or knows no Attention.
"""

import json
import math
import subprocess
import sys
import warnings

kSkipped = 77
kAttributes = {"scale", "softcap", "is_causal", "q_num_heads", "kv_num_heads", "left_window_size",
               "right_window_size", "softmax_precision", "qk_matmul_output_mode"}
kDTypes = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def listed(array):
    """The numbers of an array in dense order, as JSON has them."""
    flat = (float(x) for x in array.reshape(-1))
    return [x if math.isfinite(x) else str(x) for x in flat]


def heads(array, count):
    """[B, H, S, D], of that or of rank 3."""
    if array.ndim == 4:
        return array
    batch, length, hidden = array.shape
    return array.reshape(batch, length, count, hidden // count).transpose(0, 2, 1, 3)


def whole_mask(mask, keys, numpy):
    """Of rank 4, and filled up with what hides to all keys, unless its last axis broadcasts."""
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    missing = keys - mask.shape[3]
    if missing == 0 or mask.shape[3] == 1:
        return mask
    hides = False if mask.dtype == bool else -math.inf
    return numpy.pad(mask, [(0, 0)] * 3 + [(0, missing)], constant_values=hides)


def vector_of(case, onnx, numpy):
    """The vector, or why it has no counterpart."""
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    unknown = set(attributes) - kAttributes
    if unknown:
        raise SystemExit(f"{case.name}: SPEC.md says nothing of {', '.join(sorted(unknown))}")
    inputs, outputs = case.data_sets[0]
    given = dict(zip((name for name in node.input if name), inputs))
    slots = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    of = {slot: given[name] for slot, name in zip(slots, node.input) if name}
    if of["Q"].dtype != of["V"].dtype:
        return "Q and V of different types"
    q = heads(of["Q"], attributes.get("q_num_heads"))
    k, v = (heads(of[name], attributes.get("kv_num_heads")) for name in ("K", "V"))
    y = heads(outputs[0], attributes.get("q_num_heads"))
    past = 0
    if "past_key" in of:
        past = of["past_key"].shape[2]
        k = numpy.concatenate([of["past_key"], k], axis=2)
        v = numpy.concatenate([of["past_value"], v], axis=2)
    lengths = of.get("nonpad_kv_seqlen")
    corner = f"top_left offset={past}" if lengths is None else "bottom_right"
    masks = []
    if attributes.get("is_causal"):
        masks.append(f"causal {corner}")
    left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if left >= 0 or right >= 0:
        masks.append("window {}..{} {}".format(
            -left if left >= 0 else "*", right if right >= 0 else "*", corner))
    problem = {"batch": q.shape[0], "query_heads": q.shape[1], "query_len": q.shape[2],
               "head_dim": q.shape[3], "key_heads": k.shape[1], "key_len": k.shape[2],
               "value_dim": v.shape[3], "mask": {"all_of": masks} if masks else "full"}
    for name in ("scale", "softcap"):
        if name in attributes:
            problem[name] = attributes[name]
    if lengths is not None:
        problem["key_lens"] = [int(n) for n in lengths]
    vector = {"name": case.name, "dtype": kDTypes[str(q.dtype)], "problem": problem,
              "q": listed(q), "k": listed(k), "v": listed(v), "y": listed(y)}
    if "attn_mask" in of:
        mask = whole_mask(of["attn_mask"], k.shape[2], numpy)
        kind = "allowed" if mask.dtype == bool else "bias"
        vector[kind], vector[f"{kind}_shape"] = listed(mask), mask.shape
    return vector


def main():
    try:
        import numpy
        import onnx
        import onnx.reference.ops.op_attention
        from onnx.backend.test.case.node import collect_testcases
    except ImportError as missing:
        print(f"skipped: {missing}")
        return kSkipped
    warnings.simplefilter("ignore")  # other operators' vectors overflow on purpose
    cases = [case for case in collect_testcases("Attention")
             if [node.op_type for node in case.model.graph.node] == ["Attention"]]
    vectors = [vector_of(case, onnx, numpy) for case in cases]
    left_out = [(case.name, why) for case, why in zip(cases, vectors) if isinstance(why, str)]
    lines = "".join(json.dumps(v) + "\n" for v in vectors if isinstance(v, dict))
    code = subprocess.run([sys.argv[1]], input=lines, text=True, check=False).returncode
    for name, why in left_out:
        print(f"{name}: left out, {why}")
    print(f"onnx {onnx.__version__}: {len(cases)} vectors, {len(left_out)} left out")
    return code


sys.exit(main())
