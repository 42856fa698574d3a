"""Runs a file of tests: run.py FILE [unittest's arguments]. Exits with 77, skipped, without NumPy,
and where every test is skipped for what is not installed; each that is skipped is named."""
import importlib.util
import pathlib
import sys
import unittest


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


if importlib.util.find_spec("numpy") is None:
    print("skipped: this python3 has no NumPy (apt-get install python3-numpy)")
    sys.exit(77)
file = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(file.parent))
program = unittest.main(file.stem, argv=sys.argv[1:], exit=False,
                        testRunner=unittest.TextTestRunner(resultclass=Result))
result = program.result
for test, why in result.skipped:
    print(f"skipped: {test.id()}: {why}")
if result.wasSuccessful() and result.skipped and not result.passed:
    sys.exit(77)
sys.exit(not result.wasSuccessful())
