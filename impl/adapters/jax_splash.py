"""Pallas splash attention of JAX, in interpret mode on the CPU: the kernel for TPUs, step by step.

Source: jax/experimental/pallas/ops/tpu/splash_attention of JAX 0.10, which is in the wheel.
"""
import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

import attest_attention as attest


def mask_of(p):
    shape, mask = (p.query_len, p.key_len), p.mask
    if mask.kind == "full":
        return masks.FullMask(shape)
    if mask.left is None and mask.right == 0:
        return masks.CausalMask(shape, mask.offset)
    return masks.LocalMask(shape, (mask.left, mask.right), mask.offset)


@attest.kernel(
    # bf16: the function takes no scale, and q is rounded where it is scaled beforehand.
    name="jax_splash", dtypes=["f32"],
    features=["causal", "window", "softcap", "gqa", "lse", "any-scale"],
    limits={
        # NUM_LANES: block_q and block_kv are multiples of 128, and so are the lengths.
        "query_len": {"multiple": 128}, "key_len": {"multiple": 128},
        # CausalMask, LocalMask: q_ids + offset, from the top left.
        "masks": ["full", "causal top_left", "window top_left", "window causal top_left"]},
    # Scores of masked keys are mask_value, a finite number: a row without keys has something.
    empty_rows={"o": "not specified", "lse": "not specified"},
    arithmetic={"f32": {
        "products": {"default": {"truncates": False}},  # interpreted: lax.dot_general on the CPU
        "softmax": "f32", "p": "f32", "ds": "f32",  # float32; p.astype(do.dtype)
        "p_normalised": "last",  # o_scratch_ref * l_inv
        "key_block": 128, "kv_splits": 1, "rescales_output": False,  # BlockSizes.get_default
        "ds_from": "p"}},
    arrays="jax", backward="autograd", version=jax.__version__, vendor="JAX")
def jax_splash(p, q, k, v):
    differentiated = isinstance(q, jax.core.Tracer)  # its residuals are not, and LSE is one
    attend = splash.make_splash_mha(
        mask=masks.MultiHeadMask([mask_of(p)] * p.query_heads), head_shards=1, q_seq_shards=1,
        save_residuals=not differentiated, attn_logits_soft_cap=p.softcap or None, interpret=True)
    found = jax.vmap(attend)(q * jnp.float32(p.scale), k, v)
    if differentiated:
        return found, jnp.zeros(q.shape[:3])
    o, (lse,) = found
    return o, lse
