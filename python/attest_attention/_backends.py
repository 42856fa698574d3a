"""The libraries whose arrays a kernel takes. Each is imported where a kernel says so."""
from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from attest_attention._arrays import module_of

# Of arrays by name, the outputs in order.
Differentiable = Callable[[Dict[str, Any]], Sequence[Any]]


class Misuse(Exception):
    """What a kernel returns is not what was asked for."""


class Backend:
    """NumPy. Arrays are views that cannot be written to."""

    modules: Tuple[str, ...] = ("numpy",)
    array_type = "numpy.ndarray"
    may_write = False  # whether arrays are made of memory that a kernel could write to

    def __init__(self, device: str, dtypes: Sequence[str]) -> None:
        self.device = device
        if "bf16" in dtypes:
            self._bf16 = np.dtype(_ml_dtypes().bfloat16)

    def array(self, view: np.ndarray) -> Any:
        return view

    def floats(self, bits: np.ndarray) -> Any:
        """Of bits of bf16."""
        return bits.view(self._bf16)

    def use_threads(self, threads: int) -> None:
        """NumPy decides by itself."""

    def expect(self, value: Any, name: str) -> None:
        """That it is an array of this library, on the device. Raises Misuse."""
        if module_of(value) not in self.modules or not hasattr(value, "shape"):
            raise Misuse(f"{name} is a {type(value).__name__}, expected a {self.array_type}")
        if self.device_of(value) != self.device:
            raise Misuse(f"{name} is on {self.device_of(value)}, expected {self.device}")

    def device_of(self, value: Any) -> str:
        return "cpu"

    def gradients(self, function: Differentiable, arrays: Dict[str, Any],
                  d_outputs: List[Any]) -> Dict[str, Any]:
        raise NotImplementedError("NumPy has no gradients")


class Torch(Backend):
    modules = ("torch",)
    array_type = "torch.Tensor"

    def __init__(self, device: str, dtypes: Sequence[str]) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch, self.device = torch, device
        self.may_write = device == "cpu"
        self._threads = 0

    def array(self, view: np.ndarray) -> Any:
        return self._torch.from_numpy(view) if self.device == "cpu" else self._on_device(view)

    def _on_device(self, view: np.ndarray) -> Any:
        """With the strides that it has here, and what lies between uninitialised."""
        steps = [stride // view.itemsize for stride in view.strides]
        span = 1 + sum((n - 1) * abs(step) for n, step in zip(view.shape, steps)) \
            if view.size else 0
        # Where a stride is 0 all elements are the same one.
        first = tuple(slice(0, 1) if step == 0 else slice(None) for step in steps)
        shown = self._torch.from_numpy(np.array(view[first]))
        memory = self._torch.empty(span, dtype=shown.dtype, device=self.device)
        memory.as_strided(shown.shape, steps).copy_(shown)
        return memory.as_strided(view.shape, steps)

    def floats(self, bits: np.ndarray) -> Any:
        return self.array(bits.view(np.int16)).view(self._torch.bfloat16)

    def use_threads(self, threads: int) -> None:
        if threads != self._threads:
            self._torch.set_num_threads(threads)
            self._threads = threads

    def device_of(self, value: Any) -> str:
        return str(value.device.type)

    def gradients(self, function: Differentiable, arrays: Dict[str, Any],
                  d_outputs: List[Any]) -> Dict[str, Any]:
        leaves = {name: array.detach().requires_grad_() for name, array in arrays.items()}
        asked = [(y, dy.reshape(y.shape)) for y, dy in zip(function(leaves), d_outputs)
                 if dy is not None]
        found = self._torch.autograd.grad([y for y, _ in asked], list(leaves.values()),
                                          [dy for _, dy in asked], allow_unused=True)
        return {name: self._torch.zeros_like(leaf) if gradient is None else gradient
                for (name, leaf), gradient in zip(leaves.items(), found)}


class Jax(Backend):
    modules = ("jax", "jaxlib")
    array_type = "jax.Array"

    def __init__(self, device: str, dtypes: Sequence[str]) -> None:
        jax: Any = importlib.import_module("jax")
        if "f64" in dtypes:
            jax.config.update("jax_enable_x64", True)
        self._jax, self.device = jax, device
        self._place = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        self._bf16 = np.dtype(_ml_dtypes().bfloat16)

    def array(self, view: np.ndarray) -> Any:
        if view.dtype == np.int64:  # lengths, which JAX would cut itself, with a warning
            view = view.astype(np.int32)
        return self._jax.device_put(view, self._place)

    def floats(self, bits: np.ndarray) -> Any:
        return self.array(bits.view(self._bf16))

    def device_of(self, value: Any) -> str:
        platform = next(iter(value.devices())).platform
        return "cuda" if platform == "gpu" else str(platform)

    def gradients(self, function: Differentiable, arrays: Dict[str, Any],
                  d_outputs: List[Any]) -> Dict[str, Any]:
        outputs, pull = self._jax.vjp(lambda leaves: tuple(function(leaves)), arrays)
        zeros = self._jax.numpy.zeros_like
        (found,) = pull(tuple(zeros(y) if dy is None else dy.reshape(y.shape)
                              for y, dy in zip(outputs, d_outputs)))
        return dict(found)


def _ml_dtypes() -> Any:
    try:
        return importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise Misuse("bf16 needs ml_dtypes beside NumPy: pip install ml_dtypes") from error


def backend(arrays: str, device: str, dtypes: Sequence[str]) -> Backend:
    return {"numpy": Backend, "torch": Torch, "jax": Jax}[arrays](device, dtypes)
