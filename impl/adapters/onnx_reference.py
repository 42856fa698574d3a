"""ONNX's own reference evaluator, of the operator Attention.

Source: onnx/reference/ops/op_attention.py of onnx 1.23, which is in the wheel.
"""
import onnx
from onnx.reference import ReferenceEvaluator

import attest_attention as attest
from onnx_attention import OPSET, Call, features, limits


# All of it is NumPy, in the format of the inputs.
BY_NUMPY = {
    "products": {"default": {"truncates": False}},  # numpy_matmul
    "softmax": "f32", "p": "f32",  # _softmax in the type of the scores
    "p_normalised": "first",  # tmp / s
    "kv_splits": 1, "rescales_output": False, "output_rounding": "nearest",
    "subnormal_inputs": "kept", "subnormal_outputs": "kept"}


@attest.kernel(
    # f16 and bf16: scores, their exponentials and their sums are kept in the format, beyond the
    # caps. f64: the attribute scale is an f32, which no declaration says.
    name="onnx_reference", dtypes=["f32"],
    # any-scale: scale is the square of its root, and none is negative. Strides: of NumPy.
    features=[*features(OPSET), "strides", "transposed", "expanded"], limits=limits(OPSET),
    version=onnx.__version__, vendor="ONNX",
    arithmetic={"f32": BY_NUMPY})
def onnx_reference(p, q, k, v):
    call = Call(p, q, k, v)
    return ReferenceEvaluator(call.model(p.dtype, OPSET)).run(None, call.inputs)[0]
