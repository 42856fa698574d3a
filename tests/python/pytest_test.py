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

HERE = pathlib.Path(__file__).parent

MODULE = """
import attest_attention as attest
from kernels import top_left

test_top_left = attest.pytest(top_left, {options})
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
class PytestTest(unittest.TestCase):
    def pytest(self, *arguments, options=""):
        """What pytest says of a module with that kernel."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "test_mine.py").write_text(MODULE.format(options=options))
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


if __name__ == "__main__":
    unittest.main()
