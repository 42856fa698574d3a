"""PyTorch's scaled_dot_product_attention on the CPU: its two back ends, math and flash.

The operators of ATen are called, not the function that chooses among them: LSE and gradients are
the kernel's own. Sources: aten/src/ATen/native/transformers/attention.cpp and
cpu/FlashAttentionKernel.cpp of PyTorch 2.11.
"""
import torch

import attest_attention as attest
from torch_arithmetic import FORMATS, flash_on_cpu, unfused_on_cpu

aten = torch.ops.aten
# attn_mask is a table, or what is added. A causal mask that is not the flag's is a table too, as
# of torch.nn.attention.bias.causal_lower_right; of other masks they know nothing.
MASKS = ["causal", "dense-mask"]


def is_causal(p):
    """Whether the operator's own flag says it: tril of [L, S], the top left, and no attn_mask."""
    return p.mask.kind == "band" and p.mask.anchor == "top_left" and not p.mask.offset \
        and p.bias is None


def added(p, q):
    """Bias and mask as one tensor that is added to scores: -inf where nothing is seen."""
    if p.mask.kind == "full":
        return p.bias
    bias = torch.zeros((), dtype=q.dtype, device=q.device) if p.bias is None else p.bias
    return torch.where(p.visible(), bias, -torch.inf)


def side_by_side(*tensors):
    """With channels side by side: the function refuses its other back ends all else
    (check_last_dim_stride_equals_1_dense), the operators of some read on."""
    return [each if each.stride(3) == 1 else each.contiguous() for each in tensors]


def math(p, q, k, v):
    causal = is_causal(p)  # attention.cpp: no mask beside is_causal
    grouped = {"enable_gqa": True} if p.query_heads != p.key_heads else {}
    return aten._scaled_dot_product_attention_math(
        q, k, v, None if causal else added(p, q), p.dropout_p, causal, p.keep_mask, scale=p.scale,
        **grouped)[0]


GROUPED = "enable_gqa" in str(aten._scaled_dot_product_attention_math.default._schema)  # since 2.5
MATH = {
    "dtypes": FORMATS,  # all that matmul takes
    # Composed of operators, which take any strides.
    "features": [*MASKS, "bias", "dbias", "value-dim", "any-scale", "dropout", "strides",
                 "transposed", "expanded", *(["gqa"] if GROUPED else [])],
    "arrays": "torch", "backward": "autograd", "version": torch.__version__, "vendor": "PyTorch"}

math_cpu = attest.kernel(name="torch_math_cpu", **MATH,
                         arithmetic={each: unfused_on_cpu(each) for each in FORMATS})(math)


@attest.kernel(
    name="torch_flash_cpu",
    dtypes=FORMATS,  # AT_DISPATCH_FLOATING_TYPES_AND2
    # check_attn_mask_shape: a mask of [B or 1, H or 1, Sq or 1, Sk or 1]. One head of keys for each
    # of queries; Q, K, V of one head size; channels side by side, by calls of gemm.
    features=[*MASKS, "bias", "lse", "any-scale", "strides", "expanded"],
    limits={
        # grad_query is a sum over blocks of 512 keys that is kept in 16 bits, which no declaration
        # says: one block is none (cpu_flash_attention_backward, gemm with beta 1).
        "dtypes": {each: {"backward": {"key_len": {"max": 512}}} for each in ("f16", "bf16")}},
    # cpu_flash_attention: of a row without keys qk_max is set to 0 and qk_sum to 1.
    empty_rows={"lse": 0}, arrays="torch", backward="autograd", version=torch.__version__,
    vendor="PyTorch", arithmetic={each: flash_on_cpu(each) for each in FORMATS})
def flash_cpu(p, q, k, v):
    causal = is_causal(p)
    return aten._scaled_dot_product_flash_attention_for_cpu(
        *side_by_side(q, k, v), 0.0, causal, attn_mask=None if causal else added(p, q),
        scale=p.scale)
