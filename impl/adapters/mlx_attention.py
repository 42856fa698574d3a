"""mlx.core.fast.scaled_dot_product_attention on the CPU.

Source: mlx/fast.cpp, scaled_dot_product_attention, of MLX 0.32: on the CPU its fallback, which is
composed of operators.
"""
import importlib.metadata

import mlx.core as mx
import numpy as np

import attest_attention as attest

mx.set_default_device(mx.cpu)


def told(p, tables):
    """The mask in the function's own terms, and what is differentiated beside q, k and v."""
    if p.mask.kind == "full":
        return tables.get("bias")
    if p.mask.kind == "band" and "bias" not in tables and p.mask.anchor == "bottom_right" \
            and not p.mask.offset:
        return "causal"  # the last query sits on the last key
    seen = mx.array(np.ascontiguousarray(p.visible()))
    return mx.where(seen, tables["bias"], -mx.inf) if "bias" in tables else seen


def given(p):
    """What there is beside q, k and v."""
    sides = {"bias": p.bias, "sinks": p.sinks}
    return {name: mx.array(np.ascontiguousarray(x)) for name, x in sides.items() if x is not None}


def attend(p, q, k, v, tables):
    return mx.fast.scaled_dot_product_attention(
        q, k, v, scale=p.scale, mask=told(p, tables), sinks=tables.get("sinks"))


def arrays(*each):
    return [mx.array(np.ascontiguousarray(x)) for x in each]


@attest.kernel(
    # 16 bits: q is scaled, and scores are kept, in the format, which no declaration says of q.
    name="mlx_attention", dtypes=["f32"],
    # A mask is "causal", booleans, or added; a causal one of another corner is a table.
    features=["causal", "dense-mask", "bias", "dbias", "sink", "gqa", "value-dim", "any-scale",
              "backward"],
    # where(mask, scores, finfo.min): a row without keys has the mean.
    empty_rows={"o": "the mean of V; NaN where a bias of -inf left none"},
    arithmetic={"f32": {
        "products": {"default": {"truncates": False}},  # matmul, by BLAS
        "softmax": "f32", "p": "f32", "ds": "f32",
        "p_normalised": "first",  # of softmax(precise)
        "kv_splits": 1, "rescales_output": False, "ds_from": "p",
        "ds_scaled": "after_rounding",  # the scale multiplies q: the gradient of q has it last
        "output_rounding": "nearest"}},
    version=importlib.metadata.version("mlx"), vendor="MLX")
def mlx_attention(p, q, k, v):
    return np.array(attend(p, *arrays(q, k, v), given(p)))


@mlx_attention.backward
def mlx_backward(p, q, k, v, o, lse, d_o):
    tables = given(p)
    names = list(tables)

    def function(q, k, v, *sides):
        return attend(p, q, k, v, dict(zip(names, sides)))

    _, gradients = mx.vjp(function, [*arrays(q, k, v), *tables.values()], arrays(d_o))
    found = dict(zip(["q", "k", "v", *names], gradients))
    wanted = [name for name in ("q", "k", "v", "bias", "sinks") if name in found]
    return [np.array(found[name]) for name in wanted]
