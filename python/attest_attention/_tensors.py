"""The tensors of a request: arrays on the memory that is shared with the harness."""
from __future__ import annotations

import mmap
from typing import Any, Dict, Optional

import numpy as np

from attest_attention._arrays import host
from attest_attention._backends import Backend, Misuse
from attest_attention._formats import FORMATS, NAMES_ELSEWHERE, STORED
from attest_attention._pages import Pages

DTYPES = {**{name: each.numpy for name, each in {**FORMATS, **STORED}.items()},
          "i64": np.int64, "i32": np.int32, "u8": np.bool_}

# Of outputs the axes that a kernel sees: LSE and its like have no channels, dSink has heads alone.
AXES = {**dict.fromkeys(("o", "keep", "dq", "dk", "dv", "dbias"), slice(4)),
        **dict.fromkeys(("lse", "maximum", "sum"), slice(3)), "dsink": slice(1, 2)}


def _view(told: Dict[str, Any], buffer: Any, offset: int) -> np.ndarray:
    """The tensor in `buffer`, with the strides that it has; of formats that NumPy lacks their bits,
    of bits whole bytes."""
    if told["dtype"] == "bits":  # rows of whole bytes
        shape = (*told["shape"][:3], -(-told["shape"][3] // 8))
        strides = [stride // 8 for stride in told["stride"][:3]] + [1]
        return np.ndarray(shape, np.uint8, buffer, offset, strides)
    dtype = np.dtype(DTYPES[told["dtype"]])
    strides = [dtype.itemsize * stride for stride in told["stride"]]
    return np.ndarray(told["shape"], dtype, buffer, offset, strides)


class Memory:
    """Both memories, mapped whole, for this package to read and write."""

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self._input_fd, self._output_fd = input_fd, output_fd
        self.given = mmap.mmap(input_fd, 0, prot=mmap.PROT_READ)
        self.output = mmap.mmap(output_fd, 0)

    def file(self, told: Dict[str, Any]) -> int:
        """That the tensor's memory is of."""
        return self._output_fd if told["memory"] == "output" else self._input_fd

    def bytes(self, told: Dict[str, Any]) -> np.ndarray:
        """All of that memory."""
        return np.frombuffer(self.output if told["memory"] == "output" else self.given, np.uint8)

    def view(self, told: Dict[str, Any]) -> np.ndarray:
        memory = self.output if told["memory"] == "output" else self.given
        return _view(told, memory, told["offset"])

    def pages(self, told: Dict[str, Any]) -> Pages:
        """Those of the tensor, for a kernel. To an output it writes; of an input it gets a copy of
        what it writes to, and that is told by the file."""
        return Pages(self.file(told), told["region_offset"], told["region_bytes"],
                     shared=told["memory"] == "output")


class HostTables:
    """Inputs by name, as NumPy has them."""

    def __init__(self, memory: Memory, told: Dict[str, Any]) -> None:
        self._memory, self._told = memory, told
        self.names = told.keys()

    def __call__(self, name: str) -> np.ndarray:
        return self._memory.view(self._told[name])


class Tensors:
    """Those of one request, as the kernel's library has them: on the memory that is shared, until
    it is closed."""

    stream: Optional[int] = None

    def __init__(self, memory: Memory, told: Dict[str, Any], backend: Backend) -> None:
        self._memory, self._told, self.backend = memory, told, backend
        self.numpy = HostTables(memory, told)
        self._lent: Dict[str, Pages] = {}
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
        return self._seen(name, self._lend(name), slice(axes))

    def map_inputs(self) -> None:
        """All of them, before anybody reads what they hold."""
        for name, told in self._told.items():
            if told["memory"] == "input" and told["dtype"] in DTYPES and self.backend.in_place:
                self._lend(name)
                self._lent[name].touch()

    def _lend(self, name: str) -> np.ndarray:
        told = self._told[name]
        if not self.backend.in_place:
            return self._memory.view(told)
        if name not in self._lent:
            self._lent[name] = self._memory.pages(told)
        view = _view(told, self._lent[name].buffer, told["offset"] - told["region_offset"])
        view.flags.writeable = told["memory"] == "output" or self.backend.may_write
        return view

    def _seen(self, name: str, view: np.ndarray, axes: slice) -> Any:
        taken = range(4)[axes]
        view = view[tuple(slice(None) if axis in taken else 0 for axis in range(4))]
        dtype = self._told[name]["dtype"]
        if dtype in NAMES_ELSEWHERE:
            return self.backend.floats(view, dtype)
        return self.backend.array(view)

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
        return self._seen(name, self._lend(name), AXES[name])

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

    def written_to(self) -> str:
        """The first input that the kernel has changed, or memory beside it; empty if none."""
        for name, pages in self._lent.items():
            told = self._told[name]
            changed = pages.changed() if told["memory"] == "input" else None
            if changed is not None:
                at = told["region_offset"] + changed - told["offset"]
                return f"{name}, {at} bytes from its start"
        return ""

    def close(self) -> None:
        for pages in self._lent.values():
            pages.close()
