"""ONNX Runtime on the CPU: ONNX's Attention, and GroupQueryAttention and MultiHeadAttention of
com.microsoft.

Sources, of ONNX Runtime 1.32: onnxruntime/core/providers/cpu/llm/attention.cc;
onnxruntime/contrib_ops/cpu/bert/gqa_attention_base.h and attention_cpu_base.h; the operators' texts
(ContribOperators.md).
"""
import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state

import attest_attention as attest
import onnx_attention

ABOUT = {"version": onnxruntime.__version__, "vendor": "ONNX Runtime", "dtypes": ["f32"]}

# Unfused, by MLAS: an SGEMM with beta 1 onto the mask, ComputeAttentionSoftmaxInplace, an SGEMM.
UNFUSED = {"f32": {
    "products": {"default": {"truncates": False}}, "softmax": "f32", "p": "f32",
    "p_normalised": "first",  # MlasComputeSoftmax: scaled by the inverse of the sum
    "kv_splits": 1, "rescales_output": False, "output_rounding": "nearest",
    "subnormal_inputs": "kept"}}


@functools.lru_cache(maxsize=256)
def session(text):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])


# The newest Attention that both know; 0 before ONNX Runtime 1.23, which has none.
OPSET = min(onnx_attention.OPSET, max((
    each.since_version for each in onnxruntime_pybind11_state.get_all_operator_schema()
    if each.name == "Attention" and each.domain == ""), default=0))
models = {}


def attention(opset, p, q, k, v):
    # attention_helper.h: an attn_mask of all queries and keys.
    call = onnx_attention.Call(p, q, k, v, onnx_attention.whole)
    key = (opset, call.key)
    if key not in models:
        models[key] = call.model(p.dtype, opset).SerializeToString()
    given = {name: np.ascontiguousarray(each) for name, each in call.inputs.items()}
    return session(models[key]).run(["Y"], given)[0]


def attention_kernel(name, opset):
    return attest.kernel(
        name=name, features=onnx_attention.features(opset), limits=onnx_attention.limits(opset),
        arithmetic=UNFUSED, **ABOUT)(functools.partial(attention, opset))


if OPSET:
    newest = attention_kernel("onnxruntime_attention", OPSET)
    # Its own kernel: the operator of opset 25 may be a graph of others in its place.
    fused = attention_kernel("onnxruntime_attention_24", min(OPSET, 24))


# ---- com.microsoft -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def contributed(operator, names, outputs, attributes):
    """A model of one node; names are pairs of a name and its type, or empty."""
    node = helper.make_node(operator, [name for name, _ in names], list(outputs),
                            domain="com.microsoft", **dict(attributes))
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in names if name]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    model = helper.make_model(
        helper.make_graph([node], operator, infos, results), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    return session(model.SerializeToString())


def packed(x):
    """[B, S, H * D], as these operators take it."""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def unpacked(y, p):
    return y.reshape(p.batch, p.query_len, p.query_heads, -1).transpose(0, 2, 1, 3)


def full_bias(p):
    return np.ascontiguousarray(np.broadcast_to(
        p.bias, (*p.bias.shape[:2], p.query_len, p.key_len)))


GROUPED = {
    "features": ["causal", "window", "softcap", "sink", "bias", "gqa"], "arithmetic": UNFUSED,
    **ABOUT}
# Causal alone, of the newest keys; its window is of the left: local_window_size keys, the query's
# own among them. Head sizes: group_query_attention_helper.h.
GROUPED_LIMITS = {
    "masks": ["causal bottom_right", "window causal bottom_right"], "mask_offset": 0,
    "head_dim": {"multiple": 8}}


# The last Sq keys are new, the others the past.
def group_query_attention(p, q, k, v):
    past = p.key_len - p.query_len
    attributes = {"num_heads": p.query_heads, "kv_num_heads": p.key_heads, "scale": p.scale,
                  "softcap": p.softcap, "local_window_size": p.mask.left + 1 if p.window else -1}
    given = {"query": packed(q), "key": packed(k[:, :, past:]), "value": packed(v[:, :, past:]),
             "past_key": k[:, :, :past], "past_value": v[:, :, :past],
             "seqlens_k": np.full(p.batch, p.key_len - 1, np.int32),
             "total_sequence_length": np.array([p.key_len], np.int32)}
    if not past:
        del given["past_key"], given["past_value"]
    if p.bias is not None:
        given["attention_bias"] = full_bias(p)
    if p.sinks is not None:
        given["head_sink"] = p.sinks
    order = ["query", "key", "value", "past_key", "past_value", "seqlens_k",
             "total_sequence_length", "cos_cache", "sin_cache", "position_ids", "attention_bias",
             "head_sink"]
    kinds = {"seqlens_k": TensorProto.INT32, "total_sequence_length": TensorProto.INT32}
    names = tuple((name, kinds.get(name, TensorProto.FLOAT)) if name in given else ("", 0)
                  for name in order)
    run = contributed("GroupQueryAttention", names, ("output", "present_key", "present_value"),
                      tuple(attributes.items()))
    return unpacked(run.run(["output"], {name: np.ascontiguousarray(each)
                                         for name, each in given.items()})[0], p)


gqa_prompt = attest.kernel(name="onnxruntime_gqa_prompt",
                           limits={**GROUPED_LIMITS, "square": True},
                           **GROUPED)(group_query_attention)
# "batch_size must be 1 when sequence_length > 1 and past context is given."
gqa_cache = attest.kernel(name="onnxruntime_gqa_cache", limits={
    **GROUPED_LIMITS, "keys_at_least_queries": True,
    "never": [{"batch": {"min": 2}, "query_len": {"min": 2}}]}, **GROUPED)(group_query_attention)


@attest.kernel(
    name="onnxruntime_mha", features=["causal", "bias", "value-dim"],
    # unidirectional: of the top left. One head of keys for each of queries.
    limits={"masks": ["full", "causal top_left"], "mask_offset": 0}, arithmetic=UNFUSED, **ABOUT)
def multi_head_attention(p, q, k, v):
    attributes = (("num_heads", p.query_heads), ("scale", p.scale),
                  ("unidirectional", int(p.causal is not None)))
    given = {"query": packed(q), "key": packed(k), "value": packed(v)}
    if p.bias is not None:
        given["attention_bias"] = full_bias(p)
    names = tuple((name, TensorProto.FLOAT) if name in given else ("", 0) for name in
                  ("query", "key", "value", "bias", "key_padding_mask", "attention_bias"))
    run = contributed("MultiHeadAttention", names, ("output",), attributes)
    return unpacked(run.run(["output"], given)[0], p)
