"""The libraries whose arrays a kernel takes. Each is imported where a kernel says so."""
from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any, Callable, ContextManager, Dict, List, Sequence, Tuple

import numpy as np

from attest_attention._arrays import format_name, module_of
from attest_attention._dlpack import View
from attest_attention._formats import NAMES_ELSEWHERE, STORED, STORED_AS_BITS

_MUCH = 1 << 30  # bytes
_NOT_OPENED = "CUDA call failed lazily at initialization"  # which PyTorch tries once
_POISONED = [1 << n for n in range(9, 25)]  # bytes

# Of arrays by name, the outputs in order.
Differentiable = Callable[[Dict[str, Any]], Sequence[Any]]


class Misuse(Exception):
    """What a kernel returns is not what was asked for."""


class Backend:
    """NumPy. Arrays are views that cannot be written to."""

    modules: Tuple[str, ...] = ("numpy",)
    array_type = "numpy.ndarray"
    in_place = True  # whether arrays for the host are the memory itself
    may_write = False  # whether such arrays of inputs can be written to
    writable = True  # whether its arrays can be written to at all
    in_order = True  # whether what it does on a device is done in the stream that it is told

    def __init__(self, device: str, dtypes: Sequence[str]) -> None:
        self.device = device
        if "bf16" in dtypes:
            _ml_dtypes("bf16")  # or it is said before anything is asked

    def array(self, view: np.ndarray) -> Any:
        return view

    def floats(self, bits: np.ndarray, dtype: str) -> Any:
        """Of bits of a format that NumPy lacks."""
        return bits.view(_ml_dtypes(dtype))

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

    def form(self, value: Any) -> Tuple[Tuple[int, ...], str]:
        """Shape and format, the latter as requests name it."""
        return tuple(value.shape), format_name(value.dtype)

    def gradients(self, function: Differentiable, arrays: Dict[str, Any],
                  d_outputs: List[Any]) -> Dict[str, Any]:
        raise NotImplementedError("NumPy has no gradients")

    # ---- On a device -------------------------------------------------------------------------

    def lacks_device(self, error: BaseException) -> bool:
        """Whether it says that the device had no memory left, or could not be opened."""
        return False

    def is_spent(self, error: BaseException) -> bool:
        """Whether it can compute no more in this process, though the device can: a capture that
        failed stays with its stream, and each later call fails by it."""
        return "cudaErrorStreamCapture" in str(error)

    def give_back(self) -> None:
        """Memory of the device that it keeps for later, where that is much: others want it."""

    def lend(self, view: View) -> Any:
        """An array on that memory; None if the library has no such arrays."""
        raise NotImplementedError("NumPy has no device")

    def in_stream(self, stream: int) -> ContextManager[Any]:
        """Within it, what is not told a stream goes into this one."""
        return contextlib.nullcontext()

    def copy(self, to: Any, value: Any) -> None:
        """Put into the stream."""
        raise NotImplementedError("NumPy has no device")

    def ready(self, value: Any) -> None:
        """Waits until it is computed, where that is in a stream of the library's own."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Memory that a kernel gets for outputs of so many bytes holds NaN, as far as may be."""

    def captured(self, stream: int, call: Callable[[], None]) -> Callable[[], None]:
        """What puts into the stream all that the call put into it."""
        raise NotImplementedError("NumPy has no device")


