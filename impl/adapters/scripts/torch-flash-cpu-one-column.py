# PyTorch's flash attention on the CPU: an attn_mask of one column for all keys is read beyond its
# end. The process dies, or the numbers are from elsewhere; so each try has a process of its own.
import subprocess
import sys

TRY = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
at = torch.arange(2 * 4 * 2000 * 16).reshape(2, 4, 2000, 16)
q, k, v = (((m * at) % 17 - 8).float() / 8 for m in (3, 5, 7))
mask = torch.full((2, 4, 2000, 1), 0.5)
exact = scaled_dot_product_attention(q.double(), k.double(), v.double())
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    found = scaled_dot_product_attention(q, k, v, mask)
print(f"off by {(found - exact).abs().max().item():.3g}")
assert (found - exact).abs().max() < 0.01
"""
ends = [subprocess.run([sys.executable, "-c", TRY]).returncode for _ in range(3)]
print("a mask that adds 0.5 to all scores changes nothing; ends of the processes:", ends)
assert not any(ends)
