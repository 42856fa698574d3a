"""The package's types, by mypy as pyproject.toml has it."""
import importlib.util
import pathlib
import subprocess
import sys
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class TypingTest(unittest.TestCase):
    def test_types_are_strict(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", "/dev/null"],
                              cwd=PACKAGE, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
