# cuDNN's attention in PyTorch keeps the graph of its backward pass under a key without the strides of
# dO: where these differ from those of the first call of the shape, gradients are wrong.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

B, H, S, D = 2, 4, 128, 64


def gradients(backend, dtype, inputs, d_o):
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    with sdpa_kernel(backend):
        o = scaled_dot_product_attention(*leaves)
        return torch.autograd.grad(o, leaves, d_o.to(dtype).expand(o.shape))


inputs = [torch.randn(B, H, S, D, device="cuda").half() for _ in range(3)]
wrong = []
for name, shape in {"dense": (B, H, S, D), "expanded along the batch": (1, H, S, D),
                    "as of a sum over heads": (B, 1, S, D), "over queries": (B, H, 1, D),
                    "dense again": (B, H, S, D), "of BSHD": (B, S, H, D)}.items():
    d_o = torch.randn(shape, device="cuda").half()
    d_o = d_o.transpose(1, 2) if name == "of BSHD" else d_o
    exact = gradients(SDPBackend.MATH, torch.float64, inputs, d_o)
    found = gradients(SDPBackend.CUDNN_ATTENTION, torch.half, inputs, d_o)
    errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, exact)]
    wrong += [] if max(errors) < 0.02 else [name]  # NaN is not
    print(f"dO {name}: dQ, dK, dV off by {errors} of the largest", flush=True)
assert not wrong, f"wrong: {wrong}"
