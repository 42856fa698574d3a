# cuDNN's attention in PyTorch: gradients are wrong where dO is expanded, as by a sum over queries.
# Not each time: so many forms are tried, on memory that was NaN before.
import itertools

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def gradients(backend, dtype, inputs, d_o):
    _ = [torch.full((1 << n,), float("nan"), device="cuda") for n in range(8, 24) for _ in "1234"]
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    with sdpa_kernel(backend):
        o = scaled_dot_product_attention(*leaves)
        return torch.autograd.grad(o, leaves, d_o.to(dtype).expand(o.shape))


wrong = []
for along, queries, channels in itertools.product(range(1, 8), (13, 21, 128), (24, 64, 128)):
    shape = (2, 4, queries, channels)
    inputs = [torch.randn(shape, device="cuda").half() for _ in range(3)]
    d_o = torch.randn([1 if along >> axis & 1 else shape[axis] for axis in range(4)],
                      device="cuda").half()
    exact = gradients(SDPBackend.MATH, torch.float64, inputs, d_o)
    found = gradients(SDPBackend.CUDNN_ATTENTION, torch.half, inputs, d_o)
    errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, exact)]
    if not max(errors) < 0.02 or any(error != error for error in errors):
        wrong.append(f"O of {shape}, dO of {tuple(d_o.shape)}: off by {errors} of the largest")
print(*wrong, f"{len(wrong)} of 63 wrong", sep="\n")
assert not wrong
