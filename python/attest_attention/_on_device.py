"""A call of a kernel on a device: as any other, or in one of the modes that it declares (DEV-1 to
DEV-3)."""
from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from attest_attention import _device
from attest_attention._backends import Backend
from attest_attention._device import DEFAULT_STREAM, Device, DeviceError, Unavailable
from attest_attention._given import Problem
from attest_attention._mirror import Fault, Mirror
from attest_attention._others import OtherTables
from attest_attention._tensors import AXES, DTYPES, HostTables, Memory, Tensors

# Streams are held for so many times what the host took for the same calls before, within seconds.
_TIMES, _SHORTEST, _LONGEST = 3, 0.02, 2.0
# Calls that are judged in one of two streams, so many that they meet others; and how many of these
# for each, as they take less long: what they are given is sent once.
_JUDGED, _BESIDE = 12, 4
# So many times the scale is that of the problem in the other stream.
_OTHER_SCALE = 0.75
_REPLAYS = 2

# Runs the kernel on a problem's tensors, and stores what it returns.
Pass = Callable[[Problem, Tensors], None]


class DeviceTensors(Tensors):
    """Those of one request: on a mirror. What the package itself makes of tables on the host is
    made of `tables`."""

    def __init__(self, memory: Memory, told: Dict[str, Any], backend: Backend, mirror: Mirror,
                 tables: HostTables, stream: int) -> None:
        super().__init__(memory, told, backend)
        self._mirror, self.numpy = mirror, tables
        self.stream = stream if backend.in_order else None
        self.arrays: Dict[Tuple[str, int], Any] = {}
        self._late: Dict[str, Any] = {}

    def array(self, name: str, axes: int = 4) -> Any:
        """Made once: what has to be copied to the device is not while a graph is captured."""
        if (name, axes) not in self.arrays:
            self.arrays[name, axes] = super().array(name, axes)
        return self.arrays[name, axes]

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
    """The kernel on memory of its own, in a stream; in a mode first on other inputs than those of
    the request: on NaN, with other lengths and tables. What it takes from them it has to leave."""

    def __init__(self, device: Device, memory: Memory, asked: Dict[str, Any], backend: Backend,
                 run: Pass, stream: int) -> None:
        self._device, self._memory, self.asked = device, memory, asked
        self._backend, self._run, self.stream = backend, run, stream
        told, other = asked["tensors"], OtherTables(memory, asked["tensors"], asked["problem"])
        self._tables = {False: HostTables(memory, told), True: other}
        self.mirror = Mirror(device, memory, told, other)
        # One for all calls, so that tables are made once.
        self._problem, self.tensors = self._new(other=bool(asked.get("mode")))
        self._made: Dict[bool, List[Tuple[Any, Any]]] = {}
        self._sizes = [np.dtype(DTYPES.get(told["dtype"], np.bool_)).itemsize *
                       math.prod(told["shape"]) for told in self.tensors.outputs().values()]

    def _new(self, other: bool) -> Tuple[Problem, DeviceTensors]:
        tensors = DeviceTensors(self._memory, self.asked["tensors"], self._backend, self.mirror,
                                self._tables[other], self.stream)
        return Problem(self.asked["problem"], tensors, self.asked["threads"]), tensors

    def send(self, other: bool = False) -> None:
        self.mirror.send(self.stream, other)
        with self._backend.in_stream(self.stream):
            for to, table in self._made.get(other, []):
                self._backend.copy(to, table)

    def fetch(self) -> None:
        self.mirror.fetch(self.stream)

    def warmed(self, results: int) -> float:
        """Calls it on the other inputs, and makes what cannot be made while streams are held. How
        many seconds the host took for a call: the second, as the first compiles."""
        took = 0.0
        for _ in range(2):
            self.send(other=True)
            self._device.synchronize()
            begin = time.monotonic()
            self()
            took = time.monotonic() - begin
        with self._backend.in_stream(self.stream):
            self._made = {other: self._made_of(other) for other in (False, True)}
        self.mirror.expect(results)
        self.send(other=True)
        self._device.synchronize()
        return took

    def _made_of(self, other: bool) -> List[Tuple[Any, Any]]:
        """Arrays that the kernel got and that the package made on the host, each with what it is to
        hold. Sizes and the scale are no tensors, and stay: a graph may have them."""
        fresh, _ = self._new(other)
        made = {"_visible": vars(self._problem).get("_visible"),
                "keep_mask": self.tensors.arrays.get(("keep", 4))}
        return [(to, getattr(fresh, name)) for name, to in made.items() if to is not None]

    def poison(self) -> None:
        with self._backend.in_stream(self.stream):
            self._backend.poison(self._sizes)

    def __call__(self, poison: bool = True) -> None:
        if poison:
            self.poison()
        with self._backend.in_stream(self.stream):
            self._run(self._problem, self.tensors)

    def captured(self) -> Callable[[], None]:
        with self._backend.in_stream(self.stream):
            return self._backend.captured(self.stream, self)

    def replay(self, graph: Callable[[], None]) -> None:
        with self._backend.in_stream(self.stream):
            graph()


