"""Attention by the formula in JAX; gradients by its own."""
import jax
import jax.numpy as jnp

import attest_attention as attest


@jax.jit
def _attend(q, k, v, seen, scale):
    s = jnp.einsum("bhqd,bhkd->bhqk", q.astype(jnp.float32), k, precision="highest")
    s = jnp.where(seen, scale * s, -jnp.inf)
    lse = jax.nn.logsumexp(s, 3)
    weights = jnp.where(jnp.isfinite(lse)[..., None], jnp.exp(s - lse[..., None]), 0)
    o = jnp.einsum("bhqk,bhkd->bhqd", weights, v, precision="highest")
    return o.astype(q.dtype), lse


@attest.kernel(dtypes=["f32", "bf16"], features=["causal", "gqa", "lse"], arrays="jax",
               backward="autograd", limits={"query_len": {"min": 1}, "key_len": {"min": 1},
                                            "masks": ["full", "causal top_left"]})
def jitted(p, q, k, v):
    k, v = (jnp.repeat(x.astype(jnp.float32), p.query_heads // p.key_heads, 1) for x in (k, v))
    return _attend(q, k, v, p.visible(), p.scale)
