"""The pages of one tensor for one call: mapped alone, between pages that nobody may touch."""
from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from typing import Any, Iterator, Optional, Tuple

import numpy as np

# Of Linux; Python has no name for some, or has it since 3.13.
_PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 0x2, 0x10, 0x20, 0x4000
_POPULATE_READ = 22
_UNTOUCHABLE = 0  # PROT_NONE
_GUARD = 1 << 20  # bytes on either side
_PIECE = 1 << 18  # bytes, and pages, that are looked at at a time

_system: Any = ctypes.CDLL(None, use_errno=True)
_system.mmap.restype = ctypes.c_void_p
_system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                         ctypes.c_long]
_system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_system.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(*arguments: Optional[int]) -> int:
    address: int = _system.mmap(*arguments)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    return address


def _opened(path: str) -> Optional[int]:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


_pagemap = _opened("/proc/self/pagemap")


class Pages:
    """`size` bytes of a file from `offset` on, both in whole pages. What is `shared` is written to
    the file; else the process gets a page of its own where it writes, and only there."""

    def __init__(self, file: int, offset: int, size: int, shared: bool) -> None:
        self._file, self._offset, self._size = file, offset, size
        self._whole = size + 2 * _GUARD
        self._reserved = _map(None, self._whole, _UNTOUCHABLE,
                              _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1, 0)
        self._begin = self._reserved + _GUARD
        _map(self._begin, size, mmap.PROT_READ | mmap.PROT_WRITE,
             _FIXED | (mmap.MAP_SHARED if shared else _PRIVATE | _NO_RESERVE), file, offset)
        self.buffer = (ctypes.c_char * size).from_address(self._begin)

    def touch(self) -> None:
        """Has the system map all of it now, as far as it can, and copy none."""
        _system.madvise(self._begin, self._size, _POPULATE_READ)

    def close(self) -> None:
        """Nobody may touch the buffer any more."""
        _system.munmap(self._reserved, self._whole)
        self._whole = 0  # others may be there next

    def changed(self) -> Optional[int]:
        """Where the first byte lies, counted from the first, that is not as it is in the file."""
        for begin, end in self._own():
            for at in range(begin, end, _PIECE):
                count = min(_PIECE, end - at)
                mine = ctypes.string_at(self._begin + at, count)
                theirs = os.pread(self._file, count, self._offset + at)
                if mine != theirs:
                    return at + next(n for n in range(count) if mine[n] != theirs[n])
        return None

    def _own(self) -> Iterator[Tuple[int, int]]:
        """Where what may differ begins and ends: pages of the process's own, where the system tells
        which are; else all."""
        if _pagemap is None:
            yield 0, self._size
            return
        first, count = self._begin // mmap.PAGESIZE, self._size // mmap.PAGESIZE
        for page in range(0, count, _PIECE):
            told = os.pread(_pagemap, 8 * min(_PIECE, count - page), 8 * (first + page))
            entries = np.frombuffer(told, np.uint64)
            # proc_pid_pagemap(5): bits 63 and 62, in memory or swapped out; 61, of a file.
            own = (entries >> np.uint64(61) & np.uint64(1) == 0) & (entries >> np.uint64(62) != 0)
            for n in np.flatnonzero(own):
                yield (page + int(n)) * mmap.PAGESIZE, (page + int(n) + 1) * mmap.PAGESIZE