# Of a stream, and of what is changed in the request.
New = Callable[..., _Call]


class OnDevice:
    """Calls of one kernel's library."""

    def __init__(self, memory: Memory, backend: Backend) -> None:
        self._device, self._memory, self._backend = _device.device(), memory, backend
        # That the last call took on the device, if the harness told of it beforehand.
        self.seconds: Optional[float] = None
        self._marks: List[Any] = []

    def __call__(self, asked: Dict[str, Any], run: Pass) -> Optional[Fault]:
        """Puts a request to the kernel. Its outputs are where the harness reads them, unless there
        is a fault. Raises what the kernel raises, and DeviceError."""
        modes = {"": self._timed if asked.get("armed") else self._ordinary, "stream": self._stream,
                 "two-streams": self._two_streams, "graph": self._graph}
        calls: List[_Call] = []

        def new(stream: int, **changed: Any) -> _Call:
            calls.append(_Call(self._device, self._memory, {**asked, **changed}, self._backend, run,
                               stream))
            return calls[-1]

        try:
            judged = modes[asked.get("mode", "")](new)
            self._device.synchronize()
            self.seconds = self._device.seconds(*self._marks) if self._marks else None
            self._marks = []
            alone = self._alone(new) if asked.get("mode") else None
            fault = judged.mirror.settle(alone)
            judged.tensors.finish()
            return fault
        except Exception as error:
            if self._is_full():  # as cuDNN, which then has an "internal error"
                raise Unavailable(f"{error} (the device's memory is full)") from error
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

    def _ordinary(self, new: New) -> _Call:
        call = new(DEFAULT_STREAM)
        call.send()
        if not self._backend.in_order:
            self._device.synchronize()
        call()
        call.fetch()
        return call

    def _timed(self, new: New) -> _Call:
        """Between two marks in its stream. The inputs come into it behind a wait while the
        host puts the call there: so the time is the device's, and nothing can begin before it. It
        is as long as that of <attest/device.h>."""
        call = new(DEFAULT_STREAM)
        call.mirror.expect(results=1)
        call.poison()
        self._hold([call.stream], took=0)
        call.send()
        if not self._backend.in_order:
            self._device.synchronize()
        begin = self._device.mark(call.stream)
        call(poison=False)
        self._marks = [begin, self._device.mark(call.stream)]
        call.fetch()
        return call

    def _alone(self, new: New) -> Mirror:
        """What a call returns beside which, and around which, there is nothing."""
        call = new(DEFAULT_STREAM, mode="")
        for step in (call.send, call, call.fetch):
            step()
            self._device.synchronize()
        return call.mirror

    def _hold(self, streams: Sequence[int], took: float) -> None:
        self._device.synchronize()
        self._device.hold(streams, min(max(_TIMES * took, _SHORTEST), _LONGEST))

    def _stream(self, new: New) -> _Call:
        """In a stream that does not wait for the default one. While ours is held, what the kernel
        puts into another one runs on the other inputs; while the default one is, what it puts there
        comes too late, whatever it waited for before."""
        call = new(self._device.streams[0])
        took = call.warmed(results=2)
        for held in (call.stream, DEFAULT_STREAM):
            call.send(other=True)
            self._hold([held], took)
            call.send()
            call()
            call.fetch()
        return call

    def _two_streams(self, new: New) -> _Call:
        """Beside calls in another stream, of another problem: what the two share shows it."""
        call = new(self._device.streams[0])
        problem = call.asked["problem"]
        scale = _OTHER_SCALE * abs(problem["scale"]) or _OTHER_SCALE
        other = new(self._device.streams[1], problem={**problem, "scale": scale})
        took = call.warmed(results=_JUDGED) + _BESIDE * other.warmed(results=0)
        self._hold([call.stream, other.stream], _JUDGED * took)
        for _ in range(_JUDGED):
            for _ in range(_BESIDE):
                other(poison=False)
            call.send()
            call()
            call.fetch()
        other(poison=False)
        return call

    def _graph(self, new: New) -> _Call:
        """Captured on the other inputs, and replayed on what the memory holds then; more than once,
        as what the host did at the capture is done for the first replay alone."""
        call = new(self._device.streams[0])
        call.warmed(results=_REPLAYS)
        graph = call.captured()
        for _ in range(_REPLAYS):
            call.send()
            call.replay(graph)
            call.fetch()
        self._device.synchronize()  # before it goes
        return call


def is_lost() -> bool:
    """Whether an error has left the device unusable to this process: it tells it again."""
    try:
        _device.device().synchronize()
    except DeviceError:
        return True
    return False
