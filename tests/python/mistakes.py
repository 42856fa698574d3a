"""Kernels that are misused or fail, each in a way of its own, to be judged on one case."""
import ctypes
import sys

import numpy as np

import attest_attention as attest


def plain(p, q, k, v):
    k, v = (np.repeat(x, p.query_heads // p.key_heads, 1) for x in (k, v))
    s = np.float32(p.scale) * (q @ k.swapaxes(2, 3))
    top = s.max(3, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(3, keepdims=True)
    return e @ v / total, (top + np.log(total))[..., 0]


def kernel(function, **changes):
    declared = {"dtypes": ["f32"], "features": ["lse", "gqa"], "arithmetic": "exact-f32"}
    return attest.kernel(name=function.__name__, **{**declared, **changes})(function)


def returning(name, change):
    """A right kernel whose o and lse are changed."""
    def mistaken(p, q, k, v):
        return change(*plain(p, q, k, v))

    mistaken.__name__ = name
    return kernel(mistaken)


fine = kernel(plain)
nothing = returning("nothing", lambda o, lse: None)
alone = returning("alone", lambda o, lse: o)
three = returning("three", lambda o, lse: (o, lse, lse))
shape = returning("shape", lambda o, lse: (o[..., :-1], lse))
dtype = returning("dtype", lambda o, lse: (o, lse.astype(np.float64)))
lists = returning("lists", lambda o, lse: (o.tolist(), lse))
absent = returning("absent", lambda o, lse: (o, None))


@attest.kernel(dtypes=["f32"], features=["gqa"], arithmetic="exact-f32")
def undeclared_lse(p, q, k, v):
    return plain(p, q, k, v)


@kernel
def raises(p, q, k, v):
    print("so far so good")
    return helper(q, k)


def helper(q, k):
    return q @ k  # a transpose is missing


@kernel
def raises_within_numpy(p, q, k, v):
    return np.linalg.inv(np.zeros((2, 2)))


@kernel
def raises_half_a_character(p, q, k, v):
    raise OSError("no file \udcff")  # as os.fsdecode names what is no UTF-8


@kernel
def exits(p, q, k, v):
    sys.exit(1)


@kernel
def writes(p, q, k, v):
    q *= np.float32(p.scale)
    return plain(p, q, k, v)


@kernel
def dies(p, q, k, v):
    return ctypes.string_at(0)


def reaching(name, place):
    """A right kernel that writes to a place of which it was not told, as a faulty library does."""
    def mistaken(p, q, k, v):
        ctypes.memset(place(q, k, v), 0, 4)
        return plain(p, q, k, v)

    mistaken.__name__ = name
    return kernel(mistaken)


writes_to_q = reaching("writes_to_q", lambda q, k, v: q.ctypes.data + 8)
writes_before_k = reaching("writes_before_k", lambda q, k, v: k.ctypes.data - 8)
writes_far_behind_v = reaching("writes_far_behind_v",
                               lambda q, k, v: v.ctypes.data + v.nbytes + 500_000)
_places = []
writes_to_an_earlier_q = reaching(
    "writes_to_an_earlier_q", lambda q, k, v: _places.append(q.ctypes.data) or _places[0])


@kernel
def reads_behind_v(p, q, k, v):
    ctypes.string_at(v.ctypes.data + v.nbytes, 5000)
    return plain(p, q, k, v)


@kernel
def writes_behind_its_output(p, q, k, v):
    o, lse = plain(p, q, k, v)
    p.out("o")[...] = o
    ctypes.memset(p.out("o").ctypes.data + o.nbytes + 500_000, 0, 4)
    return None, lse


@attest.kernel(dtypes=["f32"],
               features=["causal", "window", "dilated", "mask-and", "mask-or", "gqa"])
def causal_alone(p, q, k, v):
    assert p.causal, p.mask
