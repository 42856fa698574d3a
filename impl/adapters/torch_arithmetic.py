"""What PyTorch's kernels compute in, each line as its source says.

Sources are PyTorch 2.11's, below aten/src/ATen/native unless named whole; mem_eff is
transformers/cuda/mem_eff_attention, and its headers are in the wheel.
"""
FORMATS = ("f64", "f32", "f16", "bf16")
WIDE = {"f64": "f64", "f32": "f32", "f16": "f32", "bf16": "f32"}  # opmath_type


def unfused(dtype, **more):
    """transformers/attention.cpp, _scaled_dot_product_attention_math: composed of operators."""
    wide = WIDE[dtype]
    return {
        "softmax": wide,  # q, k, v in 16 bits become f32 first (allowFP16BF16ReductionMathSDP off)
        "p": wide, "ds": wide,  # and nothing is rounded before the result
        "p_normalised": "first",  # matmul of _safe_softmax(attn)
        "kv_splits": 1, "rescales_output": False,  # one softmax over all keys
        "ds_from": "p",  # softmax_backward takes its own result
        "output_rounding": "nearest",  # .to(origin_dtype)
        "dbias_terms": "wide" if wide == dtype else "rounded",  # sum_to of a 16-bit gradient
        **more,
    }


def unfused_on_cpu(dtype):
    return unfused(
        dtype,
        products={"default": {"truncates": False}},  # cpublas gemm: fma in wide
        subnormal_inputs="kept", subnormal_outputs="kept",  # at::setFlushDenormal is off
        deterministic=True)


def unfused_on_cuda(dtype):
    return unfused(
        dtype,
        # cuBLAS in f32 and f64: allow_tf32 of matmul is off (at::Context, float32_matmul_precision)
        products={"default": {"truncates": False}},
        deterministic=True)  # cuBLAS: of one stream and workspace; softmax has no atomics


def flash_on_cpu(dtype):
    """cpu/FlashAttentionKernel.cpp: cpu_flash_attention and cpu_flash_attention_backward."""
    told = {
        "products": {"default": {"truncates": False}},  # cpublas::gemm, to accum_t
        "softmax": WIDE[dtype],  # accum_t = opmath_type
        "p": dtype,  # conditional_data_ptr: qk_reduced_data, of scalar_t
        "ds": dtype,  # grad_attn_reduced_data
        "p_normalised": "last",  # dst <- dst / sum[row]
        "ds_from": "p",  # attn * (grad_attn - dsum), attn of accum_t
        "ds_scaled": "after_rounding",  # scaling_factor is the alpha of the gemm for grad_q, grad_k
        "kv_splits": 1,  # for n in 0 .. num_keys by kvSplitSize
        "rescales_output": False,  # dst <- dst * exp_tmp
        "key_block": 512,  # kv_split_size of all three FLASH_ATTENTION_KERNEL
        "output_rounding": "nearest",  # vec::map<scalar_t>
        "deterministic": True,  # parallel_for over batch * heads (* query blocks), no atomics
    }
    if dtype in ("f16", "bf16"):
        # _exp_reduce_sum_fusion_kernel: fexp_u20 (cpu/vec/vec512/vec512_float.h), a cubic for 2^f
        # whose exponent is cut from an f32: off by 940 units at most, and by 448 at 0.
        told.update(exp_ulp=960, exp_zero="inexact")
        told["gradient_block"] = 32  # gemms with beta 1 into grad_k, grad_v: q_split_size, at least
    if dtype == "f32":
        told["exp_ulp"] = 1.5  # exp_u20 (the same header), whose polynomial is off by 1.27 units
    return told


def matrix_units(dtype, **more):
    """Of kernels on tensor cores, in 16 bits or, by products of three parts, in f32."""
    return {
        # Accumulators are f32, which tensor cores truncate: the default. f32: mem_eff
        # gemm_kernel_utils.h, OpMultiplyAddFastF32: three products of TF32, near to exact.
        "softmax": "f32", "p": dtype, "ds": dtype, "output_rounding": "nearest",
        "rescales_output": False, "p_normalised": "last", "ds_from": "p", **more,
    }


def flash_on_cuda(dtype):
    """third_party/flash-attention 2, csrc/flash_attn/src."""
    return matrix_units(
        dtype,
        key_block=32,  # flash_bwd_launch_template.h, flash_fwd_launch_template.h: kBlockN, at least
        ds_scaled="after_rounding",  # flash_bwd_kernel.h: acc_dq * scale_softmax_rp_dropout
        grouped_gradients="rounded",  # flash_api.cpp, mha_bwd: dk_expanded, then at::sum_out
        kv_splits=0)  # flash_api.cpp, set_params_splitkv: num_splits 0 asks the heuristic


def efficient_on_cuda(dtype):
    """mem_eff/kernel_forward.h and kernel_backward.h."""
    return matrix_units(
        dtype,
        key_block=32,  # kernel_forward.h: kKeysPerBlock % 32 == 0
        ds_from="rounded_p",  # kernel_backward.h: attn_T.at of shared memory, where P lies rounded
        ds_scaled="before_rounding",  # kernel_backward.h: (doivj - di) * attn * scale
        kv_splits=1,  # kernel_forward.h: one loop over keys; forward has no split
        dbias_terms="rounded")  # output_t grad_bias, summed over what was expanded by autograd


def cudnn_on_cuda(dtype):
    """cuDNN is closed: what its graphs say (cudnn/MHA.cpp), and what was measured."""
    return matrix_units(
        dtype,
        key_block=16,  # not known: of a matrix unit's least
        ds_scaled="before_rounding",  # NUMERICS.md, section 9, measured
        grouped_gradients="rounded",  # NUMERICS.md, section 9, measured bit for bit
        kv_splits=0)  # not known


def flex_on_cpu(dtype):
    """torch/_higher_order_ops/flex_attention.py, math_attention."""
    return {
        "products": {"default": {"truncates": False}},
        "softmax": WIDE[dtype],  # working_precision
        "p": dtype,  # post_mod_scores.to(query.dtype) @ value
        "p_normalised": "first",  # of _safe_softmax
        "kv_splits": 1, "rescales_output": False, "output_rounding": "nearest",
        "subnormal_inputs": "kept", "subnormal_outputs": "kept", "deterministic": True,
    }


def flex_on_cuda(dtype):
    """torch/_inductor/kernel/flex/templates."""
    return matrix_units(
        dtype,  # .to(MATMUL_PRECISION); FLOAT32_PRECISION is 'ieee' unless TF32 was asked for
        key_block=16,  # flex_attention.py: BLOCK_N of all configurations is at least 16
        block_order="any",  # flex_attention.py.jinja: partial blocks, then full ones
        ds_scaled="after_rounding",  # flex_backwards.py.jinja: dq *= SM_SCALE, dk *= SM_SCALE
        grouped_gradients="wide",  # flex_backwards.py.jinja: one dk, dv over the heads of a group
        kv_splits=0)  # flex_decoding.py: SPLIT_KV for few queries
