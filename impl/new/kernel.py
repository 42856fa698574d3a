"""@NAME@: attention in NumPy, to be replaced by your own. What it declares, it computes: declare
what yours can do, no more (SPEC.md, chapters "Description" and "Limits")."""
import attest_attention as attest
import numpy as np


def sequences(p, q, k, v):
    """Of each batch element: the slice of its rows, its q, k and v in f32, heads first, and which
    keys its rows see. Nothing beyond its lengths is looked at."""
    seen = np.broadcast_to(p.visible(), (p.batch, p.query_heads, p.query_len, p.key_len))
    for b in range(p.batch):
        rows = (b, slice(None), slice(None))
        keys = p.key_len
        # [inference serving]
        if p.key_lengths is not None:
            keys = p.key_lengths[b]
        # [end]
        # [serving]
        if p.packed:
            of_queries, of_keys = p.cu_seqlens
            rows = (0, slice(None), slice(of_queries[b], of_queries[b + 1]))
        if p.page_size:
            pages = p.page_table[b, :-(-keys // p.page_size)]
            own_k, own_v = (np.moveaxis(x[pages], 1, 0).reshape(x.shape[1], -1, x.shape[3])
                            for x in (k, v))
        elif p.packed:
            keys = of_keys[b + 1] - of_keys[b]
            own_k, own_v = (x[0, :, of_keys[b]:of_keys[b + 1]] for x in (k, v))
        else:
            own_k, own_v = k[b], v[b]
        # [minimal inference training]
        own_k, own_v = k[b], v[b]
        # [end]
        own_q = q[rows]
        group = p.query_heads // max(p.key_heads, 1)
        own_k, own_v = (np.repeat(x[:, :keys], group, axis=0) for x in (own_k, own_v))
        yield (rows, *(x.astype(np.float32) for x in (own_q, own_k, own_v)),
               seen[b, :, :own_q.shape[1], :keys])


def weights(q, k, seen, scale):
    """The softmax of the scores, and its LSE; rows that see no key have no weights."""
    with np.errstate(all="ignore"):
        s = np.where(seen, np.float32(scale) * (q @ k.swapaxes(1, 2)), np.float32(-np.inf))
        top = s.max(axis=2, initial=-np.inf, keepdims=True)
        s = np.exp(s - np.where(np.isneginf(top), 0, top))
        total = s.sum(axis=2, keepdims=True)
        return s / np.where(total > 0, total, 1), (top + np.log(total))[..., 0]


@attest.kernel(
    name="@NAME@", version="0.1.0", vendor="@NAME@", arithmetic="exact-f32",
    # [minimal]
    dtypes=["f32"],
    features=["causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides"],
    profiles=["forward-core"],
    # [inference]
    dtypes=["f32", "f16"],
    features=["causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides",
              "transposed", "expanded", "lengths"],
    profiles=["forward-core", "varlen"],
    # [training]
    dtypes=["f32", "f16"],
    features=["causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides",
              "transposed", "expanded", "backward"],
    profiles=["forward-core", "training-core"],
    # [serving]
    dtypes=["f32", "f16"],
    features=["causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides",
              "transposed", "expanded", "lengths", "packed", "paged"],
    profiles=["forward-core", "varlen", "packed", "paged"],
    # [end]
)
def forward(p, q, k, v):
    o = np.zeros((*q.shape[:3], p.value_dim), q.dtype)
    lse = np.full(q.shape[:3], -np.inf, np.float32)
    for rows, own_q, own_k, own_v, seen in sequences(p, q, k, v):
        weight, lse[rows] = weights(own_q, own_k, seen, p.scale)
        o[rows] = weight @ own_v
    return o, lse


# [training]
@forward.backward
def backward(p, q, k, v, o, lse, d_o):
    dq, dk, dv = (np.zeros(x.shape, np.float32) for x in (q, k, v))
    for rows, own_q, own_k, own_v, seen in sequences(p, q, k, v):
        weight, _ = weights(own_q, own_k, seen, p.scale)
        own_do = d_o[rows].astype(np.float32)
        mean = (own_do * o[rows].astype(np.float32)).sum(axis=2, keepdims=True)
        ds = weight * (own_do @ own_v.swapaxes(1, 2) - mean) * np.float32(p.scale)
        dq[rows] = ds @ own_k
        groups = (p.key_heads, p.query_heads // max(p.key_heads, 1), p.key_len)
        dk[rows[0]] = (ds.swapaxes(1, 2) @ own_q).reshape(*groups, p.head_dim).sum(axis=1)
        dv[rows[0]] = (weight.swapaxes(1, 2) @ own_do).reshape(*groups, p.value_dim).sum(axis=1)
    return tuple(x.astype(q.dtype) for x in (dq, dk, dv))
