"""What README.md shows of a kernel in Python. What stands after the dashes is shown there."""
import numpy as np


def probabilities(q, k, causal, scale):
    """P and LSE of groups of query heads [B, Hkv, group, Sq, Sk]."""
    grouped = q.reshape(q.shape[0], k.shape[1], -1, *q.shape[2:])
    s = np.float32(scale) * (grouped @ k.swapaxes(2, 3)[:, :, None])
    if causal:
        diagonal = k.shape[2] - q.shape[2] if causal == "bottom_right" else 0
        s = np.where(np.tri(*s.shape[3:], diagonal, dtype=bool), s, np.float32("-inf"))
    top = s.max(4, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)  # of rows that see no key
    e = np.exp(s - top)
    total = e.sum(4, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return e / np.where(total > 0, total, 1), lse


def my_flash(q, k, v, causal, scale):
    p, lse = probabilities(q, k, causal, scale)
    return (p @ v[:, :, None]).reshape(*q.shape[:3], -1), lse.reshape(q.shape[:3])


def my_flash_backward(q, k, v, o, lse, d_o, causal, scale):
    p, _ = probabilities(q, k, causal, scale)
    groups = p.shape[:3]
    d_o, o, q = (x.reshape(*groups, *x.shape[2:]) for x in (d_o, o, q))
    dp = d_o @ v.swapaxes(2, 3)[:, :, None]
    ds = np.float32(scale) * p * (dp - (d_o * o).sum(4, keepdims=True))
    dq = (ds @ k[:, :, None]).reshape(groups[0], -1, *q.shape[3:])
    return dq, (ds.swapaxes(3, 4) @ q).sum(2), (p.swapaxes(3, 4) @ d_o).sum(2)


# ----
import attest_attention as attest

@attest.kernel(dtypes=["f32"], features=["causal", "gqa", "lse"], limits={"mask_offset": 0},
               arithmetic="exact-f32")
def mine(p, q, k, v):
    return my_flash(q, k, v, causal=p.causal, scale=p.scale)  # o, lse

@mine.backward
def mine_backward(p, q, k, v, o, lse, d_o):
    return my_flash_backward(q, k, v, o, lse, d_o, causal=p.causal, scale=p.scale)
