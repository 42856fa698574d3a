"""Attention by its definition, in NumPy: what tests judge, right and with faults planted.

All arrays are [batch, heads, positions, channels]; computed in `real`, rounded by who calls.
"""
import dataclasses

import numpy as np


@dataclasses.dataclass
class Kernel:
    """visible: booleans that broadcast to [batch, query heads, queries, keys]."""

    visible: np.ndarray = dataclasses.field(default_factory=lambda: np.array(True))
    scale: float = None
    softcap: float = 0.0
    bias: np.ndarray = None  # of any kind that is added to the scores
    sinks: np.ndarray = None
    keep: np.ndarray = None
    dropout_p: float = 0.0
    real: type = np.float64
    round_p: callable = staticmethod(lambda p: p)

    def forward(self, q, k, v):
        """O and LSE; keeps what the backward pass needs."""
        q, k, v = (np.asarray(x, self.real) for x in (q, k, v))
        self.group = q.shape[1] // max(k.shape[1], 1)
        k, v = np.repeat(k, self.group, 1), np.repeat(v, self.group, 1)
        self.used_scale = self.real(1 / np.sqrt(q.shape[3]) if self.scale is None else self.scale)
        x = self.used_scale * (q @ k.swapaxes(2, 3))
        self.slope = 1
        if self.softcap:
            bent = np.tanh(x / self.real(self.softcap))
            x, self.slope = self.real(self.softcap) * bent, 1 - bent**2
        if self.bias is not None:
            x = x + np.asarray(self.bias, self.real)
        x = np.where(self.visible, x, -np.inf)
        top = x.max(3, keepdims=True, initial=-np.inf)
        if self.sinks is not None:
            top = np.maximum(top, self.sinks[None, :, None, None])
        top = np.where(np.isfinite(top), top, 0)
        p = np.exp(x - top)
        total = p.sum(3, keepdims=True)
        if self.sinks is not None:
            total = total + np.exp(self.sinks[None, :, None, None] - top)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.lse = (top + np.log(total))[..., 0]
            self.p = np.where(total > 0, p / total, 0)
        self.dropped = self.p if self.keep is None else self.p * self.keep / (1 - self.dropout_p)
        self.q, self.k, self.v = q, k, v
        self.o = self.round_p(self.dropped) @ v
        return self.o, self.lse

    def backward(self, d_o, d_lse=None):
        """dQ, dK, dV, dS (whose sums are dBias) and dSink, after forward()."""
        d_o = np.asarray(d_o, self.real)
        dv = self.dropped.swapaxes(2, 3) @ d_o
        dp = d_o @ self.v.swapaxes(2, 3)
        if self.keep is not None:
            dp = dp * self.keep / (1 - self.dropout_p)
        delta = (d_o * self.o).sum(3, keepdims=True)
        if d_lse is not None:
            delta = delta - np.asarray(d_lse, self.real)[..., None]
        ds = self.p * (dp - delta)
        dx = ds * self.slope * self.used_scale
        dq, dk = dx @ self.k, dx.swapaxes(2, 3) @ self.q
        dsink = None
        if self.sinks is not None:
            weight = np.exp(self.sinks[None, :, None] - self.lse)
            dsink = -(weight * delta[..., 0]).sum((0, 2))
        return dq, self._of_groups(dk), self._of_groups(dv), ds, dsink

    def _of_groups(self, x):
        return x.reshape(x.shape[0], x.shape[1] // self.group, self.group, *x.shape[2:]).sum(2)


def causal(queries, keys, anchor):
    shift = keys - queries if anchor == "bottom_right" else 0
    return np.arange(keys)[None, :] <= np.arange(queries)[:, None] + shift


def window(queries, keys, left, right, anchor):
    shift = keys - queries if anchor == "bottom_right" else 0
    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None] - shift
    return (ahead >= -left) & (ahead <= right)


def bf16_bits(x):
    """The nearest, ties to even, as unsigned integers of 16 bits. No NaN."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def of_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(x):
    """Rounded to bf16, as f32."""
    return of_bf16(bf16_bits(x))
