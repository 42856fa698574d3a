"""A mask as a table, by its definition (SPEC.md, MASK-1 to MASK-13)."""
from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np

Tables = Callable[[str], np.ndarray]


def table(mask: Dict[str, Any], tables: Tables, query_lengths: np.ndarray,
          key_lengths: np.ndarray, queries: int, keys: int) -> np.ndarray:
    """Of a mask as requests have it: booleans [B or 1, Hq or 1, queries, keys], within lengths."""
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    of_batch = (-1, 1, 1, 1)
    query_lengths, key_lengths = (x.reshape(of_batch) for x in (query_lengths, key_lengths))

    def ahead(node: Dict[str, Any]) -> np.ndarray:
        """How many keys beyond the diagonal."""
        corner = key_lengths - query_lengths if node["anchor"] == "bottom_right" else 0
        distance: np.ndarray = j - i - (node["offset"] + corner)
        return distance

    def allows(node: Dict[str, Any]) -> Any:
        kind = node["kind"]
        if kind == "all_of":
            return np.logical_and.reduce(np.broadcast_arrays(*map(allows, node["parts"])))
        if kind == "any_of":
            return np.logical_or.reduce(np.broadcast_arrays(*map(allows, node["parts"])))
        if kind == "band":
            left, right = node["left"], node["right"]
            behind = True if left is None else ahead(node) >= -left
            return np.logical_and(behind, True if right is None else ahead(node) <= right)
        if kind == "dilated":
            return ahead(node) % node["dilation"] == 0
        if kind == "dense":
            return tables(node["table"])
        if kind == "prefix":
            return j < tables(node["table"]).reshape(of_batch)
        if kind == "segments":
            of_query = tables(node["query_table"])  # [B or 1, 1, queries, 1]
            of_key = tables(node["key_table"]).swapaxes(2, 3)
            return (of_query == of_key) & (of_query >= 0)
        if kind == "block_sparse":
            blocks = tables(node["table"])
            return blocks[:, :, i // node["block_query"], j // node["block_key"]]
        return True

    real = (i < query_lengths) & (j < key_lengths)
    seen: np.ndarray = np.logical_and(allows(mask), real)
    return seen
