"""A run of the command, and what it found."""
from __future__ import annotations

import dataclasses
import html
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import weakref
from functools import cached_property
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from attest_attention import _command, _home
from attest_attention._kernel import Kernel

PASSED = ("PASS", "WARN")
_INCOMPLETE = 3  # how the command exits where nothing failed, but for what is known
NOT_ASKED = ("UNSUPPORTED", "NOT_RUN")


class RunError(RuntimeError):
    """Nothing was judged; the message is that of the command."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of one case; the keys are those of the record (SPEC.md, chapter Records)."""

    case: str
    testee: str
    dtype: str
    outcome: str
    reason: str
    message: str
    clauses: Tuple[str, ...]
    blamed: str
    because: str
    problem: str
    repro: str
    captured: str  # what the kernel printed, a traceback among it
    known: str  # why the failure is known; ""
    tensors: Dict[str, Any]

    @property
    def passed(self) -> bool:
        return self.outcome in PASSED

    @property
    def failed(self) -> bool:
        return self.outcome not in (*PASSED, *NOT_ASKED, "INCONCLUSIVE")

    @property
    def clause(self) -> str:
        """That it is about: the one blamed, else the first that is cited."""
        return self.blamed or (self.clauses[0] if self.clauses else "")

    def __str__(self) -> str:
        reason = f"({self.reason})" if self.reason else ""
        lines = [f"{self.outcome}{reason} {self.clause} {self.case}", self.message, self.captured,
                 f"problem: {self.problem}" if self.problem else "", self.repro]
        told = [line for text in lines for line in text.splitlines()]
        return "\n    ".join(told)


@dataclasses.dataclass(frozen=True)
class Standing:
    """How a profile stands in a format: `passed` of `demanded` cases; `standing` says it in the
    words of the other pages ("met within limits")."""

    profile: str
    dtype: str
    met: bool
    complete: bool
    demanded: int
    passed: int
    standing: str

    def __str__(self) -> str:
        return f"{self.profile} in {self.dtype}: {self.standing}"


class Run:
    """What `attest run` found. The record and its pages lie in `folder`."""

    def __init__(self, folder: pathlib.Path, text: str, keeper: Any = None) -> None:
        self.folder, self.text = folder, text
        if keeper is not None:
            weakref.finalize(self, keeper.cleanup)
        report: Dict[str, Any] = json.loads((folder / "report.json").read_text())
        self.conclusion: str = report["conclusion"]
        self.exit_code: int = report["exit_code"]
        self.sentence: str = report["sentence"]
        self.counts: Dict[str, int] = report["counts"]
        names = [field.name for field in dataclasses.fields(Standing)]
        self.profiles: List[Standing] = [Standing(**{name: each[name] for name in names})
                                         for each in report["profiles"]]
        self._known = {(each["case"], each["testee"]): each["why"] for each in report["known"]}
        self.failures: List[Verdict] = [self._verdict(each) for each in report["failures"]]

    @property
    def conformant(self) -> bool:
        """Whether the complete suite was judged, and every profile is met."""
        return self.conclusion == "conformant"

    @property
    def passed(self) -> bool:
        """Whether something was judged and nothing failed that is not known. No profile need be
        met: of a part of the suite none is."""
        known_only = all(each.known for each in self.failures)
        judged = bool(self.failures) or any(self.counts.get(each) for each in PASSED)
        return self.exit_code == 0 or (self.exit_code == _INCOMPLETE and known_only and judged)

    @cached_property
    def verdicts(self) -> List[Verdict]:
        """All of them, read when they are looked at."""
        with open(self.folder / "results.jsonl", encoding="utf-8") as record:
            lines = [json.loads(line) for line in record]
        return [self._verdict(line) for line in lines if line["kind"] == "verdict"]

    def _verdict(self, line: Dict[str, Any]) -> Verdict:
        told = {field.name: line.get(field.name, "") for field in dataclasses.fields(Verdict)}
        known = self._known.get((line["case"], line["testee"]), "")
        return Verdict(**{**told, "clauses": tuple(line["clauses"]), "known": known})

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<attest: {self.sentence}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(each.profile)}</td><td>{each.dtype}</td>"
                       f"<td>{html.escape(each.standing)}</td>"
                       f"<td>{each.passed} of {each.demanded}</td></tr>" for each in self.profiles)
        table = f"<table><tr><th>profile</th><th>format</th><th></th><th>cases</th></tr>{rows}" \
                "</table>" if rows else ""
        shown = "".join(f"<pre>{html.escape(str(each))}</pre>" for each in self.failures[:5])
        more = f"<p>and {len(self.failures) - 5} more</p>" if len(self.failures) > 5 else ""
        return f"<p><b>{html.escape(self.sentence)}</b></p>{table}{shown}{more}"


def run(kernel: Union[Kernel, str], *, tier: str = "standard", profiles: Sequence[str] = (),
        cases: Sequence[str] = (), seed: int = 1, jobs: Optional[int] = None,
        known: Optional[str] = None, out: Optional[str] = None,
        options: Sequence[str] = ()) -> Run:
    """Judges a kernel, or what --testee names, by `attest run`.

        result = attest.run(mine, tier="smoke")
        assert result.passed, result

    Workers import the file that the kernel is in; one that is in none, as in a notebook, takes the
    package cloudpickle. `known` is a file of known failures, `out` where the record stays (default:
    as long as the result lives), `options` are further arguments of the command. Raises RunError
    where nothing could be judged.
    """
    if not isinstance(kernel, (Kernel, str)):
        raise TypeError("attest.run takes a kernel, as @attest.kernel makes one of a function, or "
                        f"the words of --testee, not {kernel!r}")
    if _home.in_worker:
        raise RuntimeError("attest.run is called where the file is imported, which a worker does, "
                           "too: call it below if __name__ == '__main__':")
    keeper = None if out else tempfile.TemporaryDirectory(prefix="attest-")
    folder = pathlib.Path(out or keeper.name)  # type: ignore[union-attr]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").unlink(missing_ok=True)
    testee = _home.testee_of(kernel, folder.absolute()) if isinstance(kernel, Kernel) else kernel
    command = [_command.program(), "run", "--testee", testee, "--tier", tier, "--seed", str(seed),
               "--out", str(folder), *options]
    for option, values in (("--profile", profiles), ("--cases", cases)):
        given = [values] if isinstance(values, str) else values
        command += [word for value in given for word in (option, value)]
    command += ["--jobs", str(jobs)] if jobs else []
    command += ["--known", os.fspath(known)] if known else []
    shown = sys.stderr.isatty()  # where the command shows how far it is
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=_command.environment(),
                          stderr=None if shown else subprocess.PIPE, errors="replace")
    if not (folder / "report.json").exists():
        raise RunError((done.stderr or "").strip() or f"attest exited with {done.returncode}")
    return Run(folder, done.stdout, keeper)
