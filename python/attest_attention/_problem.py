"""Arrays and options as the structs of attest_plugin.h. What is wrong is named here, by argument."""
from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from attest_attention import _library, _masks
from attest_attention._arrays import (Host, Keeper, aligned_right, as_f32, booleans, expect_dtype,
                                      expect_shape, host, integers)
from attest_attention._formats import AS_BITS, FORMATS, STORED
from attest_attention._numbers import real

LAYOUTS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3)}
PACKED_LAYOUTS = {"hsd": (0, 1, 2), "shd": (1, 0, 2)}

# What may be judged: arguments, which attest_outputs has by the same names.
OUTPUTS = ("o", "lse", "dq", "dk", "dv", "dbias", "dsink")
GRADIENTS = OUTPUTS[2:]
# Arguments that libattest calls otherwise.
ARGUMENTS = {"sink": "sinks", "keep": "keep_mask"}


def pair(value: Any, name: str) -> Tuple[Any, Any]:
    """Of queries and of keys: a tuple is both, anything else stands for both."""
    if not isinstance(value, tuple):
        return value, value
    if len(value) != 2:
        raise ValueError(f"{name}: expected an array, or a tuple of two, got {len(value)} values")
    return value


def _listed(names: Iterable[str]) -> str:
    """One of them: "f64, f32 or f16"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


class Call:
    """One problem with its outputs, ready for libattest."""

    def __init__(self, arrays: Dict[str, Any], arithmetic: str, options: Dict[str, Any]) -> None:
        self._options = options
        self._keeper = Keeper()
        self._bits = options["dtype"]
        if self._bits is not None and not (isinstance(self._bits, str) and self._bits in AS_BITS):
            raise ValueError(f"dtype: expected None or {_listed(map(repr, AS_BITS))}, got "
                             f"{self._bits!r}")
        self.packed = options["cu_seqlens"] is not None
        self._choose_layout()
        self.problem = _library.sized(_library.Problem)
        self.inputs = _library.sized(_library.Inputs)
        self.outputs = _library.sized(_library.Outputs)
        self._arithmetic = arithmetic.encode()
        self._read_qkv(arrays)
        self._read_lengths()
        self._read_scores()
        self._read_masks()
        self._read_results(arrays)

    def judge(self) -> Dict[str, Any]:
        """The verdict as libattest has it. Raises ValueError where it refuses the arguments."""
        options = _library.sized(_library.JudgeOptions)
        options.arithmetic = self._arithmetic
        options.threads = self._options["threads"]
        options.ignores_padding = self._options["ignore_padding"]
        verdict: Dict[str, Any] = json.loads(
            _library.verdict_text(self.problem, self.inputs, self.outputs, options))
        if "error" in verdict:
            error = verdict["error"]
            where = re.sub("^(inputs|outputs|options)[.]", "", error["where"])
            raise ValueError(f"{ARGUMENTS.get(where, where)}: {error['what']}")
        return verdict

    # ---- Layouts -----------------------------------------------------------------------------

    def _choose_layout(self) -> None:
        known = PACKED_LAYOUTS if self.packed else LAYOUTS
        layout = self._options["layout"] or ("shd" if self.packed else "bhsd")
        if not isinstance(layout, str) or layout not in known:
            raise ValueError(f"layout: expected one of {tuple(known)}"
                             f"{' with cu_seqlens' if self.packed else ''}, got {layout!r}")
        self.layout, self._axes = layout, known[layout]

    def _native(self, array: Host) -> Host:
        """Of four axes, from the caller's layout."""
        turned = array.transposed(*self._axes)
        return turned.reshaped(1, *turned.shape) if self.packed else turned

    def _outer(self, shape: Sequence[int]) -> Tuple[int, ...]:
        """A shape of four axes in the caller's layout."""
        inner = tuple(shape[1:]) if self.packed else tuple(shape)
        return tuple(inner[axis] for axis in np.argsort(self._axes))

    def _array(self, value: Any, name: str, shape: Optional[Sequence[int]] = None) -> Host:
        """In the format of the problem, of that shape of four axes if one is known."""
        array = host(value, name, self._bits)
        if array.data.ndim != len(self._axes):
            raise ValueError(f"{name}: expected {len(self._axes)} axes ({self.layout}), got shape "
                             f"{array.shape}")
        if shape is not None:
            expect_shape(array, self._outer(shape), name, f" ({self.layout})")
        if name not in ("q", "k", "v") or array.dtype not in STORED:
            expect_dtype(array, self.dtype, name, self._why)
        return self._native(array)

    # ---- The problem -------------------------------------------------------------------------

    def _read_qkv(self, arrays: Dict[str, Any]) -> None:
        q = host(arrays["q"], "q", self._bits)
        # Of what is stored in 8 bits the results tell the format of the problem.
        self._why = " as q"
        if q.dtype in STORED and arrays.get("o") is not None:
            q, self._why = host(arrays["o"], "o", self._bits), " as o"
        if q.dtype not in FORMATS:
            hint = ""
            if q.dtype in ("uint16", "int16"):
                hint = f" (dtype={_listed(map(repr, AS_BITS))} takes these as bits)"
            raise TypeError(f"q: expected {_listed(FORMATS)}, got {q.dtype}{hint}")
        if self._bits not in (None, q.dtype):
            raise TypeError(f"dtype: {self._bits!r} says how 16 bits are read, and q is {q.dtype}: "
                            f"round it to {self._bits} first")
        self.dtype, self.wide = q.dtype, "f64" if q.dtype == "f64" else "f32"
        q, k, v = (self._array(arrays[name], name) for name in ("q", "k", "v"))
        self.q_shape, self.k_shape, self.v_shape = q.shape, k.shape, v.shape
        paged = self._options["page_table"] is not None
        where = f" ({self.layout}, after k of shape {self._outer(k.shape)})"
        if k.shape[3] != q.shape[3]:
            raise ValueError(f"k: expected head_dim {q.shape[3]} as q, got {k.shape[3]}")
        if v.shape[:3] != k.shape[:3]:
            raise ValueError(f"v: expected shape {self._outer((*k.shape[:3], v.shape[3]))}{where}, "
                             f"got {self._outer(v.shape)}")
        if not (paged or self.packed) and k.shape[0] != q.shape[0]:
            raise ValueError(f"k: expected batch {q.shape[0]} as q, got {k.shape[0]}")
        if q.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1]):
            raise ValueError(f"k: its {k.shape[1]} heads do not divide the {q.shape[1]} of q")
        p, tensor = self.problem, self._keeper.tensor
        p.dtype = FORMATS[self.dtype].code
        p.batch, p.query_heads, p.query_len, p.head_dim = q.shape
        p.key_heads, p.key_len, p.value_dim = k.shape[1], k.shape[2], v.shape[3]
        self.inputs.q, self.inputs.k, self.inputs.v = tensor(q), tensor(k), tensor(v)
        self.o_shape = (*q.shape[:3], v.shape[3])
        for name, array in (("q", q), ("k", k), ("v", v)):
            self._read_scales(f"{name}_scale", name, array)

    def _read_scales(self, name: str, of: str, array: Host) -> None:
        value = self._options[name]
        if array.dtype not in STORED:
            if value is not None:
                raise ValueError(f"{name}: {of} is {array.dtype}, which is stored without scales")
            return
        if value is None:
            raise ValueError(f"{name}: {of} is {array.dtype}, which is stored with scales")
        if not hasattr(value, "shape"):
            value = np.float32(real(value, name))
        scales = as_f32(value, name, self._bits)
        axes = scales.data.ndim
        if axes == 0:
            scales = scales.reshaped(1, 1, 1, 1)
        elif axes == 2 and not self.packed:
            scales = scales.reshaped(*scales.shape, 1, 1)
        elif axes == len(self._axes):
            scales = self._native(scales)
        # bfp8 and mxfp8: each 16 channels of int8, or 32 of others, have a scale.
        block = 16 if array.dtype == "int8" else 32
        wanted = (*array.shape[:3], -(-array.shape[3] // block))
        in_blocks = len(scales.shape) == 4 and scales.shape[3] > 1
        if len(scales.shape) != 4 or any(size != whole and (in_blocks or size != 1)
                                         for size, whole in zip(scales.shape, wanted)):
            raise ValueError(f"{name}: expected a number, [batch or 1, heads or 1], shape "
                             f"{self._outer((*wanted[:3], 1))} with 1 for any of it, or "
                             f"{self._outer(wanted)} ({self.layout}), got {tuple(np.shape(value))}")
        setattr(self.inputs, name, self._keeper.tensor(scales))

    def _table(self, array: Host) -> _library.Tensor:
        return self._keeper.tensor(array.reshaped(*array.shape, *(1,) * (4 - array.data.ndim)))

    def _lengths(self, name: str, whole: int) -> Optional[List[int]]:
        value = self._options[name]
        if value is None:
            return None
        lengths = integers(value, name, "i64")
        expect_shape(lengths, (self.problem.batch,), name, " (batch)")
        numbers: List[int] = lengths.data.tolist()
        for at, length in enumerate(numbers):
            if not 0 <= length <= whole:
                raise ValueError(f"{name}: expected lengths within 0 and {whole}, got {length} at "
                                 f"[{at}]")
        setattr(self.problem, name.replace("engths", "ens"), self._table(lengths))
        return numbers

    def _read_lengths(self) -> None:
        p = self.problem
        if self.packed:
            self._read_packed()
        if self._options["page_table"] is not None:
            self._read_pages()
        queries = None if self.packed else self._lengths("query_lengths", p.query_len)
        if self.packed and self._options["query_lengths"] is not None:
            raise ValueError("query_lengths: cu_seqlens has the lengths already")
        keys = None
        if not self.packed or p.page_size:
            keys = self._lengths("key_lengths", p.key_len)
        elif self._options["key_lengths"] is not None:
            raise ValueError("key_lengths: cu_seqlens has the lengths already")
        if not self.packed:
            self.lengths = list(zip(queries or [p.query_len] * p.batch,
                                    keys or [p.key_len] * p.batch))

    def _starts(self, value: Any, name: str, total: int) -> List[int]:
        starts = integers(value, name, "i64")
        numbers = starts.data.ravel().tolist()
        ascends = all(a <= b for a, b in zip(numbers, numbers[1:]))
        if starts.data.ndim != 1 or not numbers or numbers[0] != 0 or not ascends:
            raise ValueError(f"{name}: expected numbers that ascend from 0, got {numbers[:8]}")
        if numbers[-1] != total:
            raise ValueError(f"{name}: ends at {numbers[-1]}, of {total} positions")
        setattr(self.problem, "cu_query_lens" if "[0]" in name else "cu_key_lens",
                self._table(starts))
        return [b - a for a, b in zip(numbers, numbers[1:])]

    def _read_packed(self) -> None:
        p = self.problem
        of_queries, of_keys = pair(self._options["cu_seqlens"], "cu_seqlens")
        queries = self._starts(of_queries, "cu_seqlens[0]", self.q_shape[2])
        p.batch, p.query_len = len(queries), max(queries, default=0)
        if self._options["page_table"] is not None:
            self.lengths = []
            return
        keys = self._starts(of_keys, "cu_seqlens[1]", self.k_shape[2])
        if len(keys) != len(queries):
            raise ValueError(f"cu_seqlens: {len(queries)} sequences of queries, {len(keys)} of keys")
        p.key_len = max(keys, default=0)
        self.lengths = list(zip(queries, keys))

    def _read_pages(self) -> None:
        p = self.problem
        table = integers(self._options["page_table"], "page_table", "i32")
        if table.data.ndim != 2 or table.shape[0] != p.batch:
            raise ValueError(f"page_table: expected shape ({p.batch}, pages), got {table.shape}")
        if self._options["key_lengths"] is None:
            raise ValueError("page_table: needs key_lengths")
        p.page_size, p.page_table = self.k_shape[2], self._table(table)
        p.key_len = table.shape[1] * p.page_size

    def _read_scores(self) -> None:
        p, options = self.problem, self._options
        scale = options["scale"]
        if scale is None:
            scale = 1 / math.sqrt(p.head_dim) if p.head_dim else 1.0
        p.scale, p.softcap = scale, options["softcap"]
        self.whole = (p.batch, p.query_heads, p.query_len, p.key_len)
        if options["bias"] is not None:
            bias = host(options["bias"], "bias", self._bits)
            expect_dtype(bias, self.dtype, "bias", " as q")
            bias = aligned_right(bias, self.whole, "bias")
            p.has_bias, self.inputs.bias = 1, self._keeper.tensor(bias)
            self.bias_shape = bias.shape
        if options["alibi_slopes"] is not None:
            slopes = as_f32(options["alibi_slopes"], "alibi_slopes", self._bits)
            shape = (1,) * (2 - slopes.data.ndim) + slopes.shape
            if shape not in ((1, p.query_heads), (p.batch, p.query_heads)):
                raise ValueError(f"alibi_slopes: expected shape ({p.query_heads},) or ({p.batch}, "
                                 f"{p.query_heads}), got {slopes.shape}")
            p.has_alibi = 1
            self.inputs.alibi_slopes = self._table(slopes.reshaped(*shape))
        if options["sinks"] is not None:
            sinks = as_f32(options["sinks"], "sinks", self._bits)
            expect_shape(sinks, (p.query_heads,), "sinks", " (query heads)")
            p.has_sink, self.inputs.sink = 1, self._table(sinks.reshaped(1, p.query_heads))
        self._read_dropout()

    def _read_dropout(self) -> None:
        p, keep = self.problem, self._options["keep_mask"]
        probability = self._options["dropout_p"]
        if keep is None:
            if probability != 0:
                raise ValueError("keep_mask: dropout_p needs the mask that was used")
            return
        kept = aligned_right(booleans(keep, "keep_mask"), self.whole, "keep_mask")
        p.dropout, p.dropout_probability = _library.DROPOUT_GIVEN, probability
        self.inputs.keep = self._keeper.bits(np.broadcast_to(kept.data, self.whole))

    # ---- The mask ----------------------------------------------------------------------------

    def _anchor_of(self, what: str, anchor: Any) -> str:
        """Where a diagonal is fixed; it must be said unless that is the same."""
        if isinstance(anchor, str) and anchor in _masks.ANCHORS:
            return anchor
        if anchor is not True:
            raise ValueError(f"{what}: expected one of {_masks.ANCHORS}, got {anchor!r}")
        if any(query != key for query, key in self.lengths) or self.problem.page_size:
            raise ValueError(f"{what}: not as many queries as keys: say 'top_left' or "
                             f"'bottom_right'{' as its third' if what == 'window' else ''}")
        return "top_left"

    def _read_masks(self) -> None:
        options, masks = self._options, []
        causal, window = options["causal"], options["window"]
        if causal is not False and causal is not None:
            masks.append(_masks.causal(self._anchor_of("causal", causal)))
        if window is not None:
            anchor = window[2] if len(window) == 3 else causal or True
            left, right = window[:2]
            masks.append(_masks.window(left, right, self._anchor_of("window", anchor)))
        if options["mask"] is not None:
            masks.append(_masks.as_mask(options["mask"]))
        if options["segment_ids"] is not None:
            masks.append(_masks.segments(*pair(options["segment_ids"], "segment_ids")))
        self._nodes = _masks.nodes_of(masks, self.whole, self._keeper)
        if masks:
            self.problem.mask, self.problem.mask_count = self._nodes, len(self._nodes)

    # ---- What is judged ----------------------------------------------------------------------

    def _of_rows(self, value: Any, name: str) -> Host:
        """LSE and its gradient: [batch, query heads, queries] in any layout."""
        array = host(value, name)
        shape = self.o_shape[:3]
        outer = shape[1:] if self.packed else shape
        if array.shape != (*outer, 1):
            expect_shape(array, outer, name, " (" + ("" if self.packed else "batch, ") +
                         "query heads, queries)")
        expect_dtype(array, self.wide, name)
        return array.reshaped(*shape, 1)

    def _read_results(self, arrays: Dict[str, Any]) -> None:
        tensor = self._keeper.tensor
        given = {name: value for name, value in arrays.items() if value is not None}
        self._given = frozenset(given)
        if "d_o" in given:
            self.problem.backward = 1
            self.inputs.d_o = tensor(self._array(given["d_o"], "d_o", self.o_shape))
        if "d_lse" in given:
            self.problem.has_dlse = 1
            self.inputs.d_lse = tensor(self._of_rows(given["d_lse"], "d_lse"))
        shapes = {"o": self.o_shape, "dq": self.q_shape, "dk": self.k_shape, "dv": self.v_shape}
        for name in OUTPUTS:
            if name not in given:
                continue
            if name in shapes:
                native = self._array(given[name], name, shapes[name])
            elif name == "lse":
                native = self._of_rows(given[name], name)
            else:
                native = self._gradient_of_side(given[name], name)
            setattr(self.outputs, name, tensor(native))

    def _gradient_of_side(self, value: Any, name: str) -> Host:
        of = "bias" if name == "dbias" else "sinks"
        if self._options[of] is None:
            raise ValueError(f"{name}: is given, but not {of}")
        array = host(value, name, self._bits)
        if name == "dsink":
            expect_dtype(array, "f32", name)
            expect_shape(array, (self.problem.query_heads,), name, " (query heads)")
            return array.reshaped(1, self.problem.query_heads, 1, 1)
        expect_dtype(array, self.dtype, name, " as q")
        expect_shape(array, host(self._options[of], of).shape, name, " as bias")
        return array.reshaped(*self.bias_shape)

    def not_judged(self) -> Tuple[str, ...]:
        """Gradients that the problem has and nobody gave: no verdict speaks of them."""
        if not self.problem.backward:
            return ()
        has = {"dbias": self.problem.has_bias, "dsink": self.problem.has_sink}
        return tuple(name for name in GRADIENTS
                     if has.get(name, True) and name not in self._given)

    def index_of(self, name: str, place: Sequence[int]) -> Tuple[int, ...]:
        """Where the caller finds an element: its place has four coordinates."""
        if name in ("o", "dq", "dk", "dv"):
            return self._outer(place)
        if name == "lse":
            return tuple(place[1:3] if self.packed else place[:3])
        if name == "dsink":
            return (place[1],)
        axes = np.ndim(host(self._options["bias"], "bias").data)
        return tuple(place[4 - axes:])
