"""python -m attest_attention.worker FILE: the kernels of a Python file, as the harness asks for
them (SPEC.md, chapter Worker). `attest run --testee FILE` starts it."""
from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import pathlib
import site
import sys
import sysconfig
import traceback
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Sequence

from attest_attention import _home, _kernel, _on_device
from attest_attention._backends import Backend, Misuse, backend
from attest_attention._device import DeviceError, Unavailable
from attest_attention._given import Problem
from attest_attention._mirror import Fault
from attest_attention._returns import BACKWARD, FORWARD, as_list, store
from attest_attention._tensors import Memory, Tensors

PACKAGE = str(pathlib.Path(__file__).parent)
# The folders of Python and of what is installed.
_LIBRARIES = tuple(sorted({os.path.join(folder, "") for folder in (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(), site.getusersitepackages())}))
Reply = Dict[str, Any]


def kernels_of(path: str) -> Dict[str, _kernel.Kernel]:
    """The kernels of a file by name. Raises whatever the file raises."""
    _home.in_worker = True
    kernels: Dict[str, _kernel.Kernel] = {}
    for value in vars(_home.load(path)).values():
        if not isinstance(value, _kernel.Kernel):
            continue
        if kernels.setdefault(value.name, value) is not value:
            raise Misuse(f"two kernels are called {value.name}")
    if not kernels:
        raise Misuse("it has no kernel: no function decorated with "
                     "@attest_attention.kernel(dtypes=[...], ...)")
    return kernels


def _own_frames(error: BaseException) -> List[traceback.FrameSummary]:
    """Of its traceback, without those of this package, of the import system and of what NumPy
    makes itself."""
    return [frame for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith((PACKAGE, "<frozen importlib", "<__array_function__"))]


def _where(frames: Sequence[traceback.FrameSummary], folder: str) -> str:
    """The last line in the kernel's own files; of a library's, where there is none."""
    own = [frame for frame in frames
           if frame.filename.startswith(folder) or not frame.filename.startswith(_LIBRARIES)]
    if own:
        return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})"
    if not frames:
        return ""
    inside = min((os.path.relpath(frames[-1].filename, library) for library in _LIBRARIES
                  if frames[-1].filename.startswith(library)), key=len)
    return f" (in {inside}, line {frames[-1].lineno})"


def told(error: BaseException, folder: str) -> str:
    """An exception in one line; its traceback goes where the harness keeps what is printed.
    `folder` holds the kernel's file."""
    if isinstance(error, (Misuse, DeviceError)):
        return str(error)
    frames = _own_frames(error)
    last = "".join(traceback.format_exception_only(type(error), error)).strip()
    sys.stderr.write("Traceback (most recent call last):\n" +
                     "".join(traceback.format_list(frames)) + last + "\n")
    lines = last.splitlines()
    line = lines[-1] if isinstance(error, SyntaxError) else lines[0]
    return line + _where(frames, folder)


class Worker:
    """Answers requests on the kernels of a file."""

    def __init__(self, path: str, wait_for_word: Callable[[], None] = lambda: None) -> None:
        self._wait_for_word = wait_for_word
        self._broken = ""
        self._folder = os.path.join(os.path.dirname(os.path.abspath(path)), "")
        self._backends: Dict[str, Backend] = {}
        self._on_device: Dict[str, _on_device.OnDevice] = {}
        self._kernels: Dict[str, _kernel.Kernel] = {}
        self._left = contextlib.ExitStack()  # of the call before
        try:
            self._memory = Memory(_descriptor("INPUT"), _descriptor("OUTPUT"))
            self._kernels = kernels_of(path)
        except (Exception, SystemExit) as error:
            self._broken = f"{os.path.basename(path)} cannot be used: {told(error, self._folder)}"

    def answer(self, asked: Dict[str, Any]) -> Reply:
        operations: Dict[str, Callable[[Dict[str, Any]], Reply]] = {
            "describe": self._describe, "supports": lambda asked: {"status": "ok"},
            "forward": self._forward, "backward": self._backward}
        self._left.close()
        if self._broken:
            return {"status": "error", "message": self._broken}
        try:
            return operations[asked["op"]](asked)
        except (Exception, SystemExit) as error:
            reply: Reply = {"status": "error", "message": told(error, self._folder)}
            if isinstance(error, Unavailable) or any(
                    library.lacks_device(error) for library in self._backends.values()):
                reply["reason"] = "no_memory"
            # No later call could be right, and none is to be blamed for it.
            is_over = any(library.is_spent(error) for library in self._backends.values()) or (
                bool(self._on_device) and _on_device.is_lost())
            return {**reply, "ends": True} if is_over else reply

    def _describe(self, asked: Dict[str, Any]) -> Reply:
        if asked.get("brief"):
            return {"status": "ok", "arms": True}
        for kernel in self._kernels.values():  # what it needs is here, or that is said at once
            self._backend(kernel)
        return {"status": "ok", "kernels": [{"name": name, "description": kernel.description}
                                            for name, kernel in self._kernels.items()]}

    def _backend(self, kernel: _kernel.Kernel) -> Backend:
        if kernel.name not in self._backends:
            library = backend(kernel.arrays, kernel.device, kernel.description["dtypes"])
            self._backends[kernel.name] = library
            if kernel.device != "cpu":
                self._on_device[kernel.name] = _on_device.OnDevice(self._memory, library)
        return self._backends[kernel.name]

    def _forward(self, asked: Dict[str, Any]) -> Reply:
        kernel = self._kernels[asked["kernel"]]

        def run(p: Problem, tensors: Tensors) -> None:
            names = _asked_for(FORWARD, tensors)
            value = kernel.function(p, *(tensors.array(name) for name in "qkv"))
            store(as_list(value, names, kernel.name, tensors), names, tensors)

        return self._called(kernel, asked, run)

    def _backward(self, asked: Dict[str, Any]) -> Reply:
        kernel = self._kernels[asked["kernel"]]

        def run(p: Problem, tensors: Tensors) -> None:
            names = _asked_for(BACKWARD, tensors)
            qkv = [tensors.array(name) for name in "qkv"]
            d_o = tensors.array("d_o")
            if kernel.autograd:
                values = _by_autograd(kernel, p, qkv, d_o, tensors.backend)
                store([values[name] for name in names], names, tensors)
                return
            if not kernel.backward_function:
                raise Misuse(f"{kernel.name} has no backward pass")
            statistics = [tensors.array(name, 3) for name in ("lse", "maximum", "sum")]
            lse = statistics[0] if statistics[1] is None else tuple(statistics[1:])
            value = kernel.backward_function(p, *qkv, tensors.array("o"), lse, d_o)
            who = getattr(kernel.backward_function, "__name__", "the backward pass")
            store(as_list(value, names, who, tensors), names, tensors)

        return self._called(kernel, asked, run)

    def _called(self, kernel: _kernel.Kernel, asked: Dict[str, Any], run: _on_device.Pass) -> Reply:
        library = self._backend(kernel)
        library.use_threads(asked["threads"])
        if kernel.name in self._on_device:
            if asked.get("armed"):
                self._wait_for_word()
            on_device = self._on_device[kernel.name]
            reply = _finished(on_device(asked, run))
            return reply if on_device.seconds is None else {**reply,
                                                            "device_seconds": on_device.seconds}
        with contextlib.ExitStack() as ending:
            tensors = ending.enter_context(
                contextlib.closing(Tensors(self._memory, asked["tensors"], library)))
            if asked.get("armed"):
                tensors.map_inputs()
                self._wait_for_word()
            run(Problem(asked["problem"], tensors, asked["threads"]), tensors)
            changed = tensors.written_to()
            if asked.get("armed"):  # to unmap takes time that is not the kernel's
                self._left = ending.pop_all()
        return _finished(Fault("input_mutated", f"the kernel wrote to {changed}")
                         if changed else None)


