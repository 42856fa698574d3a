"""Masks as descriptions, which combine: causal("bottom_right") & segments(ids)."""
from __future__ import annotations

import dataclasses
from typing import Any, List, Optional, Sequence, Tuple

from attest_attention import _library
from attest_attention._arrays import Host, Keeper, aligned_right, booleans, host, integers
from attest_attention._numbers import whole

ANCHORS = ("top_left", "bottom_right")
_KINDS = {"full": _library.FULL, "band": _library.BAND, "dense": _library.DENSE,
          "prefix": _library.PREFIX, "segments": _library.SEGMENTS,
          "block_sparse": _library.BLOCK_SPARSE, "dilated": _library.DILATED,
          "all_of": _library.ALL_OF, "any_of": _library.ANY_OF}
_COMBINED = ("all_of", "any_of")
_TABLES = {"dense": 1, "prefix": 1, "block_sparse": 1, "segments": 2}  # how many each kind has


@dataclasses.dataclass(frozen=True)
class Mask:
    """Which keys each query may attend to (SPEC.md, MASK-1 to MASK-13)."""

    kind: str
    anchor: str = "top_left"
    offset: int = 0
    left: Optional[int] = None
    right: Optional[int] = None
    dilation: int = 1
    block: Tuple[int, int] = (1, 1)
    table: Any = None
    table2: Any = None
    parts: Tuple["Mask", ...] = ()

    # NumPy leaves `table & mask` to __rand__, and does not try it element by element.
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in _KINDS:
            raise ValueError(f"mask: no kind is called {self.kind!r}; there are "
                             f"{', '.join(_KINDS)}")
        if not isinstance(self.anchor, str) or self.anchor not in ANCHORS:
            raise ValueError(f"anchor: expected one of {ANCHORS}, got {self.anchor!r}")
        if self.kind in _COMBINED and not self.parts:
            raise ValueError(f"mask: {self.kind} needs parts, which & and | give it")
        for part in self.parts:
            if not isinstance(part, Mask):
                raise TypeError(f"mask: a part is a Mask, got {type(part).__name__}")
        self._take_numbers()

    def _take_numbers(self) -> None:
        """As Python has them, each within what its field holds."""
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)  # it is frozen to others

        put("offset", whole(self.offset, "offset"))
        put("dilation", whole(self.dilation, "dilation", 1))
        for name in ("left", "right"):
            width = getattr(self, name)
            put(name, None if width is None else whole(width, name, 0))
        if not isinstance(self.block, tuple) or len(self.block) != 2:
            raise TypeError(f"block: expected (queries, keys), got {self.block!r}")
        put("block", tuple(whole(size, name, 1) for size, name in
                           zip(self.block, ("block_query", "block_key"))))

    def __and__(self, other: Any) -> "Mask":
        return Mask("all_of", parts=(self, as_mask(other)))

    def __or__(self, other: Any) -> "Mask":
        return Mask("any_of", parts=(self, as_mask(other)))

    def __rand__(self, other: Any) -> "Mask":
        return as_mask(other) & self

    def __ror__(self, other: Any) -> "Mask":
        return as_mask(other) | self


def causal(anchor: str, offset: int = 0) -> Mask:
    """Up to the diagonal, which begins at the top left or ends at the bottom right."""
    return Mask("band", anchor=anchor, offset=offset, right=0)


def window(left: Optional[int], right: Optional[int], anchor: str, offset: int = 0) -> Mask:
    """That many keys before and after the diagonal; None: all."""
    return Mask("band", anchor=anchor, offset=offset, left=left, right=right)


def dense(table: Any) -> Mask:
    """A table of booleans that broadcasts to [batch, query heads, queries, keys]; True attends."""
    return Mask("dense", table=booleans(table, "mask", " (additive masks are bias=)"))


def prefix(lengths: Any) -> Mask:
    """The first keys: of all batch elements, or a number for each."""
    return Mask("prefix", table=integers(lengths, "prefix", "i64"))


