"""What may be said of a problem beside its arrays: one table, for types and for messages."""
from __future__ import annotations

import difflib
from typing import Any, Dict, Optional, Tuple, TypedDict, Union

# NUMERICS.md, section 9. Or JSON, as text or a dict: a whole description of a kernel, or the
# arithmetic of it.
ARITHMETICS = ("exact-f32", "gpu-16bit", "gpu-tf32", "npu-16bit", "anything")


class Options(TypedDict, total=False):
    """Arrays are those of any library; [axes] are named as `layout` names them."""

    scale: Optional[float]  # of q.k; default: 1/sqrt(head_dim)
    # True where "top_left" and "bottom_right" are the same: as many queries as keys.
    causal: Union[bool, str]
    # (left, right) or (left, right, anchor): keys before and after the diagonal; None or -1: all.
    window: Optional[Tuple[Any, ...]]
    mask: Any  # a Mask, or booleans that broadcast to [batch, query heads, queries, keys]
    segment_ids: Any  # [length] or [batch, length], of both; or a tuple, of queries and of keys
    query_lengths: Any  # [batch]: how many are real
    key_lengths: Any
    # [batch + 1], of both; or a tuple. Then q, k, v and o have no batch axis: "shd" or "hsd".
    cu_seqlens: Any
    page_table: Any  # [batch, pages]: the batch axis of k and v counts pages; needs key_lengths
    softcap: float  # c of c tanh(x / c); 0: none
    sinks: Any  # [query heads]
    bias: Any  # broadcasts to [batch, query heads, queries, keys]; in the format of q
    alibi_slopes: Any  # [query heads] or [batch, query heads]
    dropout_p: float  # with keep_mask
    keep_mask: Any  # booleans that broadcast to [batch, query heads, queries, keys]; True keeps
    layout: str  # "bhsd" (default), "bshd"; packed: "shd" (default), "hsd"
    dtype: Optional[str]  # "bf16": arrays of 16-bit integers hold the bits of bf16
    ignore_padding: bool  # rows beyond a query length may hold anything
    threads: int  # 0 (default): as many as there are processors


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
