"""A device over memory of the host, and a library for it, in the places of CUDA and PyTorch.

Work put into a stream runs when something waits for the device, in the worst order that the streams
allow: what is not held runs before what is, and streams then take turns, or as a seed draws.
"""
import collections
import contextlib
import random

import numpy as np

from attest_attention import _backends, _device
from attest_attention._device import DeviceError, host_bytes


class Device:
    kind = (1, 0)  # to libraries it is memory of the host
    streams = (1, 2)

    def __init__(self, seed=None, eager=False):
        """`eager`: work that is not held runs at once, as libraries for the CPU need it."""
        self.draw = random.Random(seed) if seed is not None else None
        self.eager = eager
        self.queues = collections.OrderedDict((stream, collections.deque()) for stream in (0, 1, 2))
        self.memory, self.gated, self.lost, self.recorded = {}, set(), None, None
        self.latest = None  # the stream of what ran last
        self.clock = 0  # of work that is done

    # ---- What the package needs --------------------------------------------------------------

    def allocate(self, size):
        memory = np.full(size + 4096, 0x5a, np.uint8)
        address = -(-memory.ctypes.data // 4096) * 4096
        self.memory[address] = memory
        return address

    def free(self, address, size):
        del self.memory[address]

    def pinned(self, size):
        return np.empty(size, np.uint8)

    def unpin(self, memory):
        pass

    def copy_in(self, address, source, stream):
        self.launch(stream, lambda: np.copyto(host_bytes(address, source.nbytes), source))

    def copy_out(self, to, address, stream):
        self.launch(stream, lambda: np.copyto(to, host_bytes(address, to.nbytes)))

    def fill(self, address, byte, size, stream):
        self.launch(stream, lambda: host_bytes(address, size).fill(byte))

    def is_full(self):
        return False

    def hold(self, streams, seconds):
        assert not any(self.queues.values()), "held while something is under way"
        self.gated = set(streams)

    def mark(self, stream):
        mark = []

        def work():
            self.clock -= 1  # it takes no time
            mark.append(self.clock + 1)

        self.launch(stream, work)
        return mark

    def seconds(self, begin, end):
        return end[0] - begin[0]

    def synchronize(self):
        self.wait(*self.queues)
        self.gated = set()
        if self.lost:
            raise DeviceError(self.lost)

    # ---- What kernels do ---------------------------------------------------------------------

    def launch(self, stream, work):
        """Puts work into a stream. What it raises leaves the device unusable."""
        if self.recorded is not None and stream == self.recorded[0]:
            self.recorded[1].append(work)
            return
        self.queues[stream].append(work)
        while self.eager and self.queues[stream] and stream not in self.gated:
            self._step([stream])

    def wait(self, *streams):
        """For what is in these streams: others go on meanwhile, and what is held may stay so."""
        while not self.lost and any(self.queues[stream] for stream in streams):
            ready = [stream for stream, queue in self.queues.items()
                     if queue and stream not in self.gated]
            if ready:
                self._step(ready)
            else:
                self.gated = set()  # the time is over

    def _step(self, ready):
        if self.draw:
            stream = self.draw.choice(ready)
        else:  # in turn, and the default stream last
            stream = next((each for each in (1, 2, 0) if each in ready and each != self.latest),
                          self.latest)
        self.latest = stream
        try:
            self.queues[stream].popleft()()
            self.clock += 1
        except Exception as error:
            self.lost = f"cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS, {error}"

    def capture(self, stream, call):
        assert not any(self.queues.values()), "captured while something is under way"
        self.recorded = (stream, [])
        try:
            call()
            recorded = self.recorded[1]
        finally:
            self.recorded = None
        return lambda: [self.launch(stream, work) for work in recorded]


class OnFake(_backends.Backend):
    """Arrays of NumPy on the memory of the device, and an allocator that hands memory out again."""

    def __init__(self, device, dtypes):
        self.device, self.current, self.freed = device, 0, {}
        OnFake.latest = self

    def device_of(self, value):
        return self.device

    def lend(self, view):
        dtype = np.dtype({"u8": "?", "i64": "i8", "i32": "i4", "f32": "f4", "f16": "f2",
                          "f64": "f8", "bf16": "u2"}[view.dtype])
        strides = [dtype.itemsize * stride for stride in view.strides]
        reach = sum((size - 1) * stride for size, stride in zip(view.shape, strides))
        memory = host_bytes(view.address, reach + dtype.itemsize if 0 not in view.shape else 0)
        return np.ndarray(view.shape, dtype, memory, 0, strides)

    @contextlib.contextmanager
    def in_stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def copy(self, to, value):
        device().launch(self.current, lambda: np.copyto(to, value.reshape(to.shape)))

    def empty(self, shape, dtype):
        """With what was there before, as allocators that keep memory have it."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = self.freed.setdefault(size, np.full(size, 0x3e, np.uint8))
        return memory.view(dtype).reshape(shape)

    def poison(self, sizes):
        for size in sizes:
            memory = self.freed.setdefault(size, np.empty(size, np.uint8))
            device().launch(self.current, lambda memory=memory: memory.fill(0xff))

    def captured(self, stream, call):
        return device().capture(stream, call)


def device():
    return _device.device()


def empty(shape, dtype):
    return OnFake.latest.empty(shape, dtype)


def install(other=None, library=OnFake):
    """In the places of CUDA, and of PyTorch."""
    _device.put(other or Device())
    _backends.LIBRARIES["torch"] = library
