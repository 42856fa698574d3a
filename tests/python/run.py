"""Runs a file of tests: run.py FILE [unittest's arguments]. Exits with 77, skipped, without NumPy."""
import importlib.util
import pathlib
import sys
import unittest

if importlib.util.find_spec("numpy") is None:
    print("skipped: this python3 has no NumPy (apt-get install python3-numpy)")
    sys.exit(77)
file = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(file.parent))
program = unittest.main(file.stem, argv=sys.argv[1:], exit=False, verbosity=1)
for test, why in program.result.skipped:
    print(f"skipped: {test.id()}: {why}")
sys.exit(not program.result.wasSuccessful())
