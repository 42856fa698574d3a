# cuDNN's attention in PyTorch: dQ is NaN where Sk % 128 = 64 and all scores are near -120.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

at = torch.arange(64 * 64, device="cuda").reshape(1, 1, 64, 64)
wrong = []
for sk in (64, 128):
    for mask in (None, torch.zeros(64, sk, device="cuda", dtype=torch.half)):
        q = torch.full((1, 1, 64, 64), -3.75, device="cuda", dtype=torch.half, requires_grad=True)
        k = torch.full((1, 1, sk, 64), 4., device="cuda", dtype=torch.half, requires_grad=True)
        v = (((7 * at) % 17 - 8).half() / 8).repeat(1, 1, sk // 64, 1).requires_grad_()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = scaled_dot_product_attention(q, k, v, mask)  # each score is -120
            dq, dk, dv = torch.autograd.grad(o, (q, k, v), torch.ones_like(o))
        named = f"Sk {sk}, {'no mask' if mask is None else 'a mask of zeros'}"
        print(f"{named}: dQ[0, 0, 0, 0] = {dq[0, 0, 0, 0].item():.3g}, exact 0; "
              f"{dq.isnan().sum().item()} of {dq.numel()} are NaN")
        wrong += [named] if dq.isnan().any() else []
assert not wrong
