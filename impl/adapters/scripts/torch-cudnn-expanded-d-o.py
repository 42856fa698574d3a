# cuDNN's attention in PyTorch: gradients are wrong where dO is expanded, as by a sum over queries.
# Not each time: memory that was NaN before is used again for each form.
import itertools

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def numbers(shape, times):
    at = torch.arange(torch.Size(shape).numel(), device="cuda").reshape(shape)
    return ((times * at) % 17 - 8).half() / 8


def fill_free_memory_with_nan():
    for size in (1 << 12, 1 << 16, 1 << 22):
        _ = [torch.full((size,), float("nan"), device="cuda") for _ in range(16)]


def gradients(backend, dtype, inputs, d_o):
    fill_free_memory_with_nan()
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    with sdpa_kernel(backend):
        o = scaled_dot_product_attention(*leaves)
        return torch.autograd.grad(o, leaves, d_o.to(dtype).expand(o.shape))


forms = [axes for n in (1, 2, 3) for axes in itertools.combinations(range(3), n)]
wrong, tried = [], 0
for axes, queries, channels in itertools.product(forms, (13, 21, 128, 256), (24, 64, 128)):
    shape = (2, 4, queries, channels)
    inputs = [numbers(shape, times) for times in (3, 5, 7)]
    d_o = numbers([1 if axis in axes else size for axis, size in enumerate(shape)], 11)
    exact = gradients(SDPBackend.MATH, torch.float64, inputs, d_o)
    found = gradients(SDPBackend.CUDNN_ATTENTION, torch.half, inputs, d_o)
    tried += 1
    for name, a, b in zip(("dQ", "dK", "dV"), found, exact):
        error = ((a - b).abs().max() / b.abs().max()).item()
        if not error < 0.02:
            wrong.append(f"{name} of queries={queries}, channels={channels}, dO expanded along "
                         f"{['batch, heads, queries'.split(', ')[axis] for axis in axes]}: off by "
                         f"{error:.3g} of the largest")
print(*wrong[:12], f"{len(wrong)} gradients wrong, of {tried} forms", sep="\n")
assert not wrong
