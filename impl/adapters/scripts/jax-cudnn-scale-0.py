# jax.nn.dot_product_attention by cuDNN: NaN at a scale of 0, or one that is 0 in normal numbers.
import jax
import jax.numpy as jnp

x = ((7 * jnp.arange(64 * 64)) % 17 - 8).reshape(1, 64, 1, 64).astype(jnp.float16) / 8
exact = x[0, :, 0, 0].astype(jnp.float32).mean()
wrong = []
for scale in (0.125, 1e-39, 0.0):
    o = jax.nn.dot_product_attention(x, x, x, scale=scale, implementation="cudnn")
    print(f"scale {scale}: O[0, 0, 0, 0] = {o[0, 0, 0, 0]}", "" if scale else f"exact {exact:.4g}",
          f"{jnp.isnan(o).sum()} of {o.size} are NaN")
    wrong += [scale] if jnp.isnan(o).any() else []
assert not wrong