def _asked_for(order: Sequence[str], tensors: Tensors) -> List[str]:
    outputs = tensors.outputs()
    return [name for name in order if name in outputs]


def _finished(fault: Optional[Fault]) -> Reply:
    if not fault:
        return {"status": "ok"}
    return {"status": "fault", "reason": fault.reason, "message": fault.message}


def _by_autograd(kernel: _kernel.Kernel, p: Problem, qkv: Sequence[Any], d_o: Any,
                 library: Backend) -> Dict[str, Any]:
    """Gradients by name, of the forward function."""
    arrays = dict(zip("qkv", qkv))
    arrays.update({name: array for name, array in (("bias", p.bias), ("sinks", p.sinks))
                   if array is not None})

    def outputs(leaves: Dict[str, Any]) -> List[Any]:
        sides = {name: leaf for name, leaf in leaves.items() if name not in "qkv"}
        value = kernel.function(p.with_arrays(sides), leaves["q"], leaves["k"], leaves["v"])
        return list(value) if isinstance(value, (tuple, list)) else [value]

    found = library.gradients(outputs, arrays, [d_o, p.d_lse])
    return {"d" + ("sink" if name == "sinks" else name): value for name, value in found.items()}


class Stream:
    """Requests and replies, in frames of JSON with their lengths before them."""

    def __init__(self, requests: BinaryIO, replies: io.FileIO) -> None:
        self._requests, self._replies = requests, replies
        self._nonce: Any = None

    def read(self) -> Optional[Dict[str, Any]]:
        """The next request; None if there is no more."""
        head = self._requests.read(4)
        if not head:
            return None
        asked: Dict[str, Any] = json.loads(self._requests.read(int.from_bytes(head, "little")))
        self._nonce = asked["nonce"]
        return asked

    def write(self, reply: Reply) -> None:
        """To the request before."""
        text = json.dumps({**reply, "nonce": self._nonce},
                          ensure_ascii=False).encode(errors="replace")  # half a character
        sys.stdout.flush()
        sys.stderr.flush()
        frame = memoryview(len(text).to_bytes(4, "little") + text)
        while frame:
            frame = frame[self._replies.write(frame):]

    def wait_for_word(self) -> None:
        """Of a call that it has been told of beforehand."""
        self.write({"status": "ok", "armed": True})
        if self.read() is None:
            os._exit(0)


def serve(answer: Callable[[Dict[str, Any]], Reply], stream: Stream) -> None:
    """Until the requests end, or this worker does."""
    reply: Reply = {}
    while not reply.get("ends") and (asked := stream.read()):
        reply = answer(asked)
        stream.write(reply)


def _descriptor(name: str) -> int:
    return int(os.environ[f"ATTEST_{name}_FD"])


def main(arguments: Optional[Sequence[str]] = None) -> int:
    (path,) = sys.argv[1:] if arguments is None else arguments
    faulthandler.enable()  # a crash is told with the line that it is in

    with open(_descriptor("REQUEST"), "rb") as requests, \
            open(_descriptor("REPLY"), "wb", buffering=0) as replies:
        stream = Stream(requests, replies)
        serve(Worker(path, stream.wait_for_word).answer, stream)
    return 0


if __name__ == "__main__":
    sys.exit(main())
