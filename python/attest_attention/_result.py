"""What a verdict says, as values and as words."""
from __future__ import annotations

import dataclasses
import shlex
from typing import Any, Callable, Dict, List, Sequence, Tuple

_NAMES = {"O": "o", "LSE": "lse", "dQ": "dq", "dK": "dk", "dV": "dv", "dBias": "dbias",
          "dSink": "dsink"}


@dataclasses.dataclass(frozen=True)
class TensorResult:
    """One tensor, and its element that came closest to its bound or went furthest beyond it."""

    name: str  # of the argument: "o", "dq"
    index: Tuple[int, ...]  # of that element, in the caller's layout; () if there is none
    place: Tuple[int, ...]  # of it: batch, head, position, channel
    actual: float
    exact: float
    bound: float
    ratio: float  # of the error to the bound; at most 1 where the tensor is right
    rms: float  # of actual - exact over all elements
    compared: int
    unspecified: int  # elements that may be anything
    elements: int

    def __str__(self) -> str:
        if not self.index:
            return f"{self.name}: nothing is specified"
        where = ", ".join(str(n) for n in self.index)
        far = (f"bound {self.bound:.3g}: {self.ratio:.3g} times the bound" if self.bound
               else "and nothing else will do")
        return f"{self.name}[{where}] = {self.actual:.9g}, exact {self.exact:.9g}, {far}"


@dataclasses.dataclass(frozen=True)
class Result:
    """A verdict."""

    passed: bool
    outcome: str  # PASS, WARN (a recommendation is missed), FAIL, INCONCLUSIVE, UNSUPPORTED
    message: str  # one sentence; "" if all is well
    clause: str  # that is blamed; "" if none is
    title: str  # of the clause
    did_you_mean: str  # which common mistake gives just this; "" if none is known
    tensors: Dict[str, TensorResult]  # by argument
    unspecified: int
    sampled: str  # how much was compared, of what is too large for all; ""
    problem: str
    arithmetic: Tuple[str, ...]  # what goes beyond the default, in words
    saved: str = ""  # the file that repeats it
    not_judged: Tuple[str, ...] = ()  # gradients that the problem has and nobody gave

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        wrong = [t for t in self.tensors.values() if not t.ratio <= 1]
        lines = [("worst", str(each)) for each in wrong or self.tensors.values()]
        lines.append(("because", self.message if not wrong else ""))
        lines.append(("clause", f"{self.clause}: {self.title}" if self.clause else ""))
        lines.append(("did you mean", self.did_you_mean))
        lines.append(("problem", self.problem))
        lines.append(("arithmetic", ", ".join(self.arithmetic)))
        lines.append(("compared", self.sampled))
        lines.append(("unspecified", f"{self.unspecified} elements" if self.unspecified else ""))
        lines.append(("not judged", ", ".join(self.not_judged)))
        again = (f"python -m attest_attention judge {shlex.quote(self.saved)}" if self.saved
                 else "")
        lines.append(("again", again))
        told = [f"  {what:<13} {text}" for what, text in lines if text]
        return "\n".join([f"attention: {self.outcome}", *told])


def _number(value: Any) -> float:
    return float(value)  # JSON has "inf", "-inf" and "nan" as texts


def result_of(verdict: Dict[str, Any],
              index_of: Callable[[str, Sequence[int]], Tuple[int, ...]],
              not_judged: Tuple[str, ...]) -> Result:
    tensors: Dict[str, TensorResult] = {}
    for record, name in _NAMES.items():
        if record not in verdict["tensors"]:
            continue
        t = verdict["tensors"][record]
        place: List[int] = t["worst"]
        tensors[name] = TensorResult(
            name=name, index=index_of(name, place) if place else (), place=tuple(place),
            actual=_number(t["actual"]), exact=_number(t["exact"]), bound=_number(t["bound"]),
            ratio=_number(t["max_ratio"]), rms=_number(t["rms"]), compared=t["compared"],
            unspecified=t["unspecified"], elements=t["elements"])
    return Result(passed=verdict["passed"], outcome=verdict["outcome"], message=verdict["message"],
                  clause=verdict["blamed"], title=verdict["title"],
                  did_you_mean=verdict["did_you_mean"], tensors=tensors,
                  unspecified=verdict["unspecified"], sampled=verdict["sampled"],
                  problem=verdict["problem"], arithmetic=tuple(verdict["arithmetic"]),
                  not_judged=not_judged)
