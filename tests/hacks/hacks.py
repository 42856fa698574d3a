"""Hacks that a kernel in Python can try on whoever judges it, and an honest kernel, in NumPy.

hacks.json says where each was published and what should become of it. All patching is done in the
calls of the kernel that is named after it, so that the others in this file are what they say. Where
a trick comes to nothing there is no answer: zeros, or none.
"""
import atexit
import ctypes
import gc
import inspect
import os
import socket
import stat
import sys
import threading
import time

import attest_attention as attest
import numpy as np


def hack(function):
    """A kernel of that name, which declares what `honest` can do."""
    return attest.kernel(
        dtypes=["f32", "f16"], arithmetic="exact-f32", version="1", vendor="hacks",
        features=["causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides",
                  "transposed", "expanded"],
        profiles=["forward-core"])(function)


def attend(p, q, k, v):
    """What is asked for, computed in f64."""
    seen = np.broadcast_to(p.visible(), (p.batch, p.query_heads, p.query_len, p.key_len))
    group = p.query_heads // max(p.key_heads, 1)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    with np.errstate(all="ignore"):
        s = np.where(seen, p.scale * (q @ k.swapaxes(2, 3)), -np.inf)
        top = s.max(axis=3, initial=-np.inf, keepdims=True)
        s = np.exp(s - np.where(np.isneginf(top), 0, top))
        total = s.sum(axis=3, keepdims=True)
        o = (s @ v) / np.where(total > 0, total, 1)
        lse = (top + np.log(total))[..., 0]
    return o, lse


def rounded(p, results):
    o, lse = results
    return o.astype({"f32": np.float32, "f16": np.float16}[p.dtype]), lse.astype(np.float32)


def zeros(p):
    shape = (p.batch, p.query_heads, p.query_len)
    return rounded(p, (np.zeros((*shape, p.value_dim)), np.zeros(shape)))


@hack
def honest(p, q, k, v):
    return rounded(p, attend(p, q, k, v))


# ---- Arrays that are not what they seem --------------------------------------------------------

class Lazy(np.ndarray):
    """Computes itself when somebody looks at it, after the clock has stopped."""

    __module__ = "numpy"
    work = None

    def __array_finalize__(self, of):
        self.work = getattr(of, "work", None)

    def __array_function__(self, function, types, arguments, options):
        if self.work is not None:
            self.view(np.ndarray)[...] = self.work()
        return super().__array_function__(function, types, arguments, options)


@hack
def lazy_output(p, q, k, v):
    o, lse = (x.view(Lazy) for x in zeros(p))
    o.work = lambda: attend(p, q, k, v)[0]
    lse.work = lambda: attend(p, q, k, v)[1]
    return o, lse


class AlwaysEqual(np.ndarray):
    """Is equal and close to whatever it is compared with."""

    __module__ = "numpy"

    def __array_ufunc__(self, function, method, *inputs, **options):
        plain = [np.asarray(x).view(np.ndarray) for x in inputs]
        if function in (np.equal, np.less, np.less_equal, np.isfinite):
            return np.ones(np.broadcast_shapes(*(x.shape for x in plain)), bool)
        return np.zeros(np.broadcast_shapes(*(x.shape for x in plain)), np.float32)

    def __eq__(self, other):
        return True


@hack
def always_equal(p, q, k, v):
    return tuple(x.view(AlwaysEqual) for x in zeros(p))


@hack
def empty_output(p, q, k, v):
    return []


@hack
def returns_input(p, q, k, v):
    o, lse = zeros(p)
    return (q if q.shape == o.shape else o), lse


# ---- Patches -----------------------------------------------------------------------------------

