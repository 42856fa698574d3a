# jax.nn.dot_product_attention by cuDNN: dQ is NaN where Sk % 128 = 64 and all scores are near -120.
import jax
import jax.numpy as jnp


def total(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, implementation="cudnn").astype(jnp.float32).sum()


wrong = []
for sk in (64, 128):
    q = jnp.full((1, 64, 1, 64), -3.75, jnp.float16)
    k = jnp.full((1, sk, 1, 64), 4, jnp.float16)  # each score is -120
    v = ((7 * jnp.arange(sk * 64)) % 17 - 8).reshape(1, sk, 1, 64).astype(jnp.float16) / 8
    dq = jax.grad(total)(q, k, v)
    nans = jnp.isnan(dq).sum()
    print(f"Sk {sk}: dQ[0, 0, 0, 0] = {dq[0, 0, 0, 0]}, exact 0; {nans} of {dq.size} are NaN")
    wrong += [sk] if nans else []
assert not wrong
