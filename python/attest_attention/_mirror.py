"""The tensors of a call in device memory, with all that guards them on the host.

    | margin | region of q: slack, rows, slack | margin | margin | region of k ... | margin |

Each region, which is whole pages, lies there as it does in the memory that is shared with the
harness, from canary to canary: so addresses have the same alignment, and strides are kept. What
comes back of an output is judged by the harness, as on the host; inputs and margins are compared
here with what was sent.
"""
from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from attest_attention._device import Device
from attest_attention._dlpack import View
from attest_attention._formats import FORMATS
from attest_attention._others import OtherTables
from attest_attention._tensors import DTYPES, Memory

MARGIN = 4096
_POISON = 0xff  # NaN in every format
# A larger region may be nearly all holes, which are to stay such on the host (SPEC.md, chapter
# Worker): of it what is there crosses, and holes are compared a piece at a time.
_LARGE = 1 << 30
_AT_ONCE = 1 << 26


class Fault(NamedTuple):
    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Bytes that cross: a margin, or of a region what is there."""

    name: str
    begin: int  # from that of the region
    size: int
    place: int  # in device memory
    crossing: int  # among all that crosses
    margin: bool


class _Hole(NamedTuple):
    name: str
    place: int
    begin: int
    size: int


def _there(file: int, offset: int, size: int) -> Iterator[Tuple[int, int]]:
    """Begin and end of what is there of a region, in it."""
    if size <= _LARGE:
        yield 0, size
        return
    at, end = offset, offset + size
    while at < end:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # nothing more
            return
        stop = min(os.lseek(file, at, os.SEEK_HOLE), end)
        if at < stop:
            yield at - offset, stop - offset
        at = stop


def _numbers(data: np.ndarray, dtype: str) -> np.ndarray:
    """Of an output's bytes; what is none is taken a byte at a time."""
    if dtype in FORMATS:
        data = data.view(DTYPES[dtype])
    if dtype == "bf16":
        data = (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float64)


