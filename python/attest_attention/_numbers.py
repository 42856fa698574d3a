"""Numbers and flags of any library, as Python has them: so that a file can hold them, and no field
of a struct wraps them."""
from __future__ import annotations

import operator
from typing import Any, Optional

WIDEST = 2**63  # of integers of 64 bits with a sign; itself not one of them


def _plain(value: Any) -> Any:
    """Of an array of one element that element. Raises what its library raises for others."""
    return value.item() if hasattr(value, "item") else value


def shown(value: Any) -> str:
    """In an error, which no array should fill."""
    shape = getattr(value, "shape", ())
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape else repr(value)


def real(value: Any, name: str) -> float:
    try:
        number = _plain(value)
        if isinstance(number, (str, bytes)):
            raise TypeError("a text")
        return float(number)
    except Exception as error:  # libraries raise what they like
        raise TypeError(f"{name}: expected a number, got {shown(value)}") from error


def _power(limit: int) -> str:
    """As people know it."""
    return {-WIDEST: "-2**63", WIDEST - 1: "2**63 - 1"}.get(limit, str(limit))


def whole(value: Any, name: str, least: int = -WIDEST, most: int = WIDEST - 1) -> int:
    expected = f"{name}: expected a whole number from {_power(least)} to {_power(most)}, got "
    try:
        number = operator.index(_plain(value))
    except Exception as error:
        raise TypeError(expected + shown(value)) from error
    if not least <= number <= most:
        raise ValueError(expected + str(number))
    return number


def flag(value: Any) -> Optional[bool]:
    """None for what is no flag."""
    try:
        value = _plain(value)
    except Exception:
        return None
    return value if isinstance(value, bool) else None
