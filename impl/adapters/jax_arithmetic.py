"""What JAX's attention computes in, each line as its source says: jax/_src/nn/functions.py of JAX
0.10, and XLA's defaults."""


def unfused(dtype, **more):
    return {
        "softmax": "f32",  # "Softmax and it is always carried out in fp32"
        "p": dtype,  # softmax(padded_logits).astype(key.dtype)
        "p_normalised": "first",  # the same
        "kv_splits": 1, "rescales_output": False, **more,
    }


def xla_on_cpu(dtype):
    # bf16: BF16_BF16_F32, sums in f32; the result of PV is rounded once.
    return unfused(dtype, products={"default": {"truncates": False}})


def xla_on_cuda(dtype):
    # f32: jax_default_matmul_precision is not set, and XLA takes TF32 then. Its sums truncate.
    return unfused(dtype, **({"products": {"default": {"operands": "tf32_truncated"}}}
                             if dtype == "f32" else {}))


def cudnn_on_cuda(dtype):
    """cuDNN is closed: what was measured of it (NUMERICS.md, section 9)."""
    return {"softmax": "f32", "p": dtype, "ds": dtype, "p_normalised": "last", "key_block": 16,
            "ds_scaled": "before_rounding", "grouped_gradients": "rounded"}
