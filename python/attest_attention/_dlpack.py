"""Arrays that lie anywhere, as DLPack has them: given to libraries, and read from them."""
from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Optional, Tuple

import numpy as np

from attest_attention import _device
from attest_attention._formats import AS_BITS, FORMATS

# Of the names of requests: DLPack's code, and bits. Of formats of 8 bits, which few libraries take
# so, their bits.
_TYPES = {"f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i64": (0, 64),
          "i32": (0, 32), "u8": (6, 8), "e4m3": (1, 8), "e5m2": (1, 8),
          "int8": (0, 8)}
_NAMES = {**{each: name for name, each in _TYPES.items()}, (6, 8): "bool", (1, 8): "uint8",
          (0, 64): "int64", (0, 32): "int32", (0, 16): "int16", (0, 8): "int8",
          (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64"}
# How NumPy calls them.
_NUMPY = {name: np.dtype(each.numpy).name for name, each in FORMATS.items()}
_ON_HOST = (1, 3)  # memory of the host, pinned or not
_LEGACY = 1  # how both protocols call the default stream
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    """With the numbers behind it, so that one free() ends it all."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("numbers", ctypes.c_int64 * 8)]


_c = ctypes.CDLL(None)
_c.malloc.restype, _c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclasses.dataclass(frozen=True)
class View:
    """An array of at most four axes in memory that is somebody else's; strides in elements."""

    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: str  # as requests have it; u8 are booleans
    device: Tuple[int, int]

    @property
    def dense(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: Optional[int] = None) -> Any:
        """Nothing waits for anything: whoever uses the memory knows in which stream it is ready.
        What is returned is to be consumed: no memory is lost but its own otherwise."""
        managed = _Managed.from_address(_c.malloc(ctypes.sizeof(_Managed)))
        axes, base = len(self.shape), ctypes.addressof(managed) + _Managed.numbers.offset
        managed.numbers[:2 * axes] = [*self.shape, *self.strides]
        shape, strides = (ctypes.cast(base + 8 * first, ctypes.POINTER(ctypes.c_int64))
                          for first in (0, axes))
        code, bits = _TYPES[self.dtype]
        managed.tensor = _Tensor(self.address, *self.device, axes, code, bits, 1, shape, strides, 0)
        managed.context = None
        # Called by whoever lets go of it, at any time, on any thread: so no function of Python.
        managed.deleter = ctypes.cast(_c.free, ctypes.c_void_p).value
        return _new(ctypes.addressof(managed), _NAME, None)


def lies_on_device(value: Any) -> bool:
    """Whether NumPy cannot look at it."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) not in _ON_HOST
    return hasattr(value, "__cuda_array_interface__")


def read(value: Any) -> Tuple[np.ndarray, str]:
    """A copy on the host of what any library has anywhere, when it is ready; and its format, of
    bf16 with bits. Raises TypeError, BufferError, or what the library raises."""
    if not hasattr(value, "__dlpack__"):
        return _of_interface(value.__cuda_array_interface__)
    on_host = not lies_on_device(value)
    capsule = value.__dlpack__() if on_host else value.__dlpack__(stream=_LEGACY)
    tensor = _Managed.from_address(_pointer(capsule, _NAME)).tensor
    shape = tuple(tensor.shape[:tensor.ndim])
    name = _NAMES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise TypeError(f"no format is known for DLPack's type {tensor.code} of {tensor.bits} bits")
    dtype = np.dtype(_NUMPY.get(name, name))
    steps = tensor.strides[:tensor.ndim] if tensor.strides else None
    strides = None if steps is None else tuple(dtype.itemsize * step for step in steps)
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule was not consumed: that lets go of the array when it goes.
    return _copied(address, shape, strides, dtype, on_host), name


def _of_interface(told: Any) -> Tuple[np.ndarray, str]:
    """Of an object's __cuda_array_interface__; whatever its stream is, the copy waits for all."""
    dtype = np.dtype(told["typestr"])
    array = _copied(told["data"][0], tuple(told["shape"]), told.get("strides"), dtype, False)
    names = {name: short for short, name in _NUMPY.items() if short not in AS_BITS}
    return array, names.get(dtype.name, dtype.name)


def _copied(address: int, shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]],
            dtype: Any, on_host: bool) -> np.ndarray:
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is None:
        strides = np.empty(0, dtype).strides if not shape else tuple(
            dtype.itemsize * int(np.prod(shape[axis + 1:])) for axis in range(len(shape)))
    reach = [(size - 1) * stride for size, stride in zip(shape, strides)]
    before = -sum(step for step in reach if step < 0)
    span = before + sum(step for step in reach if step > 0) + dtype.itemsize
    if on_host:
        memory = _device.host_bytes(address - before, span).copy()
    else:
        device = _device.device()
        device.synchronize()  # whoever computed it, in whatever stream
        memory = np.empty(span, np.uint8)
        device.copy_out(memory, address - before, _device.DEFAULT_STREAM)
        device.synchronize()
    return np.array(np.ndarray(shape, dtype, memory, before, strides))
