"""jax.nn.dot_product_attention on CUDA: implementation="xla" and "cudnn"."""
import jax

import attest_attention as attest
import jax_nn
from jax_arithmetic import cudnn_on_cuda, xla_on_cuda

CUDA = {"arrays": "jax", "device": "cuda", "version": jax.__version__, "vendor": "JAX",
        "limits": jax_nn.LIMITS}

xla = attest.kernel(
    name="jax_nn_cuda", dtypes=["f32"], features=jax_nn.jax_nn.description["features"],
    empty_rows=jax_nn.jax_nn.description["empty_rows"], backward="autograd",
    arithmetic={"f32": xla_on_cuda("f32")}, **CUDA)(jax_nn.call)


@attest.kernel(
    name="jax_nn_bf16_cuda", dtypes=["f16", "bf16"], features=jax_nn.FEATURES,  # see jax_nn_bf16
    empty_rows={"o": jax_nn.EMPTY_ROWS["o"]},
    arithmetic={each: xla_on_cuda(each) for each in ("f16", "bf16")}, **CUDA)
def xla_16bit(p, q, k, v):
    return jax_nn.output(p, q, k, v)


@attest.kernel(
    name="jax_cudnn_cuda",
    # jax/_src/cudnn/fused_attention_stablehlo.py: f16 and bf16; BTNH; a mask becomes a bias.
    # LSE is rounded to the format of O (functions.py, residual.astype): it is none.
    dtypes=["f16", "bf16"], features=["causal", "window", "lengths", "bias", "gqa"],
    backward="autograd", arrays="jax", device="cuda", version=jax.__version__, vendor="JAX",
    # check_is_flash_attention: a multiple of 8, at most 256 since Hopper; with a bias and a
    # backward pass even lengths alone, which these limits keep.
    # functions.py: a window has a right end of 0.
    limits={"masks": ["full", "causal top_left", "window causal top_left"], "mask_offset": 0,
            "head_dim": {"multiple": 8, "max": 256}, "query_len": {"multiple": 2},
            "key_len": {"multiple": 2}},
    empty_rows={"o": "not specified by cuDNN"},
    arithmetic={each: cudnn_on_cuda(each) for each in ("f16", "bf16")})
def cudnn(p, q, k, v):
    return jax_nn.output(p, q, k, v, "cudnn")
