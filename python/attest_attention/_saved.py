"""A call in a file: .npz with its arrays, and the rest as JSON. Nothing in it is executed."""
from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from typing import Any, Dict, Optional, Union

import numpy as np

from attest_attention._arrays import Host, host, module_of
from attest_attention._masks import Mask
from attest_attention._numbers import flag

MOST_BYTES = 1 << 30  # that are saved unasked

Save = Union[bool, str, "os.PathLike[str]"]


def where(save: Any) -> Save:
    """What `save` says, looked at before anything is judged: a verdict is not lost for it."""
    known = flag(save)
    if known is not None:
        return known
    if not isinstance(save, (str, os.PathLike)):
        raise TypeError(f"save: expected True, False or a path, got {save!r}")
    return save


def _is_scalar(value: Any) -> bool:
    """Whether it is one number of a library, whose format a plain number would not tell."""
    return module_of(value) != "builtins" and getattr(value, "shape", None) == ()


def _is_plain(value: Any) -> bool:
    """Whether JSON holds all of it."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, dict) or (module_of(value) == "builtins" and
                                       isinstance(value, (type(None), bool, int, float, str)))


class _Writer:
    def __init__(self) -> None:
        self.arrays: Dict[str, np.ndarray] = {}

    def encoded(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, dict):
            return {key: self.encoded(each) for key, each in value.items()}
        if isinstance(value, Mask):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return {"$mask": self.encoded(fields)}
        if isinstance(value, tuple) and not any(map(_is_scalar, value)):
            return {"$tuple": [self.encoded(each) for each in value]}
        if isinstance(value, list) and _is_plain(value):
            return [self.encoded(each) for each in value]
        array = value if isinstance(value, Host) else host(value, module_of(value), floats=False)
        name = f"array{len(self.arrays)}"
        self.arrays[name] = array.data
        return {"$array": name, "dtype": array.dtype}


def _decoded(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return Host(arrays[value["$array"]], value["dtype"])
    if "$tuple" in value:
        return tuple(_decoded(each, arrays) for each in value["$tuple"])
    if "$mask" in value:
        return Mask(**_decoded(value["$mask"], arrays))
    return {key: _decoded(each, arrays) for key, each in value.items()}


def save(call: Dict[str, Any], where: Save) -> Optional[str]:
    """The path; None if nothing was saved. True: a temporary file, unless that is large."""
    if where is False:
        return None
    writer = _Writer()
    text = json.dumps({"attest_attention": 1, **writer.encoded(call)})
    if where is True:
        if sum(array.nbytes for array in writer.arrays.values()) > MOST_BYTES:
            return None
        descriptor, path = tempfile.mkstemp(prefix="attest-", suffix=".npz")
        os.close(descriptor)
    else:
        path = os.fspath(where)
    with open(path, "wb") as file:
        arrays: Dict[str, Any] = writer.arrays
        np.savez(file, call=np.array(text), **arrays)
    return path


def load(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """What save() was given. Raises ValueError for any other file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        call = json.loads(str(arrays.pop("call")))
        if call.pop("attest_attention") != 1:
            raise ValueError("another version")
        return {key: _decoded(value, arrays) for key, value in call.items()}
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path}: no file that assert_close saved: {error}") from error
