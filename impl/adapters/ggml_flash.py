"""ggml's flash attention on the CPU: ggml_flash_attn_ext, in the library that llama-cpp-python
builds when it is installed.

Sources, of ggml 0.25: include/ggml.h, src/ggml.c, and src/ggml-cpu: ops.cpp
(ggml_compute_forward_flash_attn_ext_*), vec.h, vec.cpp, simd-gemm.h, common.h.
"""
import ctypes

import llama_cpp
import numpy as np
from llama_cpp._ggml import libggml

import attest_attention as attest

TYPES = {"float32": 0, "float16": 1, "bfloat16": 30}  # enum ggml_type


class Tensor(ctypes.Structure):
    """struct ggml_tensor, as far as it is needed here."""
    _fields_ = [("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4),
                ("nb", ctypes.c_size_t * 4), ("op", ctypes.c_int),
                ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32),
                ("src", ctypes.c_void_p * 10), ("view_src", ctypes.c_void_p),
                ("view_offs", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class Parameters(ctypes.Structure):
    """struct ggml_init_params."""
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p),
                ("no_alloc", ctypes.c_bool)]


def function(name, result, *arguments):
    found = getattr(libggml, name)
    found.restype, found.argtypes = result, arguments
    return found


CONTEXT, GRAPH, A_TENSOR = ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Tensor)
begin = function("ggml_init", CONTEXT, Parameters)
end = function("ggml_free", None, CONTEXT)
new_tensor = function("ggml_new_tensor_4d", A_TENSOR, CONTEXT, ctypes.c_int, *[ctypes.c_int64] * 4)
flash = function("ggml_flash_attn_ext", A_TENSOR, CONTEXT, *[A_TENSOR] * 4, *[ctypes.c_float] * 3)
add_sinks = function("ggml_flash_attn_ext_add_sinks", None, A_TENSOR, A_TENSOR)
new_graph = function("ggml_new_graph", GRAPH, CONTEXT)
expand = function("ggml_build_forward_expand", None, GRAPH, A_TENSOR)
compute = function("ggml_graph_compute_with_ctx", ctypes.c_int, CONTEXT, GRAPH, ctypes.c_int)
GGML = tuple(map(int, function("ggml_version", ctypes.c_char_p)().decode().split(".")))


def given(context, array):
    """An array of four axes, whose channels lie side by side, as a tensor in place."""
    tensor = new_tensor(context, TYPES[array.dtype.name], *array.shape[::-1])
    tensor.contents.data = array.ctypes.data
    tensor.contents.nb[:] = array.itemsize, *array.strides[2::-1]  # of one channel: any stride
    return tensor


def side_by_side(array):
    """With channels side by side: the operator asserts it."""
    return array if array.strides[3] == array.itemsize else np.ascontiguousarray(array)


def added(p):
    """Bias and mask as one table that is added to scores; the operator takes it in f16."""
    if p.mask.kind == "full" and p.bias is None:
        return None
    bias = np.zeros((1, 1, 1, 1), np.float16) if p.bias is None else p.bias
    table = np.where(p.visible(), bias, np.float16(-np.inf))
    return np.ascontiguousarray(np.broadcast_to(
        table, (*table.shape[:2], p.query_len, p.key_len)))


def attend(p, q, k, v):
    if p.dtype != "f32":  # Q is f32 whatever K and V are
        q = q.astype(np.float32, order="C")
    inputs, mask = [side_by_side(each) for each in (q, k, v)], added(p)
    o = np.empty((p.batch, p.query_len, p.query_heads, p.value_dim), np.float32)
    context = begin(Parameters(1 << 26, None, True))  # the work buffer is in it as well
    try:
        result = flash(context, *(given(context, each) for each in inputs),
                       None if mask is None else given(context, mask), p.scale, 0, p.softcap)
        result.contents.data = o.ctypes.data
        if p.sinks is not None:
            sinks = np.ascontiguousarray(p.sinks).reshape(1, 1, 1, -1)
            add_sinks(result, given(context, sinks))
        graph = new_graph(context)
        expand(graph, result)
        if compute(context, graph, p.threads):
            raise RuntimeError("ggml_graph_compute_with_ctx failed")
    finally:
        end(context)
    return o.transpose(0, 2, 1, 3).astype(v.dtype)


# Masks are tables, which llama.cpp fills for causal attention and windows.
FEATURES = ["causal", "window", "dense-mask", "softcap", "sink", "gqa", "value-dim", "any-scale",
            "strides", "expanded", "long"]
ABOUT = {"threads": True, "version": llama_cpp.__version__, "vendor": "ggml"}
ARITHMETIC = {
    # simd_gemm, ggml_vec_dot_*, ggml_vec_mad_f32: sums in f32 or wider. Q is rounded to the
    # vec_dot_type of K, which of f32, f16 and bf16 is K's own.
    "products": {"default": {"truncates": False}},
    "softmax": "f32", "p": "f32",  # KQ, vs and S are float
    "exp_ulp": 2,  # ggml_v_expf: "maximum error is 1.45358 plus 0.5 ulps"; expf of few rows
    "tanh_ulp": 3,  # tanhf: 2 ulp by the manual of glibc
    "p_normalised": "last",  # V /= S
    # Of one query and 512 keys or more each thread has a part of the keys; parts are added up
    # before they are divided (ggml_flash_attn_ext_reduce_partials), as blocks of a single pass are.
    "kv_splits": 1, "rescales_output": False,
    "output_rounding": "nearest",  # of f32, in this file
    "deterministic": True}  # whatever thread takes a row
KEPT = {"subnormal_inputs": "kept", "subnormal_outputs": "kept"}
ROWS_APART = {"thread_invariant": True, "batch_invariant": True}  # no such parts

# Fewer rows than a tile have another kernel (use_tiled), which in f16 is that below.
TILED = {"query_len": {"min": 64}}  # GGML_FA_TILE_Q
if GGML < (0, 25):  # as in 0.15: DV % f32_epr == 0, of vectors of 16 at most
    TILED["value_dim"] = {"multiple": 16}


@attest.kernel(
    name="ggml_flash", dtypes=["f32", "f16", "bf16"], features=[*FEATURES, "bias"], **ABOUT,
    # A bias is of the mask's format.
    limits={"dtypes": {"f32": {"features": FEATURES}, "f16": TILED,
                       "bf16": {"features": FEATURES}}},
    arithmetic={"f32": {**ARITHMETIC, **KEPT}, "f16": {**ARITHMETIC, **KEPT, **ROWS_APART},
                # ggml_vec_dot_bf16: _mm512_dpbf16_ps, where there is one, flushes its operands
                "bf16": {**ARITHMETIC, **ROWS_APART}})
def ggml_flash(p, q, k, v):
    return attend(p, q, k, v)


@attest.kernel(
    name="ggml_flash_few_rows", dtypes=["f16"], features=[*FEATURES, "bias"], **ABOUT,
    limits={"query_len": {"max": 63}}, arithmetic={"f16": {"deterministic": True}},
    # ggml_compute_forward_flash_attn_ext_f16_one_chunk: VKQ16, by ggml_vec_mad_f16
    beyond_caps={"f16": "accumulates PV in f16, before it is divided by the sum of P"})
def ggml_flash_few_rows(p, q, k, v):
    return attend(p, q, k, v)
