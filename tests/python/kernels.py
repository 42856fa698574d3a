"""Kernels in NumPy that tests judge: right ones, and some with a fault."""
import numpy as np

import attest_attention as attest
from textbook import Kernel, causal

WIDE = {"f64": np.float64, "f32": np.float32, "f16": np.float32}
EVERYTHING = ["causal", "window", "dense-mask", "prefix", "segments", "block-sparse", "dilated",
              "mask-and", "mask-or", "lengths", "any-scale", "softcap", "bias", "dbias", "alibi",
              "sink", "dlse", "dropout", "gqa", "value-dim", "zero-sizes", "strides",
              "transposed", "expanded", "lse"]


def lengths(p):
    """Of queries and of keys, as they broadcast to scores."""
    given = ((p.query_len, p.query_lengths), (p.key_len, p.key_lengths))
    return [np.reshape(whole if real is None else real, (-1, 1, 1, 1)) for whole, real in given]


def without_padding(p, x, real):
    """What lies beyond a length may be NaN, and 0 times that is NaN."""
    return np.where(np.arange(x.shape[2])[:, None] < real, x, 0)


def textbook(p):
    bias = None if p.bias is None else p.bias.astype(WIDE[p.dtype])
    if p.alibi_slopes is not None:
        i, j = np.arange(p.query_len)[:, None], np.arange(p.key_len)[None, :]
        queries, keys = lengths(p)
        distance = np.abs(j - i - (keys - queries)).astype(WIDE[p.dtype])
        bias = (0 if bias is None else bias) - p.alibi_slopes[:, :, None, None] * distance
    return Kernel(visible=p.visible(), scale=p.scale, softcap=p.softcap, bias=bias, sinks=p.sinks,
                  keep=p.keep_mask, dropout_p=p.dropout_p, real=WIDE[p.dtype])


@attest.kernel(dtypes=["f64", "f32", "f16"], features=EVERYTHING, arithmetic="exact-f32")
def right(p, q, k, v):
    kernel, (queries, keys) = textbook(p), lengths(p)
    o, lse = kernel.forward(without_padding(p, q, queries), without_padding(p, k, keys),
                            without_padding(p, v, keys))
    return o.astype(q.dtype), lse


@right.backward
def right_backward(p, q, k, v, o, lse, d_o):
    kernel, (queries, keys) = textbook(p), lengths(p)
    kernel.forward(without_padding(p, q, queries), without_padding(p, k, keys),
                   without_padding(p, v, keys))
    d_lse = None if p.d_lse is None else without_padding(p, p.d_lse[..., None], queries)[..., 0]
    dq, dk, dv, ds, dsink = kernel.backward(without_padding(p, d_o, queries), d_lse)
    gradients = [x.astype(q.dtype) for x in (dq, dk, dv)]
    if p.bias is not None:
        axes = tuple(axis for axis in range(4) if p.bias.shape[axis] == 1)
        gradients.append(ds.sum(axes, keepdims=True).astype(q.dtype))
    return gradients if p.sinks is None else [*gradients, dsink.astype(np.float32)]


def without_lengths(p, q, k, v):
    return Kernel(visible=p.visible(), scale=p.scale, real=np.float32).forward(q, k, v)


CORE = {"dtypes": ["f32"], "arithmetic": "exact-f32",
        "features": ["causal", "lse", "gqa", "value-dim", "zero-sizes", "strides"]}
core = attest.kernel(name="core", **CORE)(without_lengths)


@attest.kernel(**CORE)
def top_left(p, q, k, v):
    """Its diagonal begins at the top left, wherever it should."""
    seen = causal(p.query_len, p.key_len, "top_left") if p.causal else np.array(True)
    return Kernel(visible=seen, scale=p.scale, real=np.float32).forward(q, k, v)


@attest.kernel(dtypes=["f32"], features=["causal"], arithmetic="exact-f32")
def narrow(p, q, k, v):
    """The same, of so few features that no profile is judged in full."""
    return top_left.function(p, q, k, v)[0]


def pages_of(p, x, b):
    """The keys of a batch element, or their values, behind its page table."""
    pages = x[np.maximum(p.page_table[b], 0)]  # [entries, key heads, page, channels]
    return np.concatenate(list(pages), 1)[:, :p.key_lengths[b]] if len(pages) else x[:0, :, 0]


@attest.kernel(dtypes=["f32"], features=["packed", "paged", "causal", "gqa", "value-dim", "lse"],
               arithmetic="exact-f32")
def sequences(p, q, k, v):
    """One sequence after the other, packed or not, with its keys in pages or not."""
    o = np.zeros((*q.shape[:3], v.shape[3]), np.float32)
    lse = np.full(q.shape[:3], -np.inf, np.float32)
    seen = np.broadcast_to(p.visible(), (p.batch, p.query_heads, p.query_len, p.key_len))
    for b in range(p.batch):
        mine, rows = b, slice(None)
        if p.packed:
            mine, rows = 0, slice(*p.cu_seqlens[0][b:b + 2])
        if p.page_size:
            keys = [pages_of(p, x, b) for x in (k, v)]
        else:
            places = slice(*p.cu_seqlens[1][b:b + 2]) if p.packed else slice(None)
            keys = [x[mine, :, places] for x in (k, v)]
        own = q[mine:mine + 1, :, rows]
        visible = seen[b:b + 1, :, :own.shape[2], :keys[0].shape[1]]
        kernel = Kernel(visible=visible, scale=p.scale, real=np.float32)
        o[mine, :, rows], lse[mine, :, rows] = (x[0] for x in kernel.forward(
            own, *(x[None] for x in keys)))
    return o, lse


def statistics(p, q, k, v):
    """A maximum and a sum, in place of LSE; any that give it are right."""
    o, lse = without_lengths(p, q, k, v)
    seen = np.isfinite(lse)
    return o, np.where(seen, lse, np.float32(0)), seen.astype(np.float32)


two_statistics = attest.kernel(
    name="two_statistics", **{**CORE, "profiles": ["forward-core+declared"]},
    lse={"as": "maximum_and_sum"})(statistics)


@two_statistics.backward
def of_two_statistics(p, q, k, v, o, lse, d_o):
    maximum, total = lse
    assert maximum.shape == total.shape == o.shape[:3]
    return right_backward(p, q, k, v, o, None, d_o)


def drawn(p):
    numbers = np.random.Generator(np.random.Philox(key=[p.dropout_seed, p.dropout_offset]))
    return numbers.random((p.batch, p.query_heads, p.query_len, p.key_len)) >= p.dropout_p


@attest.kernel(dtypes=["f32"], features=["dropout-generated", "gqa", "lse"],
               arithmetic="exact-f32")
def draws(p, q, k, v):
    """Draws its own keep-mask, and returns it."""
    if not p.draws_keep:
        return without_lengths(p, q, k, v)
    keep = drawn(p)
    kernel = Kernel(scale=p.scale, keep=keep, dropout_p=p.dropout_p, real=np.float32)
    return (*kernel.forward(q, k, v), keep)


@draws.backward
def of_draws(p, q, k, v, o, lse, d_o):
    assert not p.draws_keep or np.array_equal(p.keep_mask, drawn(p))
    return right_backward(p, q, k, v, o, lse, d_o)
