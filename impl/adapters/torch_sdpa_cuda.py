"""PyTorch's scaled_dot_product_attention on CUDA: math, flash, efficient and cuDNN.

The operators of ATen are called, not the function that chooses among them: LSE and gradients are
the kernel's own. Sources: aten/src/ATen/native/transformers of PyTorch 2.11, cuda/ below it.
"""
import torch
import torch.nn.functional as F

import attest_attention as attest
import torch_sdpa
from torch_arithmetic import (FORMATS, cudnn_on_cuda, efficient_on_cuda, flash_on_cuda,
                              unfused_on_cuda)

aten = torch.ops.aten
CUDA = {"arrays": "torch", "device": "cuda", "backward": "autograd", "version": torch.__version__,
        "vendor": "PyTorch"}
STREAMS = ["stream", "two-streams", "graph", "new-shapes"]  # at::cuda::getCurrentCUDAStream()
HALVES = ("f16", "bf16")

math = attest.kernel(
    name="torch_math_cuda", dtypes=FORMATS, features=[*torch_sdpa.MATH["features"], *STREAMS],
    arithmetic={each: unfused_on_cuda(each) for each in FORMATS}, **CUDA)(torch_sdpa.math)


@attest.kernel(
    name="torch_flash_cuda",
    dtypes=HALVES,  # flash_attn/flash_api.cpp, mha_fwd: only fp16 and bf16
    # The same: num_heads % num_heads_k == 0; q.stride(-1) == 1. attention_backward.cu: grad_out is
    # made contiguous.
    features=["causal", "gqa", "lse", "any-scale", "strides", "expanded", *STREAMS],
    # sdp_utils.cpp, check_flash_causal_non_square_seqlens: since 2.1 the corner is the lower right.
    limits={"masks": ["full", "causal bottom_right"], "mask_offset": 0,
            "head_dim": {"multiple": 8, "max": 256},  # mha_fwd
            "batch": {"max": 65535}},  # flash_fwd_launch_template.h: an axis of the grid
    empty_rows={"lse": "inf"},  # flash_attn/softmax.h: sum == 0 gives INFINITY; mha_fwd: Sk = 0
    arithmetic={each: flash_on_cuda(each) for each in HALVES}, **CUDA)
def flash(p, q, k, v):
    return aten._scaled_dot_product_flash_attention(
        *torch_sdpa.side_by_side(q, k, v), 0.0, p.causal is not None, False, scale=p.scale)[:2]


def padded(bias, p):
    """attention.cpp, pad_bias: rows of a multiple of 16 elements, expanded to all scores."""
    if bias is None:
        return None
    bias = F.pad(bias.expand(*bias.shape[:3], p.key_len), (0, -p.key_len % 16))[..., :p.key_len]
    return bias.expand(p.batch, p.query_heads, p.query_len, p.key_len)


@attest.kernel(
    name="torch_efficient_cuda",
    dtypes=("f32", *HALVES),  # mem_eff_attention/kernels/cutlassF.h
    # attention.cu, _scaled_dot_product_efficient_attention: custom_mask_type CausalFromTopLeft;
    # attn_bias; num_heads of key == that of query; grad_out is made contiguous.
    features=[*torch_sdpa.MASKS, "bias", "dbias", "lse", "value-dim", "any-scale", "strides",
              "expanded", *STREAMS],
    # sdp_utils.cpp, check_head_dim_size_mem_efficient: a multiple of minimum_gemm_alignment.
    limits={"dtypes": {
        "f32": {"head_dim": {"multiple": 4}, "value_dim": {"multiple": 4}},
        "f16": {"head_dim": {"multiple": 8}, "value_dim": {"multiple": 8}},
        "bf16": {"head_dim": {"multiple": 8}, "value_dim": {"multiple": 8}}}},
    # mem_eff_attention/kernel_forward.h: of a row without keys mi becomes 0 and s_prime 1.
    empty_rows={"lse": 0}, arithmetic={each: efficient_on_cuda(each) for each in ("f32", *HALVES)},
    **CUDA)
def efficient(p, q, k, v):
    causal = torch_sdpa.is_causal(p)
    o, lse, *_ = aten._scaled_dot_product_efficient_attention(
        *torch_sdpa.side_by_side(q, k, v),
        None if causal else padded(torch_sdpa.added(p, q), p), True, 0.0, causal,
        scale=p.scale)
    return o, lse[..., :p.query_len]  # kAlignLSE: to a multiple of 32 queries


@attest.kernel(
    name="torch_cudnn_cuda",
    dtypes=HALVES,  # sdp_utils.cpp, cudnn_attention: kHalf, kBFloat16
    # cudnn/MHA.cpp: set_causal_mask, of the upper left; set_bias; h_q, h_k and h_v apart; the
    # strides of each tensor are told to the graph.
    features=[*torch_sdpa.MASKS, "bias", "gqa", "lse", "any-scale", "strides", "expanded",
              *STREAMS],
    # sdp_utils.cpp, check_cudnn_tensor_shapes: d % 8, d <= 256 on Hopper; s_q = s_kv = 1 has no
    # backward pass.
    limits={"head_dim": {"multiple": 8, "max": 256},
            "batch": {"max": 65535},  # measured: mha_graph.execute fails with 132810
            "never": [{"backward": True, "query_len": 1, "key_len": 1}]},
    arithmetic={each: cudnn_on_cuda(each) for each in HALVES}, **CUDA)
def cudnn(p, q, k, v):
    causal = torch_sdpa.is_causal(p)
    o, lse, *_ = aten._scaled_dot_product_cudnn_attention(
        *torch_sdpa.side_by_side(q, k, v), None if causal else torch_sdpa.added(p, q), True, 0.0,
        causal, False,
        scale=p.scale)
    return o, lse.reshape(o.shape[:3])
