"""Kernels of PyTorch for the CPU, on the memory of fake_device.py."""
import attest_attention as attest
import fake_device
from attest_attention import _home
from attest_attention._backends import Torch
from torch_kernels import FEATURES, formula


class OnFake(Torch):
    """As it is on a GPU, but that what is put into a stream is done at once."""

    def __init__(self, device, dtypes):
        super().__init__("cpu", dtypes)
        self.in_place, self.current = False, 0

    in_stream = fake_device.OnFake.in_stream


if _home.in_worker:
    fake_device.install(fake_device.Device(eager=True), OnFake)


def kernel(**declared):
    return attest.kernel(**{"dtypes": ["f32", "bf16"], "features": ["lse", "gqa", "strides"],
                            "arrays": "torch", "device": "cuda", "limits": {
                                "query_len": {"min": 1}, "key_len": {"min": 1}}, **declared})


by_autograd = kernel(features=[*FEATURES, "strides"], backward="autograd",
                     name="by_autograd")(formula)


@kernel()
def in_place(p, q, k, v):
    for to, value in zip((p.out("o"), p.out("lse")), formula(p, q, k, v)):
        to.copy_(value)


@kernel()
def writes_q(p, q, k, v):
    found = formula(p, q, k, v)
    q.mul_(2)
    return found


@kernel()
def leaves_one(p, q, k, v):
    o, lse = formula(p, q, k, v)
    p.out("o").flatten(0, 2)[1:] = o.flatten(0, 2)[1:]
    return None, lse