class Torch(Backend):
    modules = ("torch",)
    array_type = "torch.Tensor"

    def __init__(self, device: str, dtypes: Sequence[str]) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch, self.device = torch, device
        self.in_place = self.may_write = device == "cpu"
        self._threads = 0

    def array(self, view: np.ndarray) -> Any:
        array = self._torch.from_numpy(view)
        return array if self.device == "cpu" else array.to(self.device)

    def floats(self, bits: np.ndarray, dtype: str) -> Any:
        numbers = bits.view(np.int16) if dtype == "bf16" else bits
        return self.array(numbers).view(getattr(self._torch, NAMES_ELSEWHERE[dtype]))

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

    def lacks_device(self, error: BaseException) -> bool:
        # Beside its own allocator's, as the driver has it: of a context, a module, a stream.
        return isinstance(error, self._torch.cuda.OutOfMemoryError) or any(
            text in str(error) for text in ("CUDA error: out of memory",
                                            "CUDA driver error: out of memory",
                                            "is/are busy or unavailable", _NOT_OPENED))

    def is_spent(self, error: BaseException) -> bool:
        return _NOT_OPENED in str(error) or super().is_spent(error)

    def give_back(self) -> None:
        if self._torch.cuda.memory_reserved() > _MUCH:
            self._torch.cuda.empty_cache()

    def lend(self, view: View) -> Any:
        array = self._torch.utils.dlpack.from_dlpack(view.__dlpack__())
        if view.dtype in STORED_AS_BITS:
            return array.view(getattr(self._torch, NAMES_ELSEWHERE[view.dtype]))
        return array

    def in_stream(self, stream: int) -> ContextManager[Any]:
        cuda = self._torch.cuda
        own = cuda.ExternalStream(stream) if stream else cuda.default_stream()
        context: ContextManager[Any] = cuda.stream(own)
        return context

    def copy(self, to: Any, value: Any) -> None:
        to.copy_(value.detach().reshape(to.shape))

    def poison(self, sizes: Sequence[int]) -> None:
        # Its allocator hands out what was freed last and fits best. Smaller blocks are cut from
        # larger ones, which are therefore filled too: workspaces are of any size.
        blocks = [self._torch.empty(size, dtype=self._torch.uint8, device=self.device)
                  for size in (*(4 * tuple(sizes)), *_POISONED)]
        for block in blocks:
            block.fill_(0xff)

    def captured(self, stream: int, call: Callable[[], None]) -> Callable[[], None]:
        cuda, failed = self._torch.cuda, []
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph, stream=cuda.ExternalStream(stream),
                            capture_error_mode="thread_local"):
                try:
                    call()
                except Exception as error:  # to be told in place of what follows from it
                    failed.append(error)
        except Exception:
            if not failed:
                raise
        if failed:
            raise failed[0]
        replay: Callable[[], None] = graph.replay
        return replay


class Jax(Backend):
    modules = ("jax", "jaxlib")
    array_type = "jax.Array"
    in_place = False
    writable = False
    in_order = False

    def __init__(self, device: str, dtypes: Sequence[str]) -> None:
        # It would take most of a GPU's memory, where tensors and other workers lie too; and it looks
        # for a GPU for kernels on the CPU as well.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        jax: Any = importlib.import_module("jax")
        if "f64" in dtypes:
            jax.config.update("jax_enable_x64", True)
        self._jax, self.device = jax, device
        self._place = jax.devices("gpu" if device == "cuda" else "cpu")[0]

    def array(self, view: np.ndarray) -> Any:
        if view.dtype == np.int64:  # lengths, which JAX would cut itself, with a warning
            view = view.astype(np.int32)
        return self._jax.device_put(view, self._place)

    def floats(self, bits: np.ndarray, dtype: str) -> Any:
        return self.array(bits.view(_ml_dtypes(dtype)))

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

    def lacks_device(self, error: BaseException) -> bool:
        return "RESOURCE_EXHAUSTED" in str(error)

    def lend(self, view: View) -> Any:
        if view.dtype == "i64" or view.dtype in STORED or not view.dense or 0 in view.shape:
            return None
        return self._jax.dlpack.from_dlpack(view)

    def ready(self, value: Any) -> None:
        self._jax.block_until_ready(value)


def _ml_dtypes(dtype: str) -> Any:
    """NumPy's dtype of a format that it lacks."""
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), NAMES_ELSEWHERE[dtype]))
    except ImportError as error:
        raise Misuse(f"{dtype} needs ml_dtypes beside NumPy: pip install ml_dtypes") from error


LIBRARIES = {"numpy": Backend, "torch": Torch, "jax": Jax}


def backend(arrays: str, device: str, dtypes: Sequence[str]) -> Backend:
    return LIBRARIES[arrays](device, dtypes)
