"""The tensors of a request: arrays on the memory that is shared with the harness."""
from __future__ import annotations

import mmap
from functools import cached_property
from typing import Any, Dict, List, Optional

import numpy as np

from attest_attention._arrays import host
from attest_attention._backends import Backend, Misuse
from attest_attention._formats import FORMATS

DTYPES = {**{name: each.numpy for name, each in FORMATS.items()},
          "i64": np.int64, "i32": np.int32, "u8": np.bool_}

# Of outputs the axes that a kernel sees: LSE and its like have no channels, dSink has heads alone.
AXES = {**dict.fromkeys(("o", "keep", "dq", "dk", "dv", "dbias"), slice(4)),
        **dict.fromkeys(("lse", "maximum", "sum"), slice(3)), "dsink": slice(1, 2)}

# Of Linux; Python has a name for it since 3.13. They may be larger than all memory.
_NO_RESERVE = 0x4000


class Memory:
    """Both memories, mapped whole. Inputs are mapped twice where a kernel might write to them: it
    gets pages of its own when it does, and that is told by the others."""

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self._input_fd, self._output_fd = input_fd, output_fd
        self.given = mmap.mmap(input_fd, 0, prot=mmap.PROT_READ)
        self.output = mmap.mmap(output_fd, 0)

    @cached_property
    def private(self) -> mmap.mmap:
        return mmap.mmap(self._input_fd, 0, mmap.MAP_PRIVATE | _NO_RESERVE,
                         mmap.PROT_READ | mmap.PROT_WRITE)

    def file(self, told: Dict[str, Any]) -> int:
        """That the tensor's memory is of."""
        return self._output_fd if told["memory"] == "output" else self._input_fd

    def bytes(self, told: Dict[str, Any]) -> np.ndarray:
        """All of that memory."""
        return np.frombuffer(self.output if told["memory"] == "output" else self.given, np.uint8)

    def view(self, told: Dict[str, Any], private: bool = False) -> np.ndarray:
        """With the strides that it has; of bf16 its bits, of bits whole bytes."""
        memory = self.output if told["memory"] == "output" else self.given
        if private:
            memory = self.private
        if told["dtype"] == "bits":  # rows of whole bytes
            shape = (*told["shape"][:3], -(-told["shape"][3] // 8))
            strides = [stride // 8 for stride in told["stride"][:3]] + [1]
            return np.ndarray(shape, np.uint8, memory, told["offset"], strides)
        dtype = np.dtype(DTYPES[told["dtype"]])
        strides = [dtype.itemsize * stride for stride in told["stride"]]
        return np.ndarray(told["shape"], dtype, memory, told["offset"], strides)


class HostTables:
    """Inputs by name, as NumPy has them."""

    def __init__(self, memory: Memory, told: Dict[str, Any]) -> None:
        self._memory, self._told = memory, told
        self.names = told.keys()

    def __call__(self, name: str) -> np.ndarray:
        return self._memory.view(self._told[name])


class Tensors:
    """Those of one request, as the kernel's library has them: on the memory that is shared."""

    stream: Optional[int] = None

    def __init__(self, memory: Memory, told: Dict[str, Any], backend: Backend) -> None:
        self._memory, self._told, self.backend = memory, told, backend
        self.numpy = HostTables(memory, told)
        self._lent: List[str] = []
        self._out: Dict[str, Any] = {}

    def outputs(self) -> Dict[str, Dict[str, Any]]:
        return {name: told for name, told in self._told.items() if told["memory"] == "output"}

    def array(self, name: str, axes: int = 4) -> Any:
        """An input with its first axes, those behind being of size 1; None if there is none."""
        told = self._told.get(name)
        if told is None:
            return None
        if told["dtype"] == "bits":
            keep = np.unpackbits(self.numpy(name), axis=3, count=told["shape"][3],
                                 bitorder="little")
            return self.backend.array(keep.view(np.bool_))
        return self._of_input(name, axes)

    def _of_input(self, name: str, axes: int) -> Any:
        private = self.backend.may_write
        if private:
            self._lent.append(name)
        return self._seen(name, self._memory.view(self._told[name], private), slice(axes))

    def _seen(self, name: str, view: np.ndarray, axes: slice) -> Any:
        taken = range(4)[axes]
        view = view[tuple(slice(None) if axis in taken else 0 for axis in range(4))]
        bf16 = self._told[name]["dtype"] == "bf16"
        return self.backend.floats(view) if bf16 else self.backend.array(view)

    def out(self, name: str) -> Any:
        """An output for the kernel to write to. Raises Misuse."""
        told = self.outputs().get(name)
        if told is None:
            raise Misuse(f"p.out: this call returns {', '.join(self.outputs())}, and no {name}")
        if told["dtype"] == "bits" or not self.backend.writable:
            raise Misuse(f"p.out: {name} is to be returned")
        if name not in self._out:
            self._out[name] = self._of_output(name)
        return self._out[name]

    def _of_output(self, name: str) -> Any:
        return self._seen(name, self._memory.view(self._told[name]), AXES[name])

    def is_written(self, name: str, value: Any) -> bool:
        """Whether the kernel wrote it where it belongs, and returned that or nothing."""
        return name in self._out and (value is None or value is self._out[name])

    def write(self, name: str, value: Any) -> None:
        """An output, as the kernel returned it."""
        told, data = self._told[name], host(value, name).data
        if told["dtype"] == "bits":
            data = np.packbits(data, axis=3, bitorder="little")
        to = self._memory.view(told)
        np.copyto(to, data.reshape(to.shape))

    def written_to(self) -> List[str]:
        """Inputs that the kernel has changed, as far as they were its own to change."""
        def bits(view: np.ndarray) -> np.ndarray:
            return view.view(np.dtype(f"u{view.itemsize}"))

        return [name for name in self._lent if not np.array_equal(
            bits(self._memory.view(self._told[name], True)), bits(self.numpy(name)))]
