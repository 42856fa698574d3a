"""Kernels for the device of fake_device.py: right ones, and one with each fault that its guards and
modes are to find."""
import functools

import numpy as np

import attest_attention as attest
import fake_device
from attest_attention import _home
from attest_attention._device import host_bytes
from textbook import Kernel

if _home.in_worker:
    fake_device.install()

MODES = ["stream", "two-streams", "graph"]
FEATURES = ["causal", "lse", "gqa", "value-dim", "strides"]


def attend(p, q, k, v, o, lse, seen):
    o[...], lse[...] = Kernel(visible=seen, scale=p.scale, real=np.float32).forward(q, k, v)


def launch(p, work, stream=None):
    fake_device.device().launch(p.stream if stream is None else stream, work)


def beside(array, places):
    """Sets the four bytes that lie so many elements from the first one."""
    host_bytes(array.ctypes.data + 4 * places, 4)[...] = 1


def kernel(function=None, features=()):
    if function is None:
        return functools.partial(kernel, features=features)
    return attest.kernel(dtypes=["f32"], features=[*FEATURES, *features], arrays="torch",
                         device="cuda", arithmetic="exact-f32", profiles=[])(function)


def in_place(p, q, k, v, more=lambda o, lse: None, stream=None):
    """Right, with more work behind it."""
    o, lse, seen = p.out("o"), p.out("lse"), p.visible()

    def work():
        attend(p, q, k, v, o, lse, seen)
        more(o, lse)

    launch(p, work, stream)


@kernel
def right(p, q, k, v):
    in_place(p, q, k, v)


@kernel
def right_in_part(p, q, k, v):
    """LSE alone is returned, and O by the array that it was written to."""
    o, lse, seen = p.out("o"), np.empty(q.shape[:3], np.float32), p.visible()
    launch(p, lambda: attend(p, q, k, v, o, lse, seen))
    return o, lse


def returned(p, q, k, v):
    shape = (p.batch, p.query_heads, p.query_len, p.value_dim)
    o, lse = np.empty(shape, np.float32), np.empty(shape[:3], np.float32)
    seen = p.visible()
    launch(p, lambda: attend(p, q, k, v, o, lse, seen))
    return o, lse


@kernel
def right_returned(p, q, k, v):
    return returned(p, q, k, v)


@kernel
def before(p, q, k, v):
    in_place(p, q, k, v, lambda o, lse: beside(o, -1))


