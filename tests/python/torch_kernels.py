"""PyTorch's own attention, and one by the formula; gradients by autograd."""
import torch
import torch.nn.functional as F

import attest_attention as attest


@attest.kernel(dtypes=["f32", "bf16"], features=["causal", "gqa", "zero-sizes", "strides"],
               limits={"mask_offset": 0, "masks": ["full", "causal top_left"]}, arrays="torch",
               backward="autograd")
def sdpa(p, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=p.causal is not None, scale=p.scale,
                                          enable_gqa=p.query_heads != p.key_heads)


def formula(p, q, k, v):
    k, v = (x.float().repeat_interleave(p.query_heads // p.key_heads, 1) for x in (k, v))
    s = p.scale * (q.float() @ k.transpose(2, 3))
    if p.bias is not None:
        s = s + p.bias.float()
    s = s.masked_fill(~p.visible(), -torch.inf)
    if p.sinks is not None:
        sinks = p.sinks[None, :, None, None].expand(*s.shape[:3], 1)
        s = torch.cat([s, sinks], 3)
    lse = s.logsumexp(3)
    weights = (s - lse[..., None]).exp()[..., :v.shape[2]].nan_to_num()
    return (weights @ v).to(q.dtype), lse


FEATURES = ["causal", "window", "bias", "dbias", "sink", "dlse", "gqa", "value-dim", "lse"]
eager = attest.kernel(dtypes=["f32", "bf16"], features=FEATURES, arrays="torch", name="eager",
                      backward="autograd", limits={"query_len": {"min": 1}, "key_len": {"min": 1}})(
    formula)


@attest.kernel(dtypes=["f32"], features=["lse", "gqa"], arrays="torch")
def in_place(p, q, k, v):
    q.mul_(2)
    return formula(p, q, k, v)


@attest.kernel(dtypes=["f32"], features=["gqa"], arrays="torch")
def elsewhere(p, q, k, v):
    return formula(p, q, k, v)[0].to("meta")


@attest.kernel(dtypes=["f32"], features=["gqa"], arrays="torch")
def numpy_array(p, q, k, v):
    return formula(p, q, k, v)[0].numpy()
