"""FlashAttention-2's forward pass in Triton (arXiv:2307.08691, algorithm 1), in the form that
Triton's tutorial has, written here: what is judged is what Triton compiles of it for a GPU, its dot
products on tensor cores and its exp2."""
import torch
import triton
import triton.language as tl

import attest_attention as attest

ROWS, COLUMNS = 64, 64  # of a tile


# What is not specialised is compiled once for all of its values.
@triton.jit(do_not_specialize=["heads", "group", "queries", "keys", "lse_b", "lse_h"])
def attend(q, k, v, o, lse, scale, heads, group, queries, keys,
           q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_s, lse_b, lse_h,
           CAUSAL: tl.constexpr, NARROW: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
           COLUMNS: tl.constexpr):
    """A tile of rows of one head. NARROW: the factor of what was summed before has the tensors'
    format."""
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d, is_row = tl.arange(0, D), rows < queries
    at = q + b.to(tl.int64) * q_b + h * q_h + rows[:, None] * q_s + d[None, :]
    tile = tl.load(at, mask=is_row[:, None], other=0)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, D], tl.float32)
    k += b.to(tl.int64) * k_b + h // group * k_h
    v += b.to(tl.int64) * v_b + h // group * v_h
    end = keys
    if CAUSAL:  # of the lower right corner
        end = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS + keys - queries)
    for begin in range(0, end, COLUMNS):
        columns = begin + tl.arange(0, COLUMNS)
        is_column = columns < keys
        keys_tile = tl.load(k + columns[None, :] * k_s + d[:, None], mask=is_column[None, :],
                            other=0)
        values = tl.load(v + columns[:, None] * v_s + d[None, :], mask=is_column[:, None], other=0)
        seen = is_column[None, :]
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None] + keys - queries)
        scores = tl.where(seen, tl.dot(tile, keys_tile) * (scale * 1.4426950408889634),
                          float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(now == float("-inf"), 0, now)
        weights = tl.exp2(scores - base[:, None])
        before = tl.exp2(most - base)
        if NARROW:
            before = before.to(v.dtype.element_ty).to(tl.float32)
        total = total * before + tl.sum(weights, 1)
        sums = sums * before[:, None] + tl.dot(weights.to(v.dtype.element_ty), values)
        most = now
    is_empty = total == 0
    out = sums / tl.where(is_empty, 1, total)[:, None]
    at = o + b.to(tl.int64) * o_b + h * o_h + rows[:, None] * o_s + d[None, :]
    tl.store(at, out.to(o.dtype.element_ty), mask=is_row[:, None])
    logs = tl.where(is_empty, float("-inf"), (most + tl.log2(total)) * 0.6931471805599453)
    tl.store(lse + b * lse_b + h * lse_h + rows, logs, mask=is_row)


def flash(p, q, k, v, o=None, narrow=False):
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device) if o is None else o
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    attend[triton.cdiv(p.query_len, ROWS), p.batch * p.query_heads](
        q, k, v, o, lse, p.scale, p.query_heads, p.query_heads // p.key_heads, p.query_len,
        p.key_len, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        *lse.stride()[:2], CAUSAL=p.causal is not None, NARROW=narrow, D=p.head_dim, ROWS=ROWS,
        COLUMNS=COLUMNS)
    return o, lse


def on_tensor_cores(dtype):
    """Sums and the softmax in f32, of weights that are rounded to 16 bits."""
    return {"softmax": "f32", "p": dtype, "output_rounding": "nearest", "rescales_output": False,
            "p_normalised": "last", "kv_splits": 1, "key_block": COLUMNS}


DECLARED = {
    "dtypes": ["f16", "bf16"], "features": ["causal", "gqa", "lse", "any-scale"],
    "limits": {"masks": ["full", "causal bottom_right"], "mask_offset": 0,
               "head_dim": [32, 64, 128]},
    "arithmetic": {each: on_tensor_cores(each) for each in ("f16", "bf16")}, "arrays": "torch",
    "device": "cuda", "version": triton.__version__, "vendor": "Attest"}


@attest.kernel(**DECLARED)
def triton_flash_cuda(p, q, k, v):
    return flash(p, q, k, v)
