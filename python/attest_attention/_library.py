"""libattest, by its C interface: spec/attest_judge.h and spec/attest_plugin.h, field by field."""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_size_t
from ctypes import c_uint64, c_void_p
from typing import Any, Optional, Sequence

U8, I32, I64, BITS = 16, 17, 18, 19  # beside those of FORMATS
UNBOUNDED = 2**63 - 1
FULL, BAND, DENSE, PREFIX, SEGMENTS, BLOCK_SPARSE, DILATED, ALL_OF, ANY_OF = range(9)
DROPOUT_GIVEN = 1


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("reserved", c_int32),
                ("shape", c_int64 * 4), ("stride", c_int64 * 4), ("capacity_bytes", c_uint64)]


class MaskNode(Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int32), ("anchored_bottom_right", c_int32),
                ("offset", c_int64), ("left", c_int64), ("right", c_int64), ("dilation", c_int64),
                ("block_query", c_int64), ("block_key", c_int64), ("first", c_int64),
                ("second", c_int64), ("table", Tensor), ("table2", Tensor)]


class Problem(Structure):
    _fields_ = [("struct_size", c_size_t), ("dtype", c_int32), ("backward", c_int32),
                ("batch", c_int64), ("query_heads", c_int64), ("key_heads", c_int64),
                ("query_len", c_int64), ("key_len", c_int64), ("head_dim", c_int64),
                ("value_dim", c_int64), ("scale", c_double), ("softcap", c_double),
                ("mask", POINTER(MaskNode)), ("mask_count", c_int64), ("query_lens", Tensor),
                ("key_lens", Tensor), ("cu_query_lens", Tensor), ("cu_key_lens", Tensor),
                ("page_size", c_int64), ("page_table", Tensor), ("has_bias", c_int32),
                ("has_alibi", c_int32), ("has_sink", c_int32), ("has_dlse", c_int32),
                ("dropout", c_int32), ("reserved", c_int32), ("dropout_probability", c_double),
                ("dropout_seed", c_uint64), ("dropout_offset", c_uint64)]


class Inputs(Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, Tensor) for name in ("q", "k", "v", "bias", "alibi_slopes", "sink", "keep",
                                    "q_scale", "k_scale", "v_scale", "o", "lse", "d_o", "d_lse",
                                    "maximum", "sum")]


class Outputs(Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, Tensor) for name in ("o", "lse", "keep", "dq", "dk", "dv", "dbias", "dsink",
                                    "maximum", "sum")]


class JudgeOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("arithmetic", c_char_p), ("threads", c_int32),
                ("ignores_padding", c_int32), ("skips_diagnosis", c_int32)]


def tensor(address: int, dtype: int, shape: Sequence[int], stride: Sequence[int],
           capacity_bytes: int) -> Tensor:
    """Of four axes."""
    four = c_int64 * 4
    return Tensor(address, dtype, 0, four(*shape), four(*stride), capacity_bytes)


def sized(kind: Any) -> Any:
    """A struct that begins with its own size."""
    made = kind()
    made.struct_size = ctypes.sizeof(kind)
    return made


_loaded: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """libattest: what ATTEST_LIBRARY names, else what the wheel carries, else the system's."""
    global _loaded
    if _loaded is None:
        named = os.environ.get("ATTEST_LIBRARY")
        carried = pathlib.Path(__file__).parent / "lib" / "libattest.so.0"
        path = named or (str(carried) if carried.exists() else "libattest.so.0")
        try:
            _loaded = ctypes.CDLL(path)
        except OSError as error:
            raise ImportError(f"attest_attention cannot load {path}: {error}. Wheels carry it; "
                              "else ATTEST_LIBRARY names one that was built") from error
        _loaded.attest_judge.argtypes = [POINTER(Problem), POINTER(Inputs), POINTER(Outputs),
                                         POINTER(JudgeOptions), POINTER(c_void_p)]
        _loaded.attest_judge.restype = c_int32
        _loaded.attest_judge_free.argtypes = [c_void_p]
        _loaded.attest_judge_free.restype = None
    return _loaded


def verdict_text(problem: Problem, inputs: Inputs, outputs: Outputs, options: JudgeOptions) -> str:
    text = c_void_p()
    attest = library()
    attest.attest_judge(byref(problem), byref(inputs), byref(outputs), byref(options), byref(text))
    if not text.value:
        raise MemoryError("attest_judge: there is no memory for a verdict")
    try:
        return ctypes.string_at(text.value).decode()
    finally:
        attest.attest_judge_free(text)
