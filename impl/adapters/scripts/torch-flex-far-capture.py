# FlexAttention, compiled: a bias, captured by the score_mod, whose rows lie 1.5e9 elements apart: its
# offset wraps in 32 bits. An illegal memory access, or numbers from elsewhere.
import torch
from torch.nn.attention.flex_attention import flex_attention

at = torch.arange(64 * 64, device="cuda")
q, k, v = ((((m * at[:rows * 64]) % 17 - 8).bfloat16() / 8).reshape(1, 1, rows, 64)
           for m, rows in ((3, 4), (5, 64), (7, 64)))
room = torch.empty(3 * 1_500_000_000 + 64, dtype=torch.bfloat16, device="cuda")
bias = room.as_strided((4, 64), (1_500_000_000, 1))
bias.copy_((at[:256] % 5).reshape(4, 64))
weights = (q.double() @ k.double().mT / 8 + bias.double()).softmax(-1)
exact = (weights @ v.double())[0, 0, 3, 0].item()
failed = ""
try:
    found = torch.compile(flex_attention, dynamic=False)(
        q, k, v, score_mod=lambda score, b, h, i, j: score + bias[i, j])[0, 0, 3, 0].item()
    print(f"O[0, 0, 3, 0] exact {exact:.6g}, found {found:.6g}")
    if not abs(found - exact) <= 0.05:
        failed = "another number"
except RuntimeError as error:
    failed = str(error).partition("\n")[0]
    print(failed)
assert not failed
