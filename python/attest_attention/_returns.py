"""What a kernel returns, beside what it was to return. What is wrong is told in its own terms."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from attest_attention._arrays import Host, host
from attest_attention._backends import Backend, Misuse
from attest_attention._tensors import Tensors

# In this order, those that were asked for; with how many axes.
FORWARD = {"o": 4, "lse": 3, "maximum": 3, "sum": 3, "keep": 4}
BACKWARD = {"dq": 4, "dk": 4, "dv": 4, "dbias": 4, "dsink": 1}
_SHOWN = {"keep": "keep_mask"}


def _listed(names: Sequence[str]) -> str:
    shown = [_SHOWN.get(name, name) for name in names]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def as_list(value: Any, names: Sequence[str], who: str) -> List[Any]:
    """One value for each name. Raises Misuse."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if value is None:
        raise Misuse(f"{who} returned None, expected {_listed(names)}")
    if len(values) != len(names):
        hint = "; LSE is returned with the feature lse alone" if names == ["o"] else ""
        count = f"{len(values)} values" if len(values) != 1 else "1 value"
        raise Misuse(f"{who} returned {count}, expected {len(names)}: {_listed(names)}{hint}")
    return values


def _shape(name: str, told: Dict[str, Any]) -> Tuple[int, ...]:
    """As the kernel sees it: LSE and its like have no channels, dSink has heads alone."""
    shape = tuple(told["shape"])
    return shape[1:2] if name == "dsink" else shape[:{**FORWARD, **BACKWARD}[name]]


def _checked(value: Any, name: str, told: Dict[str, Any], backend: Backend) -> Host:
    shown, shape = _SHOWN.get(name, name), _shape(name, told)
    if value is None:
        raise Misuse(f"{shown} is None, expected an array of shape {shape}")
    backend.expect(value, shown)
    array = host(value, shown)
    if array.shape not in (shape, tuple(told["shape"])):
        raise Misuse(f"{shown} has shape {array.shape}, expected {shape}")
    dtype = "bool" if told["dtype"] == "bits" else told["dtype"]
    if array.dtype != dtype:
        raise Misuse(f"{shown} has dtype {array.dtype}, expected {dtype}")
    return array


def store(values: Sequence[Any], names: Sequence[str], tensors: Tensors) -> None:
    """Writes them where the harness reads them. Raises Misuse, before anything is written."""
    outputs = tensors.outputs()
    checked = {name: _checked(value, name, outputs[name], tensors.backend)
               for name, value in zip(names, values)}
    for name, array in checked.items():
        tensors.write(name, array)