class Mirror:
    """Of one request. Everything is put into streams; what stands below `settle` needs none."""

    def __init__(self, device: Device, memory: Memory, told: Dict[str, Any],
                 other_tables: Optional[OtherTables] = None) -> None:
        self._device, self._memory, self._told = device, memory, told
        self._other_tables = other_tables
        self._pieces: List[_Piece] = []
        self._holes: List[_Hole] = []
        self._places: Dict[str, int] = {}
        self._size = self._crossing = 0
        for name, each in told.items():
            self._lay(name, each)
        self._pinned: List[np.ndarray] = []
        self._address = device.allocate(max(self._size, 1))
        self._sent = self._image(other=False)
        self._backs: List[np.ndarray] = []
        self._pinned_backs: List[np.ndarray] = []
        self._other: Optional[np.ndarray] = None

    def _lay(self, name: str, told: Dict[str, Any]) -> None:
        size, base = told["region_bytes"], self._size + MARGIN
        self._places[name] = base
        self._add(name, base, -MARGIN, MARGIN, True)
        at = 0
        for begin, end in _there(self._memory.file(told), told["region_offset"], size):
            if begin > at:
                self._holes.append(_Hole(name, base + at, at, begin - at))
            self._add(name, base, begin, end - begin, False)
            at = end
        if size > at:
            self._holes.append(_Hole(name, base + at, at, size - at))
        self._add(name, base, size, MARGIN, True)
        self._size = base + size + MARGIN

    def _add(self, name: str, base: int, begin: int, size: int, margin: bool) -> None:
        self._pieces.append(_Piece(name, begin, size, base + begin, self._crossing, margin))
        self._crossing += size

    def _pin(self) -> np.ndarray:
        self._pinned.append(self._device.pinned(self._crossing))
        return self._pinned[-1]

    def _image(self, other: bool) -> np.ndarray:
        """All that crosses."""
        image = self._pin()
        others = self._other_tables.others if other and self._other_tables else {}
        for piece in self._pieces:
            told = self._told[piece.name]
            poisoned = other and told["memory"] == "input" and told["dtype"] in FORMATS
            to = self._of(piece, image)
            to[...] = _POISON if piece.margin or poisoned else \
                self._memory.bytes(told)[told["region_offset"] + piece.begin:][:piece.size]
            if piece.name in others and not piece.margin:
                like = self._memory.view(told)
                np.copyto(np.ndarray(like.shape, like.dtype, to.data, self._start(piece.name),
                                     like.strides), others[piece.name])
        return image

    def _crossings(self) -> Iterator[Tuple[int, slice]]:
        """Where in device memory, and what: pieces that follow each other as one."""
        begin = 0
        for at, piece in enumerate(self._pieces):
            following = self._pieces[at + 1:at + 2]
            if not following or following[0].place != piece.place + piece.size:
                first = self._pieces[begin]
                yield (self._address + first.place,
                       slice(first.crossing, piece.crossing + piece.size))
                begin = at + 1

    def send(self, stream: int, other: bool = False) -> None:
        """Margins, inputs and poisoned outputs. Of the other inputs every number is NaN, and
        lengths and tables are others where there are any."""
        if other and self._other is None:
            self._other = self._image(other=True)
        image = self._other if other and self._other is not None else self._sent
        for hole in self._holes:
            self._device.fill(self._address + hole.place, 0, hole.size, stream)
        for address, part in self._crossings():
            self._device.copy_in(address, image[part], stream)

    def expect(self, results: int) -> None:
        """Gets memory for so many beforehand: that may wait for the device."""
        self._pinned_backs += [self._pin() for _ in range(results)]

    def fetch(self, stream: int) -> None:
        """All of it, each time anew."""
        self._backs.append(self._pinned_backs.pop() if self._pinned_backs else self._pin())
        for address, part in self._crossings():
            self._device.copy_out(self._backs[-1][part], address, stream)

    def view(self, name: str, axes: slice = slice(4)) -> View:
        """A tensor with these of its axes, the others being of size 1."""
        told = self._told[name]
        address = self._address + self._places[name] + told["offset"] - told["region_offset"]
        shape, beside = tuple(told["shape"][axes]), 1
        strides: List[int] = []
        for size, stride in reversed(list(zip(shape, told["stride"][axes]))):
            # A stride that is never used may be one that nothing could have. Kernels look at its
            # alignment all the same: it steps over the axes within, as in dense memory.
            strides.insert(0, stride if size != 1 else beside)
            beside = max(beside, strides[0] * size)
        return View(address, shape, tuple(strides), told["dtype"], self._device.kind)

    # ---- When the device is idle -------------------------------------------------------------

    def settle(self, alone: Optional[Mirror] = None) -> Optional[Fault]:
        """What calls did wrong; else outputs are where the harness reads them: of several calls,
        any of which is to be right, those that are furthest from what a call alone gave. Which are
        like most of the others tells nothing: most of them may be wrong in the same way."""
        faults = [*self._differences(), *self._strays()]
        for reason in ("guard", "input_mutated"):
            told = [fault.message for fault in faults if fault.reason == reason]
            if told:
                return Fault(reason, "; ".join(told))
        result = self._backs[-1]
        if alone is not None:  # of those that are as far the last
            right = alone._backs[-1]
            result = max(reversed(self._backs), key=lambda back: self._distance(back, right))
        for piece in self._returned():
            told_of = self._told[piece.name]
            to = self._memory.bytes(told_of)[told_of["region_offset"] + piece.begin:]
            to[:piece.size] = self._of(piece, result)
        return None

    def _returned(self) -> Iterator[_Piece]:
        return (piece for piece in self._pieces
                if self._told[piece.name]["memory"] == "output" and not piece.margin)

    def _distance(self, back: np.ndarray, right: np.ndarray) -> Tuple[int, float]:
        """How many elements of outputs, gaps among them, are not comparable with what they are to
        be, as NaN is; and how far the others are from that."""
        odd, far = 0, 0.0
        for piece in self._returned():
            a, b = (self._of(piece, image) for image in (back, right))
            if np.array_equal(a, b):
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                x, y = (_numbers(data, self._told[piece.name]["dtype"]) for data in (a, b))
                comparable = np.isfinite(x) & np.isfinite(y)
                far += float(np.sum(np.abs(x - y), where=comparable))
            alike = np.all((a == b).reshape(len(x), -1), 1)
            odd += int(np.count_nonzero(~comparable & ~alike))
        return odd, far

    def _of(self, piece: _Piece, image: np.ndarray) -> np.ndarray:
        return image[piece.crossing:piece.crossing + piece.size]

    def _differences(self) -> Iterator[Fault]:
        for piece in self._pieces:
            if self._told[piece.name]["memory"] == "output" and not piece.margin:
                continue
            sent = self._of(piece, self._sent)
            for back in self._backs:
                if not np.array_equal(sent, self._of(piece, back)):
                    changed = piece.begin + np.flatnonzero(sent != self._of(piece, back))
                    yield self._outside(piece, changed) if piece.margin else \
                        self._mutated(piece.name, int(changed[0]))
                    break

    def _start(self, name: str) -> int:
        told = self._told[name]
        return int(told["offset"] - told["region_offset"])

    def _outside(self, piece: _Piece, changed: np.ndarray) -> Fault:
        start = self._start(piece.name)
        if piece.begin < 0:
            return Fault("guard", f"wrote {start - int(changed[-1])} bytes before the start of "
                                  f"{piece.name}")
        end = start + self._told[piece.name]["bytes"]
        return Fault("guard", f"wrote {int(changed[0]) - end + 1} bytes behind the end of "
                              f"{piece.name}")

    def _mutated(self, name: str, at: int) -> Fault:
        return Fault("input_mutated", f"the kernel wrote to {name}, {at - self._start(name)} bytes "
                                      "from its start")

    def _strays(self) -> Iterator[Fault]:
        """What is not 0 in holes, which may be many GB."""
        if not self._holes:
            return
        self._pinned.append(self._device.pinned(_AT_ONCE))
        for hole in self._holes:
            for at in range(0, hole.size, _AT_ONCE):
                part = self._pinned[-1][:min(_AT_ONCE, hole.size - at)]
                self._device.copy_out(part, self._address + hole.place + at, 0)
                self._device.synchronize()
                if part.any():
                    begin = hole.begin + at + int(np.flatnonzero(part)[0])
                    if self._told[hole.name]["memory"] == "input":
                        yield self._mutated(hole.name, begin)
                    else:
                        yield Fault("guard", f"wrote between the rows of {hole.name}, "
                                             f"{begin - self._start(hole.name)} bytes from its "
                                             "start")
                    break

    def close(self) -> None:
        """Nothing of it is used from here on."""
        self._device.free(self._address, max(self._size, 1))
        for memory in self._pinned:
            self._device.unpin(memory)
