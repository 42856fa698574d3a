# cuDNN's attention in PyTorch: NaN, or a misaligned address, where attn_mask has one column for all
# keys.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

failed = ""
for shape in ((1, 1, 1, 1), (2, 1, 1, 1), (1, 4, 21, 1)):
    at = torch.arange(2 * 4 * 37 * 16, device="cuda").reshape(2, 4, 37, 16)
    q, k, v = (((m * at) % 17 - 8).bfloat16() / 8 for m in (3, 5, 7))
    q = q[:, :, :21].contiguous()
    mask = torch.full(shape, 0.5, device="cuda", dtype=torch.bfloat16)
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double(), mask.double())
    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            found = scaled_dot_product_attention(q, k, v, mask)
        print(f"{shape}: O[0, 0, 0, 0] exact {exact[0, 0, 0, 0].item():.6g}, "
              f"found {found[0, 0, 0, 0].item():.6g}")
        failed = failed or ("" if (found - exact).abs().max() < 0.05 else "it is wrong")
    except RuntimeError as error:
        failed = str(error).partition("\n")[0]
        print(f"{shape}: {failed}")
        break
assert not failed
