"""What a kernel returns, beside what it was to return. What is wrong is told in its own terms."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence

from attest_attention._backends import Backend, Misuse
from attest_attention._tensors import AXES, Tensors

# In this order, those that were asked for.
FORWARD = ("o", "lse", "maximum", "sum", "keep")
BACKWARD = ("dq", "dk", "dv", "dbias", "dsink")
_SHOWN = {"keep": "keep_mask"}


def _listed(names: Sequence[str]) -> str:
    shown = [_SHOWN.get(name, name) for name in names]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def as_list(value: Any, names: Sequence[str], who: str, tensors: Tensors) -> List[Any]:
    """One value for each name. Raises Misuse."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if value is None and all(tensors.is_written(name, None) for name in names):
        return [None] * len(names)
    if value is None:
        raise Misuse(f"{who} returned None, expected {_listed(names)}")
    if len(values) != len(names):
        hint = "; LSE is returned with the feature lse alone" if names == ["o"] else ""
        count = f"{len(values)} values" if len(values) != 1 else "1 value"
        raise Misuse(f"{who} returned {count}, expected {len(names)}: {_listed(names)}{hint}")
    return values


def _check(value: Any, name: str, told: Dict[str, Any], backend: Backend) -> None:
    shown, shape = _SHOWN.get(name, name), tuple(told["shape"][AXES[name]])
    if value is None:
        raise Misuse(f"{shown} is None, expected an array of shape {shape}")
    backend.expect(value, shown)
    found, dtype = backend.form(value)
    if found not in (shape, tuple(told["shape"])):
        raise Misuse(f"{shown} has shape {found}, expected {shape}")
    expected = "bool" if told["dtype"] == "bits" else told["dtype"]
    if dtype != expected:
        raise Misuse(f"{shown} has dtype {dtype}, expected {expected}")


def store(values: Sequence[Any], names: Sequence[str], tensors: Tensors) -> None:
    """Writes them where they belong, but for those that the kernel wrote there itself. Raises
    Misuse, before anything is written."""
    outputs = tensors.outputs()
    returned = {name: value for name, value in zip(names, values)
                if not tensors.is_written(name, value)}
    for name, value in returned.items():
        _check(value, name, outputs[name], tensors.backend)
    for name, value in returned.items():
        tensors.write(name, value)
