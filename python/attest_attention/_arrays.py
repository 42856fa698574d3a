"""Arrays of any library on the host, with the name of their format."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from attest_attention import _dlpack, _library
from attest_attention._formats import AS_BITS, FORMATS, NAMES_ELSEWHERE, STORED, STORED_AS_BITS

_FLOATS = {"float64": "f64", "float32": "f32", "float16": "f16",
           **{name: short for short, name in NAMES_ELSEWHERE.items()}}
_CODES = {**{name: each.code for name, each in {**FORMATS, **STORED}.items()},
          "u8": _library.U8, "i32": _library.I32, "i64": _library.I64, "bits": _library.BITS}


@dataclasses.dataclass(frozen=True)
class Host:
    """An array on the host. That of a format that NumPy lacks holds the bits, as unsigned
    integers."""

    data: np.ndarray
    dtype: str  # of FORMATS or STORED; else NumPy's name

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.data.shape

    def transposed(self, *axes: int) -> Host:
        return Host(self.data.transpose(axes), self.dtype)

    def reshaped(self, *shape: int) -> Host:
        return Host(self.data.reshape(shape), self.dtype)


def format_name(dtype: Any) -> str:
    """As requests have it, of any library's dtype; of what they lack NumPy's name."""
    name = str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]
    return _FLOATS.get(name, name)


def module_of(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def host(value: Any, name: str, bits: Optional[str] = None, floats: bool = True) -> Host:
    """`value` on the host. With `bits`, integers of 16 bits are taken as that format; without
    `floats`, a list of floats is told nothing of formats, as it is none of what is wanted."""
    if isinstance(value, Host):
        return value
    if module_of(value) == "torch":
        return _of_torch(value, name)
    try:
        # NumPy looks at those of JAX, wherever they are, when they are computed.
        if module_of(value) not in ("numpy", "jax", "jaxlib") and _dlpack.lies_on_device(value):
            return Host(*_dlpack.read(value))
        data = np.asarray(value)
        if data.dtype == object and hasattr(value, "__dlpack__"):
            return Host(*_dlpack.read(value))
    except Exception as error:
        raise TypeError(f"{name}: {type(value).__name__} is no array: {error}") from error
    if data.dtype == object:
        raise TypeError(f"{name}: expected an array of numbers, got {type(value).__name__}")
    if floats and isinstance(value, (list, tuple)) and data.dtype == np.float64:
        raise TypeError(f"{name}: a {type(value).__name__} does not say in which format its numbers "
                        f"were computed: numpy.array(..., dtype=numpy.float32) does")
    dtype = _FLOATS.get(data.dtype.name, data.dtype.name)
    if bits and dtype in ("uint16", "int16"):
        dtype = bits
    if dtype in AS_BITS:
        return Host(data.view(np.uint16), dtype)
    if dtype in STORED_AS_BITS:
        return Host(data.view(np.uint8), dtype)
    return Host(data.astype(data.dtype.newbyteorder("="), copy=False), dtype)


def _unreadable(value: Any) -> str:
    """Of a torch.Tensor, which kind of it has no plain numbers; "" if it has."""
    if value.is_nested:
        return "a nested tensor (packed sequences are cu_seqlens=)"
    if str(value.layout) != "torch.strided":
        return f"a sparse tensor ({value.layout})"
    return "a meta tensor, which holds no numbers" if value.is_meta else ""


def _of_torch(value: Any, name: str) -> Host:
    import torch  # whoever has such an array has it

    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected an array of numbers, got {type(value).__name__}")
    if _unreadable(value):
        raise TypeError(f"{name}: expected a dense torch.Tensor, got {_unreadable(value)}")
    if value.is_cuda:  # it may be computed in another stream than that which the copy waits for
        torch.cuda.synchronize(value.device)
    try:
        there = value.detach().cpu()
        if there.dtype == torch.bfloat16:  # which NumPy lacks
            return Host(there.view(torch.int16).numpy().view(np.uint16), "bf16")
        if format_name(there.dtype) in STORED_AS_BITS:
            return Host(there.view(torch.uint8).numpy(), format_name(there.dtype))
        data = there.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:  # of a format of 8 bits, within vmap
        raise TypeError(f"{name}: expected a torch.Tensor that NumPy can read, got one of "
                        f"{format_name(value.dtype)}: {error}") from error
    return Host(data, _FLOATS.get(data.dtype.name, data.dtype.name))


def expect_shape(array: Host, shape: Sequence[int], name: str, what: str = "") -> None:
    if array.shape != tuple(shape):
        raise ValueError(f"{name}: expected shape {tuple(shape)}{what}, got {array.shape}")


def expect_dtype(array: Host, dtype: str, name: str, why: str = "") -> None:
    if array.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}{why}, got {array.dtype}")


def as_f32(value: Any, name: str, bits: Optional[str]) -> Host:
    """Numbers that f32 holds all of."""
    array = host(value, name, bits)
    if array.dtype == "bf16":
        wide = array.data.astype(np.uint32) << 16
        return Host(wide.view(np.float32), "f32")
    if array.dtype not in ("f32", "f16", "float8_e8m0fnu"):
        raise TypeError(f"{name}: expected f32 (or f16, bf16), got {array.dtype}")
    return Host(array.data.astype(np.float32), "f32")


def integers(value: Any, name: str, dtype: str) -> Host:
    array = host(value, name, floats=False)
    if array.data.dtype.kind not in "iu" or array.dtype in AS_BITS:
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    wanted = np.int32 if dtype == "i32" else np.int64
    limits = np.iinfo(wanted)
    if array.data.size and not (limits.min <= int(array.data.min()) and
                                int(array.data.max()) <= limits.max):
        raise ValueError(f"{name}: a number lies beyond {dtype}")
    return Host(array.data.astype(wanted), dtype)


def booleans(value: Any, name: str, hint: str = "") -> Host:
    array = host(value, name, floats=False)
    if array.data.dtype != np.bool_:
        raise TypeError(f"{name}: expected booleans{hint}, got {array.dtype}")
    return Host(array.data.view(np.uint8), "u8")


def aligned_right(array: Host, whole: Sequence[int], name: str) -> Host:
    """With four axes, each of `whole` or of size 1, as NumPy broadcasts."""
    if array.data.ndim > 4:
        raise ValueError(f"{name}: expected at most 4 axes, got shape {array.shape}")
    shape = (1,) * (4 - array.data.ndim) + array.shape
    if any(size not in (1, most) for size, most in zip(shape, whole)):
        raise ValueError(f"{name}: expected a shape that broadcasts to {tuple(whole)}, got "
                         f"{array.shape}")
    return array.reshaped(*shape)


class Keeper:
    """Makes native tensors, and keeps what they point to."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []

    def tensor(self, array: Host) -> _library.Tensor:
        """Of an array with four axes."""
        data, size = array.data, array.data.itemsize
        if any(stride < 0 or stride % size for stride in data.strides):
            data = np.ascontiguousarray(data)
        self._kept.append(data)
        strides = [stride // size for stride in data.strides]
        last = sum((n - 1) * stride for n, stride in zip(data.shape, strides))
        bytes_ = size * (last + 1) if data.size else 0
        return _library.tensor(data.ctypes.data, _CODES[array.dtype], data.shape, strides, bytes_)

    def bits(self, kept: np.ndarray) -> _library.Tensor:
        """Of booleans with four axes: one bit each, rows of whole bytes."""
        packed = np.packbits(kept, axis=-1, bitorder="little")
        self._kept.append(packed)
        row = 8 * packed.shape[3]
        heads, queries = packed.shape[1], packed.shape[2]
        strides = (heads * queries * row, queries * row, row, 1)
        return _library.tensor(packed.ctypes.data, _library.BITS, kept.shape, strides, packed.size)
