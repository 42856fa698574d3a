"""FlexAttention on CUDA, compiled: the Triton templates of torch/_inductor/kernel/flex, which are
in the wheel of PyTorch 2.11.

Each shape is compiled; masks but the causal one are one mask_mod, which looks into a table.
"""
import torch
from torch._dynamo import config as dynamo
from torch._inductor import config as inductor

import attest_attention as attest
import torch_flex
from torch_arithmetic import flex_on_cuda

FORMATS = ("f32", "f16", "bf16")
dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 1 << 20  # else it goes on uncompiled
inductor.compile_threads = 1  # a worker starts no further processes
compiled = torch.compile(torch_flex.flex.flex_attention, dynamic=False)


@attest.kernel(
    name="torch_flex_cuda",
    dtypes=FORMATS,  # flex_attention.py: tl.dot; f64 does not compile
    features=["causal", "dense-mask", "softcap", "bias", "alibi", "gqa", "value-dim", "lse",
              "any-scale", "strides", "transposed", "expanded", "stream", "new-shapes"],
    limits={"head_dim": {"min": 16}, "value_dim": {"min": 16}},  # flex_attention.py: "NYI: ..."
    arithmetic={each: flex_on_cuda(each) for each in FORMATS}, arrays="torch", device="cuda",
    backward="autograd", version=torch.__version__, vendor="PyTorch")
def flex_cuda(p, q, k, v):
    mask_mod = None
    if p.mask.kind == "band":
        mask_mod = torch_flex.mask_of(p.mask, p.key_len - p.query_len)
    elif p.mask.kind != "full":
        seen = p.visible()
        mask_mod = torch_flex.mask_of(attest.Mask("dense", table=seen), 0)
    return torch_flex.attend(compiled, p, q, k, v, mask_mod)
