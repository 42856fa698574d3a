"""The formats of numbers, by the names of requests; all that the package knows of each by itself."""
from __future__ import annotations

from typing import Any, Dict, NamedTuple

import numpy as np


class Format(NamedTuple):
    code: int  # of attest_plugin.h
    numpy: Any  # what holds it in NumPy: of a format that it lacks, the bits
    infinity: int  # its bits: those of NaN are more


FORMATS: Dict[str, Format] = {
    "f64": Format(1, np.float64, 0x7ff0000000000000),
    "f32": Format(2, np.float32, 0x7f800000),
    "f16": Format(3, np.float16, 0x7c00),
    "bf16": Format(4, np.uint16, 0x7f80),
}
# In which q, k and v may be stored, with scales: what holds their bits, and what ml_dtypes, torch
# and JAX call them.
STORED: Dict[str, Format] = {
    "e4m3": Format(5, np.uint8, 0x7e),  # it has none: the last is its largest number
    "e5m2": Format(6, np.uint8, 0x7c),
    "int8": Format(8, np.int8, 0x7f),  # it has neither infinity nor NaN
}
NAMES_ELSEWHERE = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
STORED_AS_BITS = tuple(name for name in STORED if name in NAMES_ELSEWHERE)
# Those that arrays of 16-bit integers may hold, if that is said.
AS_BITS = tuple(name for name, each in FORMATS.items() if each.numpy is np.uint16)
