# FlexAttention: a score_mod with a number of Python in it fails once the number is another.
import torch
from torch.nn.attention.flex_attention import flex_attention

q = torch.ones(1, 1, 4, 16)


def capped(cap):
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: cap * torch.tanh(score / cap))


failed = ""
for cap in (1.0, 2.0):
    try:
        print(f"cap {cap}: O[0, 0, 0, 0] = {capped(cap)[0, 0, 0, 0]}, exact 1")
    except RuntimeError as error:
        failed = str(error).partition("\n")[0]
        print(f"cap {cap}: {failed}")
assert not failed