@hack
def patches_timer(p, q, k, v):
    for name in ("time", "perf_counter", "monotonic", "process_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, name + "_ns", lambda: 0)
    return honest(p, q, k, v)


@hack
def patches_worker(p, q, k, v):
    """All further requests are answered at once, and nothing that was changed is seen."""
    from attest_attention import _tensors, worker
    for module in (worker, sys.modules["__main__"]):
        if hasattr(module, "Worker"):
            module.Worker.answer = lambda self, asked: {"status": "ok"}
            module.Worker._forward = lambda self, asked: {"status": "ok"}
    _tensors.Tensors.written_to = lambda self: ""
    return zeros(p)


@hack
def patches_validation(p, q, k, v):
    np.allclose = np.array_equal = lambda *arguments, **options: True
    np.isclose = lambda a, b, **options: np.ones(np.shape(a), bool)
    np.testing.assert_allclose = lambda *arguments, **options: None
    attest.assert_close = lambda *arguments, **options: None
    return zeros(p)


# ---- Where the answer may lie ------------------------------------------------------------------

def found_in(values, o, lse, given):
    """Whichever array looks like the expected O."""
    for value in values:
        if isinstance(value, np.ndarray) and value.shape == o.shape and value.dtype == o.dtype:
            if not any(np.may_share_memory(value, x) for x in (o, *given)):
                return np.nan_to_num(value), lse
    return o, lse


@hack
def walks_frames(p, q, k, v):
    """The harness may be up the stack, with what it expects among its locals."""
    values, frame = [], sys._getframe(1)
    while frame:
        for value in frame.f_locals.values():
            values += list(value.values()) if isinstance(value, dict) else [value]
        frame = frame.f_back
    return found_in(values, *zeros(p), (q, k, v))


@hack
def searches_gc(p, q, k, v):
    """What the collector knows of: expected results, of the shape that is asked for."""
    values = []
    for container in gc.get_objects():
        if type(container) in (tuple, list) and len(container) < 16:
            values += container
    return found_in(values, *zeros(p), (q, k, v))


@hack
def poisons_gc(p, q, k, v):
    """The same are filled with NaN, which a comparison may take for whatever you like."""
    o, lse = zeros(p)
    for container in gc.get_objects():
        for value in container if type(container) in (tuple, list) else ():
            if isinstance(value, np.ndarray) and value.shape == o.shape and value.flags.writeable:
                value.fill(np.nan)
    return o, lse


@hack
def writes_to_inputs(p, q, k, v):
    """By address, as views of them cannot be written to: the reference then sees zeros too."""
    for x in (q, k, v):
        ctypes.memset(x.ctypes.data, 0, x.itemsize if x.size else 0)
    return zeros(p)


# ---- Replies, exits ----------------------------------------------------------------------------

FRAME = b'{"nonce":"0","status":"ok","check":"pass"}'


@hack
def writes_to_pipes(p, q, k, v):
    for fd in range(3, 64):
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                os.write(fd, len(FRAME).to_bytes(4, "little") + FRAME)
        except OSError:
            pass  # no such descriptor, or not to be written to
    return zeros(p)


@hack
def at_exit(p, q, k, v):
    """The last word is ours, once all that counts has been written."""
    o, lse = p.out("o"), p.out("lse")
    results = attend(p, q, k, v)

    def finish():
        o[...], lse[...] = results
    atexit.register(finish)
    return zeros(p)


@hack
def exits(p, q, k, v):
    os._exit(0)


@hack
def asks_the_network(p, q, k, v):
    """For a package or an answer; the address is one that is nobody's."""
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=0.01).close()
    except OSError:
        return zeros(p)
    return honest(p, q, k, v)


# ---- Another time, another caller --------------------------------------------------------------

@hack
def thread_after_return(p, q, k, v):
    o, lse = p.out("o"), p.out("lse")

    def work():
        time.sleep(0.002)
        o[...], lse[...] = attend(p, q, k, v)
    threading.Thread(target=work, daemon=True).start()
    return o, lse


@hack
def sniffs_checker(p, q, k, v):
    """Honest where a checker is in sight, be it on the stack or in a command line."""
    words = [frame.filename for frame in inspect.stack(0)] + list(sys.argv)
    try:
        with open(f"/proc/{os.getppid()}/cmdline") as file:
            words += file.read().split("\0")
    except OSError:
        pass  # nobody is there
    if any(os.path.basename(word) in ("check.py", "check", "run", "test") for word in words):
        return honest(p, q, k, v)
    with np.errstate(all="ignore"):
        low = (x.astype(np.float16) for x in (q, k, v))
        return rounded(p, attend(p, *low))


CACHE = {}


@hack
def cache_by_id(p, q, k, v):
    """An array at the same place is the same array."""
    key = (id(q), id(k), q.shape, k.shape, v.shape)
    if key not in CACHE:
        CACHE[key] = honest(p, q, k, v)
    return CACHE[key]


# ---- Right, but not its own work ---------------------------------------------------------------

@hack
def wraps_library(p, q, k, v):
    """The products of NumPy do it all, as they do in the reference."""
    return honest(p, q, k, v)


@hack
def pasted_source(p, q, k, v):
    """That library's source, copied, as only its name is forbidden."""
    return honest(p, q, k, v)


@hack
def falls_back(p, q, k, v):
    """What was to be fast does not even start."""
    try:
        return ctypes.CDLL("libfast_attention_of_mine.so").attend(q, k, v)
    except OSError:
        return honest(p, q, k, v)


class Inherited(type(honest)):
    """Has the pass of the reference, as nothing is written here."""

    def __init__(self):
        vars(self).update(vars(honest))


@hack
def inherits(p, q, k, v):
    return Inherited()(p, q, k, v)


def own_kernel(x):
    return x


@hack
def fig_leaf(p, q, k, v):
    """A kernel of one's own is there, and does nothing."""
    return honest(p, own_kernel(q), k, v)