def segments(query: Any, key: Any = None) -> Mask:
    """Numbers [length] or [batch, length]: a query sees the keys of its own; negative: none."""
    of_query = integers(query, "segment_ids", "i32")
    return Mask("segments", table=of_query,
                table2=of_query if key is None else integers(key, "segment_ids", "i32"))


def block_sparse(table: Any, block_query: int, block_key: int) -> Mask:
    """A table of booleans for blocks of so many queries and keys."""
    return Mask("block_sparse", block=(block_query, block_key), table=booleans(table, "mask"))


def dilated(dilation: int, anchor: str, offset: int = 0) -> Mask:
    """Every so many keys, counted from the diagonal."""
    return Mask("dilated", anchor=anchor, offset=offset, dilation=dilation)


def _of_positions(table: Host, length: int, name: str) -> Host:
    shape = (1,) * (2 - table.data.ndim) + table.shape
    if len(shape) != 2 or shape[1] != length:
        raise ValueError(f"segment_ids: expected [{length}] or [batch, {length}] for the {name}, "
                         f"got {table.shape}")
    return table.reshaped(shape[0], 1, length, 1)


class _Nodes:
    """The nodes of a mask, children first."""

    def __init__(self, whole: Sequence[int], keeper: Keeper) -> None:
        self._whole, self._keeper = whole, keeper
        self.all: List[_library.MaskNode] = []

    def add(self, mask: Mask) -> int:
        if mask.kind in _COMBINED:
            last = self.add(mask.parts[0])
            for part in mask.parts[1:]:
                node = _library.sized(_library.MaskNode)
                node.kind = _KINDS[mask.kind]
                node.first, node.second = last, self.add(part)
                last = self._append(node)
            return last
        return self._append(self._leaf(mask))

    def _append(self, node: _library.MaskNode) -> int:
        self.all.append(node)
        return len(self.all) - 1

    def _leaf(self, mask: Mask) -> _library.MaskNode:
        batch, heads, queries, keys = self._whole
        if not all(isinstance(table, Host) for table in
                   (mask.table, mask.table2)[:_TABLES.get(mask.kind, 0)]):
            raise TypeError(f"mask: a Mask of {mask.kind} needs a table: attest_attention."
                            f"{mask.kind}() makes one with it")
        node: _library.MaskNode = _library.sized(_library.MaskNode)
        node.kind = _KINDS[mask.kind]
        node.anchored_bottom_right = mask.anchor == "bottom_right"
        node.offset, node.dilation = mask.offset, mask.dilation
        node.left = _library.UNBOUNDED if mask.left is None else mask.left
        node.right = _library.UNBOUNDED if mask.right is None else mask.right
        node.block_query, node.block_key = mask.block
        tensor = self._keeper.tensor
        if mask.kind == "dense":
            node.table = tensor(aligned_right(mask.table, self._whole, "mask"))
        elif mask.kind == "block_sparse":
            blocks = (batch, heads, -(-queries // mask.block[0]), -(-keys // mask.block[1]))
            node.table = tensor(aligned_right(mask.table, blocks, "mask"))
        elif mask.kind == "prefix":
            node.table = tensor(mask.table.reshaped(mask.table.data.size, 1, 1, 1))
        elif mask.kind == "segments":
            node.table = tensor(_of_positions(mask.table, queries, "queries"))
            node.table2 = tensor(_of_positions(mask.table2, keys, "keys"))
        return node


def nodes_of(masks: Sequence[Mask], whole: Sequence[int], keeper: Keeper) -> Any:
    """An array of native nodes of the intersection; `whole` is [batch, heads, queries, keys]."""
    nodes = _Nodes(whole, keeper)
    if masks:
        nodes.add(masks[0] if len(masks) == 1 else Mask("all_of", parts=tuple(masks)))
    return (_library.MaskNode * len(nodes.all))(*nodes.all)


def as_mask(value: Any) -> Mask:
    """A description, or a table of booleans."""
    if isinstance(value, Mask):
        return value
    return dense(host(value, "mask", floats=False).data)
