"""What a kernel is asked for beside q, k and v. Tables become arrays when they are looked at."""
from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from attest_attention import _visible
from attest_attention._masks import Mask
from attest_attention._tensors import Tensors


class Problem:
    """One problem. What Options has too is called the same; arrays are of the kernel's library.

    dtype           "f64", "f32", "f16" or "bf16", of q, k, v, o, bias and their gradients; but
                    that q, k, v may be stored in 8 bits
    batch, query_heads, key_heads, query_len, key_len, head_dim, value_dim    sizes; of packed
                    sequences query_len and key_len are those of the longest
    scale, softcap  numbers; a softcap of 0 is none
    causal          None, "top_left" or "bottom_right"
    window          None, or (left, right, corner), in which None is without limit
    segment_ids     None, or numbers (of queries [batch or 1, query_len], of keys)
    mask            all of the mask, as a Mask; of kind "full" if there is none
    query_lengths, key_lengths    None, or [batch]
    packed          whether sequences follow each other: then the batch axis of q and o is 1, and
                    cu_seqlens (of queries, of keys; of pages None) [batch + 1] says where each
                    begins
    page_size       of pages of k and v, 0 if there are none; and page_table [batch, pages]
    q_scale, k_scale, v_scale    None, or, where q, k or v is stored in 8 bits, f32 that broadcasts
                    to it, [batch or 1, heads or 1, positions or 1, 1]: meant is the product. Or,
                    of bfp8 and mxfp8, [batch, heads, positions, blocks]: a power of two for each
                    16 channels of int8, or 32 of others, the last perhaps in part
    bias            None, or what broadcasts to [batch, query_heads, query_len, key_len]
    alibi_slopes    None, or [batch or 1, query_heads]
    sinks           None, or [query_heads]
    dropout_p, keep_mask    the probability, and None or booleans; where the kernel is to draw the
                    mask, draws_keep is true, and there are dropout_seed and dropout_offset
    d_lse           of a backward pass: None, or the gradient with respect to LSE
    wants_gradients whether a backward pass follows this forward pass
    threads         on how many the call may compute
    out(name)       the memory of an output ("o", "lse", "dq", ...) as an array, with the strides
                    that are asked for: what is written there need not be returned, and neither
                    elements that are left out nor writes around it are overlooked. JAX has none
    stream          on a device, the handle of the stream that is to be used; torch's current one is
                    the same. JAX chooses its own: None, as on a CPU
    """

    def __init__(self, asked: Dict[str, Any], tensors: Tensors, threads: int) -> None:
        self._asked, self._tensors, self.threads = asked, tensors, threads
        self.dtype: str = asked["dtype"]
        self.batch: int = asked["batch"]
        self.query_heads: int = asked["query_heads"]
        self.key_heads: int = asked["key_heads"]
        self.query_len: int = asked["query_len"]
        self.key_len: int = asked["key_len"]
        self.head_dim: int = asked["head_dim"]
        self.value_dim: int = asked["value_dim"]
        self.scale: float = asked["scale"]
        self.softcap: float = asked["softcap"]
        self.packed: bool = asked["packed"]
        self.page_size: int = asked["page_size"]
        self.wants_gradients: bool = asked["backward"]
        dropout = asked["dropout"]
        self.dropout_p: float = dropout["probability"]
        self.draws_keep: bool = dropout["mode"] == "generated"
        self.dropout_seed, self.dropout_offset = int(dropout["seed"]), int(dropout["offset"])
        # Whose tables all that with_arrays() makes of it share: none is copied to a device while a
        # graph is captured.
        self._as_asked = self

    def __repr__(self) -> str:
        heads = f"h{self.query_heads}/{self.key_heads}"
        return (f"<{self.dtype} b{self.batch} {heads} q{self.query_len} k{self.key_len} "
                f"d{self.head_dim} mask {self._asked['mask']['kind']}>")

    def with_arrays(self, arrays: Dict[str, Any]) -> Problem:
        """The same with other arrays, by name."""
        other = copy.copy(self)
        other.__dict__.update(arrays)
        return other

    def out(self, name: str) -> Any:
        return self._tensors.out(name)

    @property
    def stream(self) -> Optional[int]:
        return self._tensors.stream

    # ---- Lengths, pages, what is added to scores ---------------------------------------------

    @cached_property
    def query_lengths(self) -> Any:
        return self._tensors.array("query_lens", 1)

    @cached_property
    def key_lengths(self) -> Any:
        return self._tensors.array("key_lens", 1)

    @cached_property
    def cu_seqlens(self) -> Optional[Tuple[Any, Any]]:
        if not self.packed:
            return None
        return self._tensors.array("cu_query_lens", 1), self._tensors.array("cu_key_lens", 1)

    @cached_property
    def page_table(self) -> Any:
        return self._tensors.array("page_table", 2)

    @cached_property
    def q_scale(self) -> Any:
        return self._tensors.array("q_scale")

    @cached_property
    def k_scale(self) -> Any:
        return self._tensors.array("k_scale")

    @cached_property
    def v_scale(self) -> Any:
        return self._tensors.array("v_scale")

    @cached_property
    def bias(self) -> Any:
        return self._tensors.array("bias")

    @cached_property
    def alibi_slopes(self) -> Any:
        return self._tensors.array("slopes", 2)

    @cached_property
    def sinks(self) -> Any:
        sinks = self._tensors.array("sink", 2)
        return None if sinks is None else sinks[0]

    @cached_property
    def keep_mask(self) -> Any:
        return self._tensors.array("keep")

    @cached_property
    def d_lse(self) -> Any:
        return self._tensors.array("d_lse", 3)

    # ---- The mask ----------------------------------------------------------------------------

    @cached_property
    def mask(self) -> Mask:
        return self._mask(self._asked["mask"])

    def _mask(self, node: Dict[str, Any]) -> Mask:
        array, kind = self._tensors.array, node["kind"]
        if kind in ("all_of", "any_of"):
            return Mask(kind, parts=tuple(self._mask(part) for part in node["parts"]))
        told: Dict[str, Any] = {key: node[key] for key in (
            "anchor", "offset", "left", "right", "dilation") if key in node}
        if kind == "segments":
            told.update(table=self._of_positions(node["query_table"]),
                        table2=self._of_positions(node["key_table"]))
        elif "table" in node:
            told.update(table=array(node["table"], 1 if kind == "prefix" else 4))
        if kind == "block_sparse":
            told.update(block=(node["block_query"], node["block_key"]))
        return Mask(kind, **told)

    def _of_positions(self, name: str) -> Any:
        table = self._tensors.array(name)
        return table.reshape(table.shape[0], table.shape[2])

    def _only(self, kind: str, what: str) -> Optional[Mask]:
        """The one part of that kind in a mask that is an intersection, or a single part."""
        parts = _parts(self.mask)
        if any(part.kind == "any_of" for part in parts):
            raise ValueError(f"p.{what}: the mask is a union of others: read p.mask")
        found = [part for part in parts if _kind(part) == kind]
        if len(found) > 1:
            raise ValueError(f"p.{what}: the mask has {len(found)} of them: read p.mask")
        if found and found[0].offset:
            raise ValueError(f"p.{what}: its diagonal is moved by {found[0].offset}: read p.mask, "
                             "or declare limits={'mask_offset': 0}")
        return found[0] if found else None

    @property
    def causal(self) -> Optional[str]:
        part = self._only("causal", "causal")
        return part.anchor if part else None

    @property
    def window(self) -> Optional[Tuple[Optional[int], Optional[int], str]]:
        part = self._only("window", "window")
        return (part.left, part.right, part.anchor) if part else None

    @property
    def segment_ids(self) -> Optional[Tuple[Any, Any]]:
        part = self._only("segments", "segment_ids")
        return (part.table, part.table2) if part else None

    def visible(self) -> Any:
        """Mask and lengths as booleans [batch or 1, query_heads or 1, query_len, key_len], for
        kernels that take a table alone."""
        return self._as_asked._visible

    @cached_property
    def _visible(self) -> Any:
        asked, tensors = self._asked, self._tensors
        queries, keys = self._lengths()
        return tensors.backend.array(_visible.table(asked["mask"], tensors.numpy, queries, keys,
                                                    asked["query_len"], asked["key_len"]))

    def _lengths(self) -> List[np.ndarray]:
        """Of queries and of keys, for each batch element."""
        given = self._tensors.numpy
        return [np.diff(given(f"cu_{name}_lens").ravel()) if f"cu_{name}_lens" in given.names else
                given(f"{name}_lens").ravel() if f"{name}_lens" in given.names else
                np.array([self._asked[f"{name}_len"]]) for name in ("query", "key")]


def _parts(mask: Mask) -> List[Mask]:
    if mask.kind != "all_of":
        return [mask]
    return [each for part in mask.parts for each in _parts(part)]


def _kind(mask: Mask) -> str:
    if mask.kind != "band":
        return mask.kind
    return "causal" if mask.left is None and mask.right == 0 else "window"
