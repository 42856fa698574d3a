"""impl/adapters: that each imports, what it declares, and the lock of versions. What is not
installed is stood in for: a declaration is no matter of the machine."""
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np

import attest_attention as attest

TREE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TREE / "impl/adapters"
LOCK = json.loads((FOLDER / "versions.json").read_text())
BITS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}
ADAPTERS = {name: about for system in LOCK["systems"].values()
            for name, about in system["adapters"].items()}
ROOTS = {"torch", "jax", "onnx", "onnxruntime", "mlx", "flash_attn"}


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that have whatever they are asked for, in place of libraries that are not here."""

    def __init__(self):
        self.roots = {root for root in ROOTS if importlib.util.find_spec(root) is None}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.roots:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name, __version__="stand-in", __path__=[])
        module.defs.get_schema.return_value.since_version = 25
        schema = mock.MagicMock(domain="", since_version=25)
        schema.name = "Attention"
        module.onnxruntime_pybind11_state.get_all_operator_schema.return_value = [schema]
        return module

    def exec_module(self, module):
        pass


def version(of, real=importlib.metadata.version):
    try:
        return real(of)
    except importlib.metadata.PackageNotFoundError:
        if of not in ROOTS:
            raise
        return "stand-in"


def kernels_of(adapter):
    """As a worker has them, in a process of its own: {name: description}."""
    told = subprocess.run([sys.executable, "-B", __file__, "describe", adapter], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if told.returncode:
        raise AssertionError(f"{adapter}: {told.stderr}")
    return json.loads(told.stdout.splitlines()[-1])


def describe(adapter):
    from attest_attention.worker import kernels_of as kernels
    sys.meta_path.append(StandIns())
    importlib.metadata.version = version
    found = kernels(str(FOLDER / adapter))
    print(json.dumps({name: {**kernel.description, "device": kernel.device}
                      for name, kernel in found.items()}))


def expect_valid(description):
    """Read as strictly as that of any testee. Raises ValueError."""
    dtype = description["dtypes"][0]
    ones = np.ones((1, 1, 1, 8), BITS[dtype])
    attest.judge(ones, ones, ones, ones, arithmetic=description, dtype="bf16" if dtype == "bf16"
                 else None)


class AdaptersTest(unittest.TestCase):
    def test_each_imports_and_has_the_kernels_of_the_lock(self):
        for adapter, about in ADAPTERS.items():
            with self.subTest(adapter):
                described = kernels_of(adapter)
                self.assertEqual(list(described), about["kernels"])
                for name, told in described.items():
                    self.assertEqual(told.pop("device"), about["device"], name)
                    expect_valid(told)

    def test_a_declaration_of_what_there_is_not_is_seen(self):
        wrong = {"name": "wrong", "version": "", "vendor": "", "profiles": [], "dtypes": ["f32"],
                 "features": []}
        expect_valid(wrong)
        for change in ({"limits": {"head_dims": 8}}, {"features": ["causl"]},
                       {"arithmetic": {"f32": {"exp_ulp": 20}}}):
            with self.assertRaises(ValueError):
                expect_valid({**wrong, **change})

    def test_every_adapter_is_in_the_lock(self):
        files = {path.name for path in FOLDER.glob("*.py")
                 if "@attest.kernel(" in path.read_text()}
        self.assertEqual(files, set(ADAPTERS))


class LockTest(unittest.TestCase):
    def test_bugs_are_of_kernels_versions_and_clauses_that_there_are(self):
        clauses = set(re.findall(r"\b[A-Z]+-\d+\b", (TREE / "spec/CLAUSES.md").read_text()))
        self.assertGreaterEqual(len(LOCK["bugs"]), 20)
        for bug in LOCK["bugs"]:
            with self.subTest(bug["bug"]):
                self.assertEqual(set(bug), {"system", "version", "kernel", "bug", "link",
                                            "clauses"})
                system = LOCK["systems"][bug["system"]]
                self.assertIn(bug["version"], system["versions"])
                self.assertIn(bug["kernel"], [kernel for about in system["adapters"].values()
                                              for kernel in about["kernels"]])
                self.assertTrue(bug["clauses"] and set(bug["clauses"]) <= clauses, bug["clauses"])
                self.assertRegex(bug["link"],
                                 r"^$|^https://github\.com/[\w.-]+/[\w.-]+/issues/\d+$")

    def test_versions_are_numbers_newest_first(self):
        for name, system in LOCK["systems"].items():
            numbers = [tuple(map(int, each.split("."))) for each in system["versions"]]
            self.assertEqual(numbers, sorted(numbers, reverse=True), name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["describe"]:
        describe(sys.argv[2])
    else:
        unittest.main()
