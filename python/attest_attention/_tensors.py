"""The tensors of a request: arrays on the memory that is shared with the harness."""
from __future__ import annotations

import mmap
from functools import cached_property
from typing import Any, Dict, List

import numpy as np

from attest_attention._arrays import Host
from attest_attention._backends import Backend

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16,
          "i64": np.int64, "i32": np.int32, "u8": np.bool_}


# Of Linux; Python has a name for it since 3.13. They may be larger than all memory.
_NO_RESERVE = 0x4000


class Memory:
    """Both memories, mapped whole. Inputs are mapped twice where a kernel might write to them: it
    gets pages of its own when it does, and that is told by the others."""

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self._input_fd = input_fd
        self.given = mmap.mmap(input_fd, 0, prot=mmap.PROT_READ)
        self.output = mmap.mmap(output_fd, 0)

    @cached_property
    def private(self) -> mmap.mmap:
        return mmap.mmap(self._input_fd, 0, mmap.MAP_PRIVATE | _NO_RESERVE,
                         mmap.PROT_READ | mmap.PROT_WRITE)

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
    """Those of one request, as the kernel's library has them."""

    def __init__(self, memory: Memory, told: Dict[str, Any], backend: Backend) -> None:
        self._memory, self._told, self.backend = memory, told, backend
        self.numpy = HostTables(memory, told)
        self._lent: List[str] = []

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
        private = self.backend.may_write
        if private:
            self._lent.append(name)
        view = self._memory.view(told, private)
        if axes < 4:
            view = view[(slice(None),) * axes + (0,) * (4 - axes)]
        return self.backend.floats(view) if told["dtype"] == "bf16" else self.backend.array(view)

    def write(self, name: str, value: Host) -> None:
        """An output, in the form that the kernel returned it in."""
        told = self._told[name]
        data = np.packbits(value.data, axis=3, bitorder="little") if told["dtype"] == "bits" \
            else value.data
        to = self._memory.view(told)
        np.copyto(to, data.reshape(to.shape))

    def written_to(self) -> List[str]:
        """Inputs that the kernel has changed, as far as they were its own to change."""
        def bits(view: np.ndarray) -> np.ndarray:
            return view.view(np.dtype(f"u{view.itemsize}"))

        return [name for name in self._lent if not np.array_equal(
            bits(self._memory.view(self._told[name], True)), bits(self.numpy(name)))]
