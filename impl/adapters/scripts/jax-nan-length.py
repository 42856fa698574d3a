# jax.nn.dot_product_attention: NaN beyond key_value_seq_lengths reaches O, through 0 times NaN.
import jax
import jax.numpy as jnp

q = k = jnp.ones((1, 3, 1, 8))
v = jnp.array([1, 2, jnp.nan]).reshape(1, 3, 1, 1) * jnp.ones(8)
o = jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=jnp.array([2]),
                                 query_seq_lengths=jnp.array([3]))
print(f"O[0, 0, 0, 0] = {o[0, 0, 0, 0]}, exact 1.5: the mean of the two keys within the length")
assert abs(o[0, 0, 0, 0] - 1.5) <= 1e-6
