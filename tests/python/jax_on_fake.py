"""The kernel of JAX on the memory of fake_device.py."""
import fake_device
import jax_kernels
from attest_attention import _backends, _device, _home
from attest_attention import kernel
from attest_attention._backends import Jax


class OnFake(Jax):
    def __init__(self, device, dtypes):
        super().__init__("cpu", dtypes)


if _home.in_worker:
    _device.put(fake_device.Device(eager=True))
    _backends.LIBRARIES["jax"] = OnFake

jitted = kernel(dtypes=["f32", "bf16"], features=["causal", "gqa", "lse"], arrays="jax",
                device="cuda", backward="autograd",
                limits={"query_len": {"min": 1}, "key_len": {"min": 1},
                        "masks": ["full", "causal top_left"]})(jax_kernels.jitted.function)
