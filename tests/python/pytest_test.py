"""attest.pytest: one test for each clause, as pytest shows them."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import attest_attention as attest
from kernels import narrow

HERE = pathlib.Path(__file__).parent

MODULE = """
import attest_attention as attest
from kernels import {kernel}

test_{kernel} = attest.pytest({kernel}, {options})
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
class PytestTest(unittest.TestCase):
    def pytest(self, *arguments, kernel="top_left", options=""):
        """What pytest says of a module with that kernel."""
        with tempfile.TemporaryDirectory() as folder:
            module = MODULE.format(kernel=kernel, options=options)
            (pathlib.Path(folder) / "test_mine.py").write_text(module)
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", folder,
                 *arguments], text=True, capture_output=True, cwd=folder,
                env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{HERE}"})
        return done.stdout + done.stderr

    def test_clause_that_is_broken_fails_and_the_others_pass(self):
        told = self.pytest()
        for clause, outcome in {"MASK-3": "FAILED", "SOFTMAX-1": "PASSED", "HEAD-1": "PASSED",
                                "conclusion": "FAILED"}.items():
            self.assertRegex(told, rf"{outcome} \S*::test_top_left\[{clause}\]")
        self.assertRegex(told, r"SKIPPED .*the kernel is not asked for what shows it")
        self.assertRegex(told, r"(?m)^FAIL\(bound\) MASK-3 ")
        self.assertIn("    attest repro ", told)
        self.assertRegex(told, r"2 failed, \d+ passed, \d+ skipped")

    def test_one_clause_is_asked_for_by_its_name(self):
        self.assertIn("1 failed, ", self.pytest("-k", "MASK-3"))
        self.assertRegex(self.pytest("-k", "SOFTMAX-1"), r"\n1 passed, \d+ deselected")

    def test_collecting_runs_nothing(self):
        told = self.pytest("--collect-only", options="options=['--no-such-option']")
        self.assertIn("test_top_left[MASK-3]", told)
        self.assertIn("test_top_left[GRAD-1]", told)
        told = self.pytest("-k", "MASK-3", options="options=['--no-such-option']")
        self.assertIn("no option --no-such-option", told)

    def test_known_failures_are_expected(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as known:
            json.dump([{"case": "**", "testee": "kernels.py:top_left", "outcome": "FAIL",
                        "reason": "bound", "link": "https://example.org/1"}], known)
            known.flush()
            told = self.pytest(options=f"known={known.name!r}")
        self.assertRegex(told, r"XFAIL \S*\[MASK-3\][\s-]*(reason: )?"
                               r"known: FAIL \(bound\), https://example.org/1")
        self.assertNotIn("FAILED", re.sub(r"FAILED \S*\[conclusion\].*", "", told))

    def test_where_all_failures_are_known_nothing_fails(self):
        found = attest.run(narrow, tier="smoke")
        self.assertFalse(found.passed)
        listed = [{"case": each.case, "testee": each.testee, "outcome": each.outcome,
                   "reason": each.reason, "link": "https://example.org/1"}
                  for each in found.failures]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as known:
            json.dump(listed, known)
            known.flush()
            told = self.pytest(kernel="narrow", options=f"known={known.name!r}")
            self.assertTrue(attest.run(narrow, tier="smoke", known=known.name).passed)
        self.assertRegex(told, r"SKIPPED .*Incomplete: no failure in .* failed as was known")
        self.assertRegex(told, r"\n\d+ passed, \d+ skipped, 1 xfailed")


if __name__ == "__main__":
    unittest.main()
