"""FlexAttention (torch.nn.attention.flex_attention) on the CPU, not compiled.

Sources: torch/_higher_order_ops/flex_attention.py and torch/nn/attention/flex_attention.py of
PyTorch 2.11, which are in the wheel.
"""
import torch
from torch.nn.attention import flex_attention as flex

import attest_attention as attest
from torch_arithmetic import FORMATS, flex_on_cpu

# A function of b, h, q and kv says what is visible; another what becomes of a score, after the
# scale. The adapter has one of each kind, as FlexAttention's documentation writes them.
FEATURES = ["causal", "window", "dense-mask", "prefix", "segments", "block-sparse", "dilated",
            "mask-and", "mask-or", "softcap", "bias", "alibi", "gqa", "value-dim", "lse",
            "any-scale", "strides", "transposed", "expanded"]


FAR = 2**30  # than any position


def at(table, axis, index):
    """The index into an axis that may have size 1."""
    return index if table.shape[axis] > 1 else index * 0


def mask_of(mask, shift):
    """A mask_mod; `shift` is where a diagonal of the bottom right lies."""
    kind, table = mask.kind, mask.table
    first = mask.offset + (shift if mask.anchor == "bottom_right" else 0)
    if kind == "all_of" and mask.parts:
        return flex.and_masks(*(mask_of(part, shift) for part in mask.parts))
    if kind == "any_of" and mask.parts:
        return flex.or_masks(*(mask_of(part, shift) for part in mask.parts))
    if kind == "band":
        # Compiled, positions are of 32 bits, and a number beyond is cut to them.
        lowest = -FAR if mask.left is None else max(-FAR, min(first - mask.left, FAR))
        highest = FAR if mask.right is None else max(-FAR, min(first + mask.right, FAR))
        return lambda b, h, q, kv: (kv >= q + lowest) & (kv <= q + highest)
    if kind == "dilated":
        return lambda b, h, q, kv: (kv - q - first) % mask.dilation == 0
    if kind == "dense":
        return lambda b, h, q, kv: table[at(table, 0, b), at(table, 1, h), at(table, 2, q),
                                         at(table, 3, kv)]
    if kind == "prefix":
        return lambda b, h, q, kv: kv < table[at(table, 0, b)]
    if kind == "segments":
        keys = mask.table2
        return lambda b, h, q, kv: (table[at(table, 0, b), q] == keys[at(keys, 0, b), kv]) & (
            table[at(table, 0, b), q] >= 0)
    if kind == "block_sparse":
        rows, columns = mask.block
        return lambda b, h, q, kv: table[at(table, 0, b), at(table, 1, h), q // rows, kv // columns]
    return lambda b, h, q, kv: (kv >= 0) if kind != "any_of" else (kv < 0)


def score_of(p):
    """A score_mod: softcap, then bias, then ALiBi."""
    cap, bias, slopes, shift = p.softcap, p.bias, p.alibi_slopes, p.key_len - p.query_len

    def modified(score, b, h, q, kv):
        if cap:
            score = cap * torch.tanh(score / cap)
        if bias is not None:
            score = score + bias[at(bias, 0, b), at(bias, 1, h), at(bias, 2, q), at(bias, 3, kv)]
        if slopes is not None:
            slope = slopes[at(slopes, 0, b), h]  # f32, in f64 too
            slope = slope.to(torch.promote_types(score.dtype, slope.dtype))
            score = score - slope * torch.abs(q + shift - kv)
        return score

    return modified if cap or bias is not None or slopes is not None else None


def attend(function, p, q, k, v, mask_mod):
    block_mask = mask_mod and flex.create_block_mask(
        mask_mod, p.batch, p.query_heads, p.query_len, p.key_len, device=q.device)
    return function(q, k, v, score_mod=score_of(p), block_mask=block_mask, scale=p.scale,
                    enable_gqa=p.query_heads != p.key_heads, return_lse=True)


@attest.kernel(
    name="torch_flex_cpu", dtypes=FORMATS,  # math_attention: any that matmul takes
    features=FEATURES,  # no backward pass: "FlexAttention does not support backward on CPU"
    arrays="torch", version=torch.__version__, vendor="PyTorch",
    arithmetic={each: flex_on_cpu(each) for each in FORMATS})
def flex_cpu(p, q, k, v):
    mask_mod = None if p.mask.kind == "full" else mask_of(p.mask, p.key_len - p.query_len)
    return attend(flex.flex_attention, p, q, k, v, mask_mod)
