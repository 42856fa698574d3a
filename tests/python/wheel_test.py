"""The wheel: packed from what is built, installed into a fresh environment without an index, used.

ATTEST_BUILD names the folder of the build; nothing of the tree is on the path afterwards.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

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


KERNEL = """
import attest_attention as attest
import numpy as np

@attest.kernel(dtypes=["f32"], features=["gqa"], limits={"key_len": {"min": 1}},
               arithmetic="exact-f32")
def mine(p, q, k, v):
    k, v = (np.repeat(x, p.query_heads // p.key_heads, 1) for x in (k, v))
    s = np.float32(p.scale) * (q @ k.swapaxes(2, 3))
    e = np.exp(s - s.max(3, keepdims=True))
    return e @ v / e.sum(3, keepdims=True)
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
        os.chmod(cls.folder.name, 0o755)  # other users run kernels
        cls.prefix = f"{cls.folder.name}/prefix"
        run("cmake", "--install", os.environ["ATTEST_BUILD"], "--strip", "--prefix", cls.prefix)
        cls.told = cls.pack()
        cls.wheel = pathlib.Path(cls.told.splitlines()[0])
        # Nothing is found where it was installed first.
        pathlib.Path(cls.prefix).rename(f"{cls.prefix}-moved")
        cls.home = pathlib.Path(cls.folder.name) / "fresh"
        run(sys.executable, "-m", "venv", "--system-site-packages", cls.home)
        run(cls.home / "bin" / "python3", "-m", "pip", "install", "--no-index", "--no-deps",
            cls.wheel)
        pathlib.Path(f"{cls.prefix}-moved").rename(cls.prefix)

    @classmethod
    def pack(cls):
        return run(sys.executable, ROOT / "python" / "pack_wheel.py", cls.prefix, cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_its_name_says_what_it_needs(self):
        glibc = re.search(r"needs glibc (\d+)\.(\d+)", self.told)
        self.assertRegex(self.wheel.name, rf"^attest_attention-0\.1\.0-py3-none-manylinux_{glibc[1]}"
                                          rf"_{glibc[2]}_[a-z0-9_]+\.whl$")

    def test_the_same_tree_gives_the_same_file(self):
        before = self.wheel.read_bytes()
        self.pack()
        self.assertEqual(self.wheel.read_bytes(), before)

    def test_its_version_is_that_of_the_tree(self):
        project = re.search(r"project\(attest VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        package = (ROOT / "python" / "attest_attention" / "__init__.py").read_text()
        self.assertIn(f'__version__ = "{project[1]}"', package)
        self.assertIn(f"-{project[1]}-", self.wheel.name)

    def test_it_says_whose_work_it_carries(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            (notices,) = (wheel.read(name).decode() for name in wheel.namelist()
                          if name.endswith("dist-info/THIRD_PARTY"))
            carried = {pathlib.Path(name).name for name in wheel.namelist()
                       if re.match(r"attest_attention/lib/lib(?!attest)", name)}
        self.assertTrue(carried)
        for name in carried:
            self.assertIn(f": carried as lib/{name}\n", notices)

    def test_judging_arrays_needs_nothing_of_the_system(self):
        home, python = self.home, self.home / "bin" / "python3"
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

    def test_programs_find_out_how_to_use_it(self):
        package = next(self.home.glob("lib/python*/site-packages/attest_attention"))
        self.assertIn("attest gate candidate.py:kernel", (package / "AGENTS.md").read_text())

    def test_command_judges_a_kernel_in_python(self):
        attest, folder = self.home / "bin" / "attest", pathlib.Path(self.folder.name)
        (folder / "mine.py").write_text(KERNEL)
        told = run(attest, "run", "--testee", "mine.py", "--tier", "smoke", "--profile", "none",
                   "--out", "out", cwd=folder)
        self.assertRegex(told, r"No failure in \d\d of")
        self.assertIn("mine.py:mine", told)
        (folder / "small.csv").write_text("1,2,1,64,64,16,16,full\n")
        told = run(attest, "gate", "mine.py:mine", "--steps", "1", "--rounds", "2", "--shapes",
                   "small.csv", "--out", "out", cwd=folder)
        self.assertRegex(told, r"^Conformant: \S+mine.py. Judged 60 cases, ")
        told = run(attest, "run", "--testee", "fa2", "--tier", "smoke", "--out", "out", cwd=folder)
        self.assertIn("No failure in ", told)
        self.assertIn(f"{self.home}/bin/python", run(attest, "doctor"))

    def test_programs_use_no_library_but_those_carried(self):
        package = next(self.home.glob("lib/python*/site-packages/attest_attention"))
        for file in [*package.glob("bin/*"), *package.glob("lib/attest/*.so")]:
            for name, path in re.findall(r"(\S+) => (\S+)", run("ldd", file)):
                if (package / "lib" / name).exists():
                    self.assertEqual(pathlib.Path(path).resolve(), package / "lib" / name, file)


if __name__ == "__main__":
    unittest.main()
