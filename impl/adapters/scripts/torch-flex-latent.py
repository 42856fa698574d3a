# FlexAttention, compiled: the heads of DeepSeek's MLA, 576 of K and 512 of V, one query under a
# causal mask: an illegal memory access, and the process loses the device.
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

at = torch.arange(2 * 91 * 576, device="cuda")
q, k, v = ((((m * at[:2 * rows * width]) % 17 - 8).bfloat16() / 8).reshape(1, 2, rows, width)
           for m, rows, width in ((3, 1, 576), (5, 91, 576), (7, 91, 512)))
mask = create_block_mask(lambda b, h, i, j: j <= i + 81, 1, 2, 1, 91, device="cuda")
weights = (q.double() @ k.double().mT / 24)[..., :82].softmax(-1)
exact = (weights @ v.double()[:, :, :82])[0, 0, 0, 0].item()
failed = ""
try:
    found = torch.compile(flex_attention, dynamic=False)(q, k, v, block_mask=mask, scale=1 / 24)
    print(f"O[0, 0, 0, 0] exact {exact:.6g}, found {found[0, 0, 0, 0].item():.6g}")
except RuntimeError as error:
    failed = str(error).partition("\n")[0]
    print(failed)
assert not failed
