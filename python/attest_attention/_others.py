"""Other lengths and tables of a problem, as valid as its own and of the same sizes: a kernel that
keeps those of one call is wrong in another (DEV-2, DEV-3)."""
from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator

import numpy as np

from attest_attention._tensors import HostTables, Memory

# A larger one may be nearly all holes, which are to stay such, and stays what it is.
_LARGE = 1 << 30


class OtherTables(HostTables):
    """Inputs by name, of which lengths and tables are others than those of the request."""

    def __init__(self, memory: Memory, told: Dict[str, Any], problem: Dict[str, Any]) -> None:
        super().__init__(memory, told)
        self._problem = problem

    @cached_property
    def others(self) -> Dict[str, np.ndarray]:
        """Those that are others."""
        return _others(self._problem, {
            name: self._memory.view(each) for name, each in self._told.items()
            if each["memory"] == "input" and each["region_bytes"] <= _LARGE})

    def __call__(self, name: str) -> np.ndarray:
        return self.others[name] if name in self.others else super().__call__(name)


def _others(problem: Dict[str, Any], given: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """By name. Each batch element has what the next one had; a mask where that is the same, another
    one. Lengths are no others than there were: limits may exclude them."""
    found: Dict[str, np.ndarray] = {name: _starts(given[name]) for name in (
        "cu_query_lens", "cu_key_lens") if name in given}
    found.update({name: _next(given[name]) for name in ("query_lens", "key_lens") if name in given})
    if "page_table" in given:
        found["page_table"] = _pages(_next(given["page_table"]))
    for node in _nodes(problem["mask"]):
        for key in ("table", "query_table", "key_table"):
            if node.get(key) in given:
                table = given[node[key]]
                found[node[key]] = _segments(table) if node["kind"] == "segments" else \
                    _prefixes(table, problem["key_len"]) if node["kind"] == "prefix" else ~table
    if "keep" in given:
        found["keep"] = ~given["keep"]  # whole bytes of bits
    return found


def _nodes(mask: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    yield mask
    for part in mask.get("parts", ()):
        yield from _nodes(part)


def _next(table: np.ndarray) -> np.ndarray:
    turned: np.ndarray = np.roll(table, -1, 0)
    return turned


def _prefixes(ends: np.ndarray, most: int) -> np.ndarray:
    turned = _next(ends)
    if np.array_equal(turned, ends):
        turned = np.where(ends > 1, ends - 1, np.minimum(ends + 1, most))
    return turned


def _starts(starts: np.ndarray) -> np.ndarray:
    """Of packed sequences: equal ones stay, as the longest and the sum are to be what they were."""
    lengths = _next(np.diff(starts, axis=0))
    return np.concatenate([starts[:1], np.cumsum(lengths, 0)])


def _pages(table: np.ndarray) -> np.ndarray:
    """Those of a row in another order."""
    found = table.copy()
    for row in found:
        count = np.count_nonzero(row >= 0)
        row[:count] = np.roll(row[:count], 1, 0)
    return found


def _segments(numbers: np.ndarray) -> np.ndarray:
    """Where they begin one position later, if they are those of every batch element."""
    turned = _next(numbers)
    if np.array_equal(turned, numbers):
        turned = np.concatenate([numbers[:, :, :1], numbers[:, :, :-1]], 2)
    if np.array_equal(turned, numbers):
        turned[:, :, -1:] += 1
    return turned
