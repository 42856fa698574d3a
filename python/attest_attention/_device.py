"""Memory and streams of a device: those of CUDA, by its driver. Tests put another in its place."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence, Tuple

import numpy as np

DEFAULT_STREAM = 0


class DeviceError(Exception):
    """What the device's driver says, by its name."""


class Unavailable(DeviceError):
    """It cannot be opened, or has no memory left: by others, and for a while."""


class Device(Protocol):
    """Addresses and streams are whole numbers. Whatever takes a stream is only put into it."""

    kind: Tuple[int, int]  # type and number, as DLPack has them
    streams: Sequence[int]  # two that do not wait for the default one

    def allocate(self, size: int) -> int: ...

    def free(self, address: int, size: int) -> None: ...

    def pinned(self, size: int) -> np.ndarray:
        """Bytes of the host that copies may read and write while the host goes on."""

    def unpin(self, memory: np.ndarray) -> None: ...

    def copy_in(self, address: int, source: np.ndarray, stream: int) -> None: ...

    def copy_out(self, to: np.ndarray, address: int, stream: int) -> None: ...

    def fill(self, address: int, byte: int, size: int, stream: int) -> None: ...

    def hold(self, streams: Sequence[int], seconds: float) -> None:
        """What is put into these streams from here on begins together, after so long."""

    def mark(self, stream: int) -> Any:
        """A point in the stream, of which it can be told when it was passed."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks, once both are passed. They are of no use afterwards."""

    def synchronize(self) -> None:
        """Waits for everything on the device. Raises DeviceError for what went wrong on it."""

    def is_full(self) -> bool:
        """Whether so little of its memory is left that libraries may lack some. Raises DeviceError.
        """


_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE
_NO_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_LARGE = 1 << 26


def _rounded(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length() if size <= _LARGE else size


class Cuda:
    """The first device, in the context that libraries of arrays use too."""

    kind = (2, 0)

    def __init__(self) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"device='cuda' needs the driver of CUDA: {error}") from error
        self._is_open = False
        self._call("cuInit", ctypes.c_uint(0))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(self.kind[1]))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.streams: Sequence[int] = [self._stream() for _ in range(2)]
        self._gate = self._stream()
        self._opened = self._event()
        self._is_open = True
        self._kept: Dict[Tuple[str, int], List[int]] = {}
        # A function of C, for one of Python would wait for the interpreter's lock, which a kernel
        # may hold while it waits for the stream.
        self._sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._driver, name)(*arguments))
        if code:
            is_there = self._is_open and code != _NO_MEMORY
            error = DeviceError if is_there else Unavailable
            raise error(f"{name}: {self._told('cuGetErrorName', code)}, "
                        f"{self._told('cuGetErrorString', code)}")

    def _told(self, name: str, code: int) -> str:
        text = ctypes.c_char_p()
        getattr(self._driver, name)(ctypes.c_int(code), ctypes.byref(text))
        return text.value.decode() if text.value else f"error {code}"

    def _stream(self) -> int:
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return stream.value or 0

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event

    def allocate(self, size: int) -> int:
        def new(size: int) -> int:
            address = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            return address.value

        return self._of_kept("device", size, new)

    def free(self, address: int, size: int) -> None:
        if not self._keeps("device", address, size):
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def pinned(self, size: int) -> np.ndarray:
        def new(size: int) -> int:
            address = ctypes.c_void_p()
            self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size),
                       ctypes.c_uint(_PORTABLE))
            return address.value or 0

        return host_bytes(self._of_kept("pinned", size, new), size)

    def unpin(self, memory: np.ndarray) -> None:
        if not self._keeps("pinned", memory.ctypes.data, memory.nbytes):
            self._call("cuMemFreeHost", ctypes.c_void_p(memory.ctypes.data))

    def _of_kept(self, what: str, size: int, new: Callable[[int], int]) -> int:
        """Either kind takes long to get: what is not large is kept for the next call."""
        kept = self._kept.get((what, _rounded(size)))
        return kept.pop() if kept else new(_rounded(size))

    def _keeps(self, what: str, address: int, size: int) -> bool:
        if size <= _LARGE:
            self._kept.setdefault((what, _rounded(size)), []).append(address)
        return size <= _LARGE

    def copy_in(self, address: int, source: np.ndarray, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address),
                   ctypes.c_void_p(source.ctypes.data), ctypes.c_size_t(source.nbytes),
                   ctypes.c_void_p(stream))

    def copy_out(self, to: np.ndarray, address: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(to.ctypes.data),
                   ctypes.c_uint64(address), ctypes.c_size_t(to.nbytes), ctypes.c_void_p(stream))

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        self._call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(byte),
                   ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def hold(self, streams: Sequence[int], seconds: float) -> None:
        gate = ctypes.c_void_p(self._gate)
        self._call("cuLaunchHostFunc", gate, self._sleep, ctypes.c_void_p(int(1e6 * seconds)))
        self._call("cuEventRecord", self._opened, gate)
        for stream in streams:
            self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), self._opened,
                       ctypes.c_uint(0))

    def mark(self, stream: int) -> ctypes.c_void_p:
        event = self._event()
        self._call("cuEventRecord", event, ctypes.c_void_p(stream))
        return event

    def seconds(self, begin: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
        for event in (begin, end):
            self._call("cuEventDestroy_v2", event)
        return milliseconds.value / 1000

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def is_full(self) -> bool:
        free, all_of_it = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(all_of_it))
        return free.value < all_of_it.value / 16


def host_bytes(address: int, size: int) -> np.ndarray:
    """Memory of the host, as it is."""
    memory: Any = (ctypes.c_ubyte * size).from_address(address) if size else b""
    return np.ndarray(size, np.uint8, memory)


_devices: List[Device] = []


def device() -> Device:
    """Opened where it is first asked for."""
    if not _devices:
        _devices.append(Cuda())
    return _devices[0]


def put(other: Optional[Device]) -> None:
    """In place of CUDA's."""
    _devices[:] = [other] if other else []