@kernel
def behind(p, q, k, v):
    def more(o, lse):
        beside(o, 1 + sum((n - 1) * stride // 4 for n, stride in zip(o.shape, o.strides)))

    in_place(p, q, k, v, more)


@kernel
def before_an_input(p, q, k, v):
    in_place(p, q, k, v, lambda o, lse: beside(q, -1))


@kernel
def far_behind_an_input(p, q, k, v):
    """Beyond its pages, 1000 elements."""
    def more(o, lse):
        beside(k, 1000 + sum((n - 1) * stride // 4 for n, stride in zip(k.shape, k.strides)))

    in_place(p, q, k, v, more)


@kernel
def gap(p, q, k, v):
    """Rows are written as if they were one after the other."""
    in_place(p, q, k, v, lambda o, lse: beside(o, o.shape[3]))


@kernel
def mutated(p, q, k, v):
    in_place(p, q, k, v, lambda o, lse: v.__setitem__((0, 0, -1, -1), 7))


@kernel
def slack(p, q, k, v):
    """What lies behind the rows of K counts, if by 0."""
    def more(o, lse):
        stray = host_bytes(k.ctypes.data + k.strides[2] * (k.shape[2] - 1) + 4 * k.shape[3], 4)
        o += 0 * stray.view(np.float32)

    in_place(p, q, k, v, more)


@kernel
def unwritten(p, q, k, v):
    """One element of O is left as it was."""
    o, seen = p.out("o"), p.visible()
    lse, last = p.out("lse"), (0, -1, -1, -1)

    def work():
        kept = o[last].copy()
        attend(p, q, k, v, o, lse, seen)
        o[last] = kept

    launch(p, work)


@kernel
def unwritten_returned(p, q, k, v):
    """The same, of memory that was in use before."""
    o = fake_device.empty((p.batch, p.query_heads, p.query_len, p.value_dim), np.float32)
    lse, seen, last = np.empty(q.shape[:3], np.float32), p.visible(), (0, -1, -1, -1)

    def work():
        kept = o[last].copy()
        attend(p, q, k, v, o, lse, seen)
        o[last] = kept

    launch(p, work)
    return o, lse


@kernel
def recycled(p, q, k, v):
    """Right, in memory that was in use before."""
    o = fake_device.empty((p.batch, p.query_heads, p.query_len, p.value_dim), np.float32)
    lse, seen = np.empty(q.shape[:3], np.float32), p.visible()
    launch(p, lambda: attend(p, q, k, v, o, lse, seen))
    return o, lse


@kernel
def lost(p, q, k, v):
    def more(o, lse):
        raise RuntimeError("an illegal memory access was encountered")

    in_place(p, q, k, v, more)


@kernel
def raises(p, q, k, v):
    raise ValueError("not this one")


# ---- Modes ---------------------------------------------------------------------------------------


@kernel(features=MODES)
def in_every_mode(p, q, k, v):
    in_place(p, q, k, v)


@kernel(features=MODES)
def returned_in_every_mode(p, q, k, v):
    return returned(p, q, k, v)


@kernel(features=MODES)
def default_stream(p, q, k, v):
    in_place(p, q, k, v, stream=0)


@kernel
def ahead_of_its_stream(p, q, k, v):
    """Right where the inputs happen to be there already."""
    in_place(p, q, k, v, stream=1)


@kernel(features=MODES)
def foreign_stream(p, q, k, v):
    """Wrong in any mode but where that stream happens to be the one to be used."""
    in_place(p, q, k, v, stream=2)


SCRATCH = {}


@kernel(features=MODES)
def shared_scratch(p, q, k, v):
    """What passes from one launch to the next lies in memory that is every call's."""
    o, lse, seen = p.out("o"), p.out("lse"), p.visible()
    scratch = SCRATCH.setdefault(o.shape, np.empty(o.shape, np.float32))
    launch(p, lambda: attend(p, q, k, v, scratch, lse, seen))
    launch(p, lambda: np.copyto(o, scratch))


@kernel(features=MODES)
def baked(p, q, k, v):
    """While it is captured it takes a copy of q that was made by the call before."""
    if fake_device.device().recorded is None:
        SCRATCH["q"] = np.empty(q.shape, np.float32)
        launch(p, lambda to=SCRATCH["q"]: np.copyto(to, q))
    in_place(p, SCRATCH["q"], k, v)


@kernel(features=MODES)
def counter_cleared_by_host(p, q, k, v):
    """Done by whoever finds it at 0, as the host left it: in a graph, once."""
    count = [0]
    o, lse, seen = p.out("o"), p.out("lse"), p.visible()

    def work():
        count[0] += 1
        if count[0] == 1:
            attend(p, q, k, v, o, lse, seen)

    launch(p, work)


def on_host(p, array):
    """A copy, when what comes before it is done; while a graph is captured nothing can be waited
    for."""
    if fake_device.device().recorded is None:
        fake_device.device().wait(p.stream)
    return array.copy()


@kernel(features=[*MODES, "lengths"])
def baked_lengths(p, q, k, v):
    """A plan of the host."""
    lengths = on_host(p, p.key_lengths)[:, None, None, None]
    o, lse = p.out("o"), p.out("lse")
    launch(p, lambda: attend(p, q, k, v, o, lse, np.arange(p.key_len) < lengths))


@kernel(features=[*MODES, "lengths"])
def baked_table(p, q, k, v):
    """The same of what the package makes."""
    o, lse, seen = p.out("o"), p.out("lse"), on_host(p, p.visible())
    launch(p, lambda: attend(p, q, k, v, o, lse, seen))


@kernel(features=[*MODES, "lengths"])
def reads_lengths(p, q, k, v):
    """Right: on the device."""
    o, lse, lengths = p.out("o"), p.out("lse"), p.key_lengths
    launch(p, lambda: attend(p, q, k, v, o, lse,
                             np.arange(p.key_len) < lengths[:, None, None, None]))


def seen_and_kept(p, q, k, v, on):
    o, lse, seen, keep = p.out("o"), p.out("lse"), p.visible(), on(p, p.keep_mask)

    def work():
        o[...], lse[...] = Kernel(visible=seen, scale=p.scale, real=np.float32, keep=keep,
                                  dropout_p=p.dropout_p).forward(q, k, v)

    launch(p, work)


@kernel(features=[*MODES, "dropout"])
def reads_keep(p, q, k, v):
    """Right."""
    seen_and_kept(p, q, k, v, lambda p, array: array)


@kernel(features=[*MODES, "dropout"])
def baked_keep(p, q, k, v):
    seen_and_kept(p, q, k, v, on_host)


PLAN = {}


@kernel(features=MODES)
def shares_plan(p, q, k, v):
    """What the first launch leaves for the next is every call's."""
    o, lse, seen = p.out("o"), p.out("lse"), p.visible()
    launch(p, lambda: PLAN.update(scale=p.scale))

    def work():
        o[...], lse[...] = Kernel(visible=seen, scale=PLAN["scale"], real=np.float32).forward(
            q, k, v)

    launch(p, work)


@kernel(features=[*MODES, "lengths"])
def shares_lengths(p, q, k, v):
    o, lse, lengths = p.out("o"), p.out("lse"), p.key_lengths
    launch(p, lambda: PLAN.update(lengths=lengths.copy()))
    launch(p, lambda: attend(p, q, k, v, o, lse,
                             np.arange(p.key_len) < PLAN["lengths"][:, None, None, None]))


@kernel(features=MODES)
def semaphore(p, q, k, v):
    """Who finds it taken leaves."""
    o, lse, seen, me = p.out("o"), p.out("lse"), p.visible(), object()

    def work():
        if PLAN.get("owner") is me:
            attend(p, q, k, v, o, lse, seen)
            del PLAN["owner"]

    launch(p, lambda: PLAN.setdefault("owner", me))
    launch(p, work)


@kernel(features=MODES)
def late_collisions(p, q, k, v):
    """Of calls that collide but the first are wrong, by numbers that are no NaN; most of them are
    wrong in the same way."""
    o, lse, seen, me = p.out("o"), p.out("lse"), p.visible(), object()
    calls = PLAN[p.stream] = PLAN.get(p.stream, 0) + 1

    def work():
        attend(p, q, k, v, o, lse, seen)
        if PLAN["last"] is not me and calls > 4:
            o[...] = 0

    launch(p, lambda: PLAN.update(last=me))
    launch(p, work)


@kernel(features=MODES)
def second_replay_alone(p, q, k, v):
    """Its graph does nothing but at the second replay."""
    o, lse, seen, count = p.out("o"), p.out("lse"), p.visible(), [0]
    captured = fake_device.device().recorded is not None

    def work():
        count[0] += 1
        if count[0] == 2 or not captured:
            attend(p, q, k, v, o, lse, seen)

    launch(p, work)


@kernel(features=MODES)
def item_then_default_stream(p, q, k, v):
    """As lengths.max().item(), and a launch that forgets the stream."""
    fake_device.device().wait(p.stream)
    in_place(p, q, k, v, stream=0)


@kernel(features=MODES)
def noisy(p, q, k, v):
    """Right, and never the same, as sums of atomics are."""
    numbers = PLAN.setdefault("numbers", np.random.default_rng(1))
    in_place(p, q, k, v, lambda o, lse: o.__iadd__(
        1e-6 * numbers.standard_normal(o.shape, np.float32)))


@kernel(features=MODES)
def noisy_semaphore(p, q, k, v):
    """Of many results each right one is like no other, and those that are unwritten are alike."""
    o, lse, seen, me = p.out("o"), p.out("lse"), p.visible(), object()
    numbers = PLAN.setdefault("numbers", np.random.default_rng(1))

    def work():
        if PLAN.get("owner") is me:
            attend(p, q, k, v, o, lse, seen)
            o[...] += 1e-6 * numbers.standard_normal(o.shape, np.float32)
            del PLAN["owner"]

    launch(p, lambda: PLAN.setdefault("owner", me))
    launch(p, work)
