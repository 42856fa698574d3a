"""jax.nn.dot_product_attention, implementation="xla", on the CPU.

Source: jax/_src/nn/functions.py of JAX 0.10 (_dot_product_attention_core, _apply_masks), which is
in the wheel.
"""
import inspect

import jax
import jax.numpy as jnp

import attest_attention as attest
from jax_arithmetic import xla_on_cpu

# mask, is_causal and local_window_size intersect; query_seq_lengths, key_value_seq_lengths.
LSE = "return_residual" in inspect.signature(jax.nn.dot_product_attention).parameters
FEATURES = ["causal", "window", "dense-mask", "mask-and", "lengths", "bias", "gqa", "any-scale"]
LIMITS = {
    # _get_causal_mask: jnp.tril; _get_window_mask: both ends inclusive; both of the top left.
    "masks": ["full", "causal top_left", "window top_left", "window causal top_left", "dense-mask"],
    "mask_offset": 0}
# _apply_masks: where(mask, logits, -0.7 of the largest), so that a row without keys has the mean.
EMPTY_ROWS = {"o": "the mean of V, or 0 beyond a query length",
              "lse": "-0.7 of the largest number"}


def parts(mask):
    return [each for part in mask.parts for each in parts(part)] if mask.kind == "all_of" else [
        mask]


def told(p):
    """The mask and the lengths in the function's own terms."""
    causal, window, table = False, None, None
    for part in parts(p.mask):
        if part.kind == "dense":
            table = part.table if table is None else table & part.table
        elif part.kind == "band" and part.left is None and part.right == 0:
            causal = True
        elif part.kind == "band":
            ends = [max(p.query_len, p.key_len) if end is None else end
                    for end in (part.left, part.right)]
            window = ends if window is None else [min(pair) for pair in zip(window, ends)]
    if table is not None:
        shape = (*table.shape[:2], p.query_len, p.key_len)
        table = jnp.broadcast_to(table, shape)
    return {"is_causal": causal, "local_window_size": window and tuple(window), "mask": table,
            "query_seq_lengths": p.query_lengths, "key_value_seq_lengths": p.key_lengths}


def call(p, q, k, v, implementation="xla"):
    """In its own order of axes, BTNH; LSE is BTN. Where there is none, O alone."""
    bias = p.bias
    if bias is not None:
        bias = jnp.broadcast_to(bias, (*bias.shape[:2], p.query_len, p.key_len))
    found = jax.nn.dot_product_attention(
        *(jnp.swapaxes(x, 1, 2) for x in (q, k, v)), bias, scale=p.scale,
        implementation=implementation, **({"return_residual": True} if LSE else {}), **told(p))
    if not LSE:
        return jnp.swapaxes(found, 1, 2)
    return jnp.swapaxes(found[0], 1, 2), jnp.swapaxes(found[1], 1, 2).astype(jnp.float32)


def output(p, q, k, v, implementation="xla"):
    found = call(p, q, k, v, implementation)
    return found[0] if LSE else found


jax_nn = attest.kernel(
    # f64: the softmax is taken in f32, which no declaration says.
    name="jax_nn", dtypes=["f32"], features=[*FEATURES, *(["lse"] if LSE else [])],
    limits=LIMITS, empty_rows=EMPTY_ROWS if LSE else {"o": EMPTY_ROWS["o"]}, arrays="jax",
    backward="autograd", version=jax.__version__, vendor="JAX",
    arithmetic={"f32": xla_on_cpu("f32")})(call)


@attest.kernel(
    # LSE is returned in the format of the keys: it is none. No backward pass: dP is rounded to the
    # format of the keys, as P is, which no declaration says.
    name="jax_nn_bf16", dtypes=["bf16"], features=FEATURES, limits=LIMITS,
    empty_rows={"o": EMPTY_ROWS["o"]}, arrays="jax", version=jax.__version__, vendor="JAX",
    arithmetic={"bf16": xla_on_cpu("bf16")})
def jax_nn_bf16(p, q, k, v):
    return output(p, q, k, v)
