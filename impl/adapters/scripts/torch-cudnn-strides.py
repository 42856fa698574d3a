# cuDNN's attention in PyTorch: wrong or NaN where rows lie 11 elements apart, of which 8 are theirs.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

at = torch.arange(2 * 3 * 21 * 11, device="cuda").reshape(2, 3, 21, 11)
q, k, v = ((((m * at) % 17 - 8).half() / 8)[..., :8] for m in (3, 5, 7))
assert q.stride() == (3 * 21 * 11, 21 * 11, 11, 1)
exact = scaled_dot_product_attention(q.double(), k.double(), v.double())
with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    found = scaled_dot_product_attention(q, k, v)
    dense = scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous())
print(f"O[0, 0, 0, 0] exact {exact[0, 0, 0, 0].item():.6g}, found {found[0, 0, 0, 0].item():.6g}, "
      f"of dense rows {dense[0, 0, 0, 0].item():.6g}")
print("largest error", (found - exact).abs().max().item(),
      "of dense rows", (dense - exact).abs().max().item())
assert (found - exact).abs().max() < 0.01
