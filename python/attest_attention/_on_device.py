"""A call of a kernel on a device: as any other, or in one of the modes that it declares (DEV-1 to
DEV-3)."""
from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from attest_attention import _device
from attest_attention._backends import Backend
from attest_attention._device import DEFAULT_STREAM, Device, DeviceError, NoDeviceMemory
from attest_attention._given import Problem
from attest_attention._mirror import Fault, Mirror
from attest_attention._tensors import AXES, DTYPES, Memory, Tensors

# For how long streams are held while calls are put into them; then longer, and then no more: a
# kernel that waits for its stream is never in time.
_HOLDS = (0.02, 0.16)
# Calls in each of two streams, so many that they meet.
_BESIDE = 12

# Runs the kernel on a problem's tensors, and stores what it returns.
Pass = Callable[[Problem, Tensors], None]


class DeviceTensors(Tensors):
    """Those of one request: on a mirror."""

    def __init__(self, memory: Memory, told: Dict[str, Any], backend: Backend, mirror: Mirror,
                 stream: int) -> None:
        super().__init__(memory, told, backend)
        self._mirror = mirror
        self.stream = stream if backend.in_order else None
        self._arrays: Dict[Tuple[str, int], Any] = {}
        self._late: Dict[str, Any] = {}

    def array(self, name: str, axes: int = 4) -> Any:
        """Made once: what has to be copied to the device is not while a graph is captured."""
        if (name, axes) not in self._arrays:
            self._arrays[name, axes] = super().array(name, axes)
        return self._arrays[name, axes]

    def _of_input(self, name: str, axes: int) -> Any:
        lent = self.backend.lend(self._mirror.view(name, slice(axes)))
        return lent if lent is not None else super()._of_input(name, axes)

    def _of_output(self, name: str) -> Any:
        return self.backend.lend(self._mirror.view(name, AXES[name]))

    def write(self, name: str, value: Any) -> None:
        if self._told[name]["dtype"] != "bits" and self.backend.writable:
            self.backend.copy(self._of_output(name), value)
            return
        self.backend.ready(value)
        self._late[name] = value

    def finish(self) -> None:
        """When the device is idle, and what came back of it lies on the host."""
        for name, value in self._late.items():
            super().write(name, value)


class _Call:
    """The kernel on memory of its own, in a stream."""

    def __init__(self, device: Device, memory: Memory, asked: Dict[str, Any], backend: Backend,
                 run: Pass, stream: int) -> None:
        self._backend, self._run, self.stream = backend, run, stream
        self.mirror = Mirror(device, memory, asked["tensors"])
        self.tensors = DeviceTensors(memory, asked["tensors"], backend, self.mirror, stream)
        # One for all calls, so that tables are made once.
        self._problem = Problem(asked["problem"], self.tensors, asked["threads"])
        self._sizes = [np.dtype(DTYPES.get(told["dtype"], np.bool_)).itemsize *
                       math.prod(told["shape"]) for told in self.tensors.outputs().values()]

    def send(self, nan: bool = False) -> None:
        self.mirror.send(self.stream, nan)

    def __call__(self, poison: bool = True) -> None:
        with self._backend.in_stream(self.stream):
            if poison:
                self._backend.poison(self._sizes)
            self._run(self._problem, self.tensors)

    def captured(self) -> Callable[[], None]:
        with self._backend.in_stream(self.stream):
            return self._backend.captured(self.stream, self)

    def replay(self, graph: Callable[[], None]) -> None:
        with self._backend.in_stream(self.stream):
            graph()


class OnDevice:
    """Calls of one kernel's library."""

    def __init__(self, memory: Memory, backend: Backend) -> None:
        self._device, self._memory, self._backend = _device.device(), memory, backend

    def __call__(self, asked: Dict[str, Any], run: Pass) -> Optional[Fault]:
        """Puts a request to the kernel. Its outputs are where the harness reads them, unless there
        is a fault. Raises what the kernel raises, and DeviceError."""
        modes = {"": self._ordinary, "stream": self._stream, "two-streams": self._two_streams,
                 "graph": self._graph}
        calls: List[_Call] = []

        def new(stream: int) -> _Call:
            calls.append(_Call(self._device, self._memory, asked, self._backend, run,
                               stream))
            return calls[-1]

        try:
            judged = modes[asked.get("mode", "")](new)
            judged.mirror.fetch(judged.stream)
            self._device.synchronize()
            fault = judged.mirror.settle()
            judged.tensors.finish()
            return fault
        except Exception as error:
            if self._is_full():  # as cuDNN, which then has an "internal error"
                raise NoDeviceMemory(f"{error} (the device's memory is full)") from error
            raise
        finally:
            with contextlib.suppress(DeviceError):  # which is told already, or was told before
                self._device.synchronize()
                for call in calls:
                    call.mirror.close()
                self._backend.give_back()

    def _is_full(self) -> bool:
        try:
            return self._device.is_full()
        except DeviceError:  # it is lost
            return False

    def _ordinary(self, new: Callable[[int], _Call]) -> _Call:
        call = new(DEFAULT_STREAM)
        call.send()
        if not self._backend.in_order:
            self._device.synchronize()
        call()
        return call

    def _stream(self, new: Callable[[int], _Call]) -> _Call:
        """In a stream that does not wait for the default one. What the kernel puts into another
        stream runs while ours is held: on NaN. Called before, as what is compiled at a first call
        would outlast that."""
        call = new(self._device.streams[0])
        call.send(nan=True)
        call()
        for seconds in _HOLDS:
            call.send(nan=True)
            self._device.synchronize()
            self._device.hold([call.stream], seconds)
            call.send()
            call()
            if self._device.held():
                break
        return call

    def _two_streams(self, new: Callable[[int], _Call]) -> _Call:
        """Beside calls in another stream, of the same problem on NaN: what the two share shows it.
        """
        call, other = (new(stream) for stream in self._device.streams)
        for each in (call, other):
            each.send(nan=True)
            each()
        for seconds in _HOLDS:
            call.send()
            other.send(nan=True)
            self._device.synchronize()
            self._device.hold([call.stream, other.stream], seconds)
            for _ in range(_BESIDE):
                other(poison=False)
                call(poison=False)
                call.mirror.fetch(call.stream)
            other(poison=False)
            if self._device.held():
                break
        return call

    def _graph(self, new: Callable[[int], _Call]) -> _Call:
        """Captured on NaN, and replayed on what the memory holds then."""
        call = new(self._device.streams[0])
        call.send(nan=True)
        call()
        call.send(nan=True)
        self._device.synchronize()
        graph = call.captured()
        call.send()
        call.replay(graph)
        self._device.synchronize()  # before it goes
        return call


def is_lost() -> bool:
    """Whether an error has left the device unusable to this process: it tells it again."""
    try:
        _device.device().synchronize()
    except DeviceError:
        return True
    return False
