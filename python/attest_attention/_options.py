"""What may be said of a problem beside its arrays: one table, for types and for messages."""
from __future__ import annotations

import difflib
import json
from typing import Any, Callable, Dict, Optional, Tuple, TypedDict, Union

from attest_attention._numbers import flag, real, shown, whole

# NUMERICS.md, section 9. Or JSON, as text or a dict: a whole description of a kernel, or the
# arithmetic of it.
ARITHMETICS = ("exact-f32", "gpu-16bit", "gpu-tf32", "npu-16bit", "anything")


class Options(TypedDict, total=False):
    """What may be said of a problem; arrays are those of any library.

    scale           of q.k; default: 1/sqrt(head_dim)
    causal          "top_left" or "bottom_right", where the diagonal begins or ends; True where that
                    is the same, because there are as many queries as keys
    window          (left, right) or (left, right, corner): how many keys before and after the
                    diagonal are seen; None or -1: all
    mask            a Mask, or booleans that broadcast to [batch, query heads, queries, keys]; True
                    attends. All of causal, window, mask and segment_ids must allow a key
    segment_ids     [length] or [batch, length] for both; or a tuple, for queries and for keys
    query_lengths, key_lengths    [batch]: how many are real; the rest is padding
    cu_seqlens      [batch + 1], where packed sequences begin, for both; or a tuple, for queries and
                    for keys. Then q, k, v, o and their gradients have no batch axis
    page_table      [batch, pages]: the batch axis of k and v counts pages; needs key_lengths
    q_scale, k_scale, v_scale    of q, k or v in float8_e4m3fn, float8_e5m2 or int8, by which it is
                    meant to be multiplied: a number, or f32 [batch or 1, heads or 1], or of as
                    many axes as the array in its layout, those of size 1 for all, or with as many
                    channels as the array has blocks: each 16 of int8 (bfp8), or 32 of others
                    (mxfp8), share a power of two. Then o says the format
    softcap         c of c tanh(x / c); 0: none
    sinks           [query heads]: a logit each
    bias            is added to scores; broadcasts to [batch, query heads, queries, keys]; in the
                    format of q. -inf hides a key, and so does finfo.min where the row sees another
    alibi_slopes    [query heads] or [batch, query heads]
    dropout_p, keep_mask    the probability, and booleans that broadcast to [batch, query heads,
                    queries, keys]; True keeps
    layout          "bhsd" (default) or "bshd"; with cu_seqlens "shd" (default) or "hsd"
    dtype           "bf16": arrays of 16-bit integers hold the bits of bf16
    ignore_padding  rows beyond a query length may hold anything
    threads         how many may compute, up to 1024; 0 (default): as many as there are processors
    """

    scale: Optional[float]
    causal: Union[bool, str]
    window: Optional[Tuple[Any, ...]]
    mask: Any
    segment_ids: Any
    query_lengths: Any
    key_lengths: Any
    cu_seqlens: Any
    page_table: Any
    q_scale: Any
    k_scale: Any
    v_scale: Any
    softcap: float
    sinks: Any
    bias: Any
    alibi_slopes: Any
    dropout_p: float
    keep_mask: Any
    layout: Optional[str]
    dtype: Optional[str]
    ignore_padding: bool
    threads: int


DEFAULTS: Dict[str, Any] = {
    "scale": None, "causal": False, "window": None, "mask": None, "segment_ids": None,
    "query_lengths": None, "key_lengths": None, "cu_seqlens": None, "page_table": None,
    "q_scale": None, "k_scale": None, "v_scale": None, "softcap": 0.0, "sinks": None, "bias": None, "alibi_slopes": None, "dropout_p": 0.0,
    "keep_mask": None, "layout": None, "dtype": None, "ignore_padding": False, "threads": 0,
}


MOST_THREADS = 1024


def _corner(value: Any) -> Any:
    """Where a diagonal is fixed: a flag becomes Python's; what it may be is judged later."""
    known = flag(value)
    return value if known is None else known


def _window(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) not in (2, 3):
        raise ValueError(f"window: expected (left, right) or (left, right, 'top_left' or "
                         f"'bottom_right'), got {value!r}")
    ends = [None if end is None else whole(end, "window") for end in value[:2]]
    if any(end is not None and end < -1 for end in ends):
        raise ValueError(f"window: a width is negative: {value!r}")
    return (*(None if end == -1 else end for end in ends), *map(_corner, value[2:]))


def _ignore_padding(value: Any) -> bool:
    known = flag(value)
    if known is None:
        raise TypeError(f"ignore_padding: expected True or False, got {type(value).__name__}")
    return known


# Of options that are numbers or flags, what makes them Python's. Raises TypeError, ValueError.
_TAKEN: Dict[str, Callable[[Any], Any]] = {
    "scale": lambda value: None if value is None else real(value, "scale"),
    "causal": _corner,
    "window": _window,
    "softcap": lambda value: 0.0 if value is None else real(value, "softcap"),
    "dropout_p": lambda value: real(value, "dropout_p"),
    "ignore_padding": _ignore_padding,
    "threads": lambda value: whole(value, "threads", 0, MOST_THREADS),
}


def taken(options: Dict[str, Any]) -> Dict[str, Any]:
    """The same options, with numbers that a file holds. Raises TypeError for what there is not."""
    for name in options:
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(DEFAULTS)}"
            raise TypeError(f"no option is called {name!r}{hint}")
    return {name: _TAKEN[name](value) if name in _TAKEN else value
            for name, value in options.items()}


def _declared(value: Any) -> Any:
    """For JSON, of what is in a declaration and no plain number."""
    try:
        return value.item()
    except Exception as error:
        raise TypeError(f"arithmetic: expected numbers, texts, lists and dicts, got "
                        f"{shown(value)}") from error


def arithmetic_text(arithmetic: Any) -> str:
    """A name, or a declaration as JSON."""
    if isinstance(arithmetic, dict):
        return json.dumps(arithmetic, default=_declared)
    if not isinstance(arithmetic, str):
        raise TypeError(f"arithmetic: expected one of {ARITHMETICS}, or a declaration as JSON or "
                        f"dict, got {type(arithmetic).__name__}")
    return arithmetic


def complete(options: Dict[str, Any]) -> Dict[str, Any]:
    """With defaults for what is not said."""
    return {**DEFAULTS, **options}
