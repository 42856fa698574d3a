# cuDNN's attention in PyTorch: gradients are wrong where dO is expanded, as by a sum over queries.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

shape = (2, 2, 21, 24)
at = torch.arange(2 * 2 * 21 * 24, device="cuda").reshape(shape)
inputs = [((m * at) % 17 - 8).half() / 8 for m in (3, 5, 7)]
weights = (torch.arange(2 * 2 * 24, device="cuda").reshape(2, 2, 24) % 5 - 2).half()


def gradients(backend, dtype):
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    with sdpa_kernel(backend):
        o = scaled_dot_product_attention(*leaves)
        return torch.autograd.grad((o.sum(2) * weights.to(dtype)).sum(), leaves)


exact = gradients(SDPBackend.MATH, torch.float64)
wrong = []
for name, found, right in zip(("dQ", "dK", "dV"), gradients(SDPBackend.CUDNN_ATTENTION, torch.half),
                              exact):
    error = ((found - right).abs().max() / right.abs().max()).item()
    print(f"{name}: off by {error:.3g} of the largest, exact at [0, 0, 0, 0] "
          f"{right[0, 0, 0, 0].item():.6g}, found {found[0, 0, 0, 0].item():.6g}")
    wrong += [name] if not error < 0.02 else []
assert not wrong
