"""The functions people came for."""
from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, Dict, Sequence, Union

from attest_attention import _saved
from attest_attention._options import arithmetic_text, complete, taken
from attest_attention._problem import Call
from attest_attention._result import Result, result_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attest_attention._options import Options

Gradients = Union[Sequence[Any], Dict[str, Any]]
_GRADIENTS = ("dq", "dk", "dv")


def _judge(arrays: Dict[str, Any], arithmetic: Any, options: Dict[str, Any]) -> Result:
    call = Call(arrays, arithmetic_text(arithmetic), complete(taken(options)))
    return result_of(call.judge(), call.index_of, call.not_judged())


def _assert(arrays: Dict[str, Any], arithmetic: Any, options: Dict[str, Any],
            save: _saved.Save) -> Result:
    save, options = _saved.where(save), taken(options)
    arithmetic = arithmetic_text(arithmetic)
    result = _judge(arrays, arithmetic, options)
    if result.passed:
        return result
    try:
        path = _saved.save({"arrays": arrays, "arithmetic": arithmetic, "options": options}, save)
    except (OSError, ValueError) as error:  # a full disk; of which NumPy makes a ValueError
        raise AssertionError(f"{result}\n  not saved     {error}") from error
    raise AssertionError(str(dataclasses.replace(result, saved=path or "")))


def judge(o: Any, q: Any, k: Any, v: Any, *, arithmetic: Any, lse: Any = None,
          **options: Unpack[Options]) -> Result:
    """The verdict on `o`, and on `lse` [batch, query heads, queries] if it is given.

    `arithmetic` is what the kernel computes in: one of ARITHMETICS, or a declaration. Raises
    ValueError or TypeError, which names the argument, for what cannot be judged.
    """
    return _judge({"q": q, "k": k, "v": v, "o": o, "lse": lse}, arithmetic, dict(options))


def _gradients(gradients: Gradients, names: Dict[str, Any]) -> Dict[str, Any]:
    given = gradients
    if isinstance(gradients, (tuple, list)) and len(gradients) == len(_GRADIENTS):
        given = dict(zip(_GRADIENTS, gradients))
    if not isinstance(given, dict) or not given or not set(given) <= set(_GRADIENTS):
        raise TypeError("gradients: expected (dq, dk, dv), or a dict of those of them that are "
                        "judged")
    for name, value in given.items():
        if value is None:
            raise TypeError(f"{name} is None: the gradient is missing; to leave it out, give a "
                            "dict of the others: {'dq': ..., 'dk': ..., 'dv': ...} without it")
    if names["d_o"] is None:
        raise TypeError("d_o: the gradients need it")
    return {**names, **given}


def judge_gradients(gradients: Gradients, q: Any, k: Any, v: Any, d_o: Any, *, arithmetic: Any,
                    o: Any = None, lse: Any = None, d_lse: Any = None, dbias: Any = None,
                    dsink: Any = None, **options: Unpack[Options]) -> Result:
    """The verdict on (dq, dk, dv), and on `dbias` and `dsink` if they are given.

    A dict, as {"dk": dk, "dv": dv}, leaves out the others of the three; None is refused, as a
    gradient that nobody computed. Result.not_judged names what the verdict says nothing of.

    They are held to the gradients of the exact forward pass. `o` and `lse` of the kernel's own are
    judged first, if given: where they are wrong, gradients say nothing. `d_lse` is the gradient with
    respect to LSE.
    """
    arrays = _gradients(gradients, {"q": q, "k": k, "v": v, "d_o": d_o, "o": o, "lse": lse,
                                    "d_lse": d_lse, "dbias": dbias, "dsink": dsink})
    return _judge(arrays, arithmetic, dict(options))


def assert_close(o: Any, q: Any, k: Any, v: Any, *, arithmetic: Any, lse: Any = None,
                 save: _saved.Save = True, **options: Unpack[Options]) -> Result:
    """What judge() says, if that passes: `sampled` in it is how much was compared of what is too
    large for all. Else raises AssertionError.

    What failed is saved for `python -m attest_attention judge FILE`: in a temporary file, unless it
    is larger than 1 GiB; at the path `save`; or, with save=False, nowhere.
    """
    return _assert({"q": q, "k": k, "v": v, "o": o, "lse": lse}, arithmetic, dict(options), save)


def assert_gradients_close(gradients: Gradients, q: Any, k: Any, v: Any, d_o: Any, *,
                           arithmetic: Any, o: Any = None, lse: Any = None, d_lse: Any = None,
                           dbias: Any = None, dsink: Any = None, save: _saved.Save = True,
                           **options: Unpack[Options]) -> Result:
    """What judge_gradients() says, if that passes; else raises and saves as assert_close() does."""
    arrays = _gradients(gradients, {"q": q, "k": k, "v": v, "d_o": d_o, "o": o, "lse": lse,
                                    "d_lse": d_lse, "dbias": dbias, "dsink": dsink})
    return _assert(arrays, arithmetic, dict(options), save)


def judge_file(path: Union[str, "os.PathLike[str]"]) -> Result:
    """The verdict on what assert_close() or assert_gradients_close() saved."""
    call = _saved.load(path)
    return dataclasses.replace(_judge(call["arrays"], call["arithmetic"], call["options"]),
                               saved=os.fspath(path))
