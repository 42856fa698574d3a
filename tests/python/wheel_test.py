"""The wheel: packed from what is built, installed into a fresh environment without an index, used.

ATTEST_LIBRARY names libattest as it was built; nothing of the tree is on the path afterwards.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

USE = """
import numpy as np
import attest_attention as attest
assert "site-packages" in attest.__file__, attest.__file__
q, k, v = np.random.default_rng(1).standard_normal((3, 1, 2, 16, 8), np.float32)
s = q @ k.swapaxes(2, 3) / np.float32(8**0.5)
p = np.exp(s - s.max(3, keepdims=True))
o = p @ v / p.sum(3, keepdims=True)
attest.assert_close(o, q, k, v, arithmetic="exact-f32")
try:
    attest.assert_close(o * np.float32(1.001), q, k, v, arithmetic="exact-f32", save=False)
except AssertionError as error:
    print(error)
"""


def run(*command, **more):
    """What it prints; without the environment of the tests."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("ATTEST_", "PYTHON"))}
    ran = subprocess.run(command, capture_output=True, text=True, env=clean, **more)
    if ran.returncode:
        raise AssertionError(f"{command} exits with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.told = run(sys.executable, ROOT / "python" / "pack_wheel.py",
                       os.environ["ATTEST_LIBRARY"], cls.folder.name)
        cls.wheel = pathlib.Path(cls.told.splitlines()[0])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_its_name_says_what_it_needs(self):
        glibc = re.search(r"needs glibc (\d+)\.(\d+)", self.told)
        self.assertRegex(self.wheel.name, rf"^attest_attention-0\.1\.0-py3-none-manylinux_{glibc[1]}"
                                          rf"_{glibc[2]}_[a-z0-9_]+\.whl$")

    def test_the_same_tree_gives_the_same_file(self):
        before = self.wheel.read_bytes()
        run(sys.executable, ROOT / "python" / "pack_wheel.py", os.environ["ATTEST_LIBRARY"],
            self.folder.name)
        self.assertEqual(self.wheel.read_bytes(), before)

    def test_its_version_is_that_of_the_tree(self):
        project = re.search(r"project\(attest VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        package = (ROOT / "python" / "attest_attention" / "__init__.py").read_text()
        self.assertIn(f'__version__ = "{project[1]}"', package)
        self.assertIn(f"-{project[1]}-", self.wheel.name)

    def test_it_installs_without_index_or_compiler_and_works(self):
        home = pathlib.Path(self.folder.name) / "fresh"
        run(sys.executable, "-m", "venv", "--system-site-packages", home)
        python = home / "bin" / "python3"
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", self.wheel)
        told = run(python, "-c", USE, cwd=self.folder.name)
        self.assertIn("attention: FAIL", told)
        self.assertIn("times the bound", told)
        self.assertEqual(run(python, "-m", "attest_attention", "--version").strip(), "0.1.0")
        # Of libraries, its own alone: the system might have others of these names.
        maps = run(python, "-c", "from attest_attention._library import library; library(); "
                                 "print(open('/proc/self/maps').read())")
        carried = set(re.findall(r"\S+/(lib(?:attest|fmt|hwy)\.so\.\d+)", maps))
        self.assertIn("libattest.so.0", carried)
        for name in carried:
            self.assertRegex(maps, rf"{home}\S+/{re.escape(name)}")


if __name__ == "__main__":
    unittest.main()
