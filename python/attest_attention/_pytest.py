"""Under pytest: one test for each clause of the standard."""
from __future__ import annotations

import json
import subprocess
from functools import lru_cache
from typing import Any, Callable, List, Optional, Union

from attest_attention import _command, _home
from attest_attention._kernel import Kernel
from attest_attention._run import Run, Verdict, run

CONCLUSION = "conclusion"  # the test of what no clause says: profiles, known failures that pass


@lru_cache(maxsize=None)
def clauses() -> List[str]:
    """Those that cases cite, and those that every case is held to."""
    told = subprocess.run([_command.program(), "list", "--tier", "full", "--json"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    cited = {clause for case in json.loads(told) for clause in case["clauses"]}
    return sorted(cited | {"SAFE-1", "SAFE-2", "SAFE-3", "SAFE-4", "CALL-1"})


def pytest(kernel: Union[Kernel, str], *, tier: str = "smoke", known: Optional[str] = None,
           **options: Any) -> Callable[..., None]:
    """A test for each clause, of one run that begins with the first of them.

        test_mine = attest.pytest(mine, tier="smoke", known="known.json")

    A clause fails with the failures that are blamed on it, and is expected to fail if all of them
    are known; it is skipped where no case of the tier shows it. `options` are those of run().
    """
    import pytest as framework

    ended: List[Union[Run, Exception]] = []

    def result() -> Run:
        if not ended:
            try:
                ended.append(run(kernel, tier=tier, known=known, **options))
            except Exception as error:
                ended.append(error)
        if isinstance(ended[0], Run):
            return ended[0]
        raise framework.fail.Exception(str(ended[0]), pytrace=False)

    def test(clause: str) -> None:
        found = result()
        if clause == CONCLUSION:
            if not found.passed:
                framework.fail(found.sentence, pytrace=False)
            if found.conclusion == "incomplete":
                framework.skip(found.sentence)
            return
        blamed = [each for each in found.failures if each.failed and each.clause == clause]
        new = [each for each in blamed if not each.known]
        if new:
            framework.fail(_listed(new), pytrace=False)
        if blamed:
            framework.xfail(blamed[0].known)
        cited = [each for each in found.verdicts if clause in each.clauses]
        if not any(each.passed for each in cited):
            framework.skip(_why_unseen(cited))

    # A worker, which imports the file too, collects nothing.
    names = [] if _home.in_worker else [*clauses(), CONCLUSION]
    parametrized: Callable[..., None] = framework.mark.parametrize("clause", names)(test)
    return parametrized


def _listed(failures: List[Verdict]) -> str:
    shown = [str(each) for each in failures[:3]]
    more = [f"and {len(failures) - 3} more"] if len(failures) > 3 else []
    return "\n".join(shown + more)


def _why_unseen(cited: List[Verdict]) -> str:
    failed = sorted({each.clause for each in cited if each.failed})
    if failed:
        return f"its cases fail for {', '.join(failed)}"
    return "no case of this tier shows it" if not cited else \
        "the kernel is not asked for what shows it"
