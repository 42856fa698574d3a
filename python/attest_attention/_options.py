"""What may be said of a problem beside its arrays: one table, for types and for messages."""
from __future__ import annotations

import difflib
from typing import Any, Dict, Optional, Tuple, TypedDict, Union

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
    softcap         c of c tanh(x / c); 0: none
    sinks           [query heads]: a logit each
    bias            is added to scores; broadcasts to [batch, query heads, queries, keys]; in the
                    format of q
    alibi_slopes    [query heads] or [batch, query heads]
    dropout_p, keep_mask    the probability, and booleans that broadcast to [batch, query heads,
                    queries, keys]; True keeps
    layout          "bhsd" (default) or "bshd"; with cu_seqlens "shd" (default) or "hsd"
    dtype           "bf16": arrays of 16-bit integers hold the bits of bf16
    ignore_padding  rows beyond a query length may hold anything
    threads         how many may compute; 0 (default): as many as there are processors
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
    "softcap": 0.0, "sinks": None, "bias": None, "alibi_slopes": None, "dropout_p": 0.0,
    "keep_mask": None, "layout": None, "dtype": None, "ignore_padding": False, "threads": 0,
}


def complete(options: Dict[str, Any]) -> Dict[str, Any]:
    """With defaults for what is not said. Raises TypeError for what there is not."""
    for name in options:
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(DEFAULTS)}"
            raise TypeError(f"no option is called {name!r}{hint}")
    return {**DEFAULTS, **options}
