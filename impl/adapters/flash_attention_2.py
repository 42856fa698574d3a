"""flash-attention 2 on CUDA, where the package flash_attn is installed.

Source: flash_attn/flash_attn_interface.py and csrc/flash_attn of flash-attention 2.8.
"""
import importlib.metadata

from flash_attn import flash_attn_func

import attest_attention as attest
from torch_arithmetic import flash_on_cuda

HALVES = ("f16", "bf16")


def ends(p):
    """window_size: both ends inclusive, -1 for one without limit."""
    if p.mask.kind == "full":
        return (-1, -1)
    return tuple(-1 if end is None else min(end, 2**30) for end in (p.mask.left, p.mask.right))


@attest.kernel(
    name="flash_attn_cuda",
    dtypes=HALVES,  # flash_api.cpp, mha_fwd: only fp16 and bf16
    # flash_attn_func: window_size, softcap, alibi_slopes, num_heads_q a multiple of num_heads_k;
    # head sizes are padded to a multiple of 8.
    features=["causal", "window", "softcap", "alibi", "gqa", "lse", "any-scale", "strides",
              "expanded", "stream", "two-streams", "new-shapes"],
    # Aligned to the bottom right since 2.1; head sizes up to 256.
    limits={"masks": ["full", "causal bottom_right", "window bottom_right",
                      "window causal bottom_right"],
            "mask_offset": 0, "head_dim": {"max": 256}},
    empty_rows={"lse": "inf"},  # csrc/flash_attn/src/softmax.h
    arithmetic={each: flash_on_cuda(each) for each in HALVES}, arrays="torch", device="cuda",
    backward="autograd", version=importlib.metadata.version("flash_attn"), vendor="Dao-AILab")
def flash_attn_cuda(p, q, k, v):
    o, lse, _ = flash_attn_func(
        *(x.transpose(1, 2) for x in (q, k, v)), softmax_scale=p.scale, window_size=ends(p),
        softcap=p.softcap, alibi_slopes=p.alibi_slopes, return_attn_probs=True)
    return o.transpose(1, 2), lse
