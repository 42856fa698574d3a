"""impl/adapters: that each imports, what it declares, and the lock of versions. What is not
installed is stood in for: a declaration is no matter of the machine."""
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import attest_attention as attest

TREE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TREE / "impl/adapters"
sys.path.insert(0, str(FOLDER))
import digest
import findings
import in_scripts
LOCK = json.loads((FOLDER / "versions.json").read_text())
BITS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}
ADAPTERS = {name: about for system in LOCK["systems"].values()
            for name, about in system["adapters"].items()}
GROUP = {"outcome": "FAIL", "reason": "", "blamed": "", "clauses": [], "cases": "", "tensor": "",
         "example": "", "problem": "", "message": "", "dtypes": [], "count": 1}
ROOTS = {"torch", "jax", "onnx", "onnxruntime", "mlx", "flash_attn", "llama_cpp"}


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
                    told.pop("beyond_caps", None)  # with it nothing is judged
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
    def test_versions_are_numbers_newest_first(self):
        for name, system in LOCK["systems"].items():
            numbers = [tuple(map(int, each.split("."))) for each in system["versions"]]
            self.assertEqual(numbers, sorted(numbers, reverse=True), name)


class FindingsTest(unittest.TestCase):
    def test_findings_are_of_kernels_versions_and_clauses_that_there_are(self):
        clauses = set(re.findall(r"\b[A-Z]+-\d+\b", (TREE / "spec/CLAUSES.md").read_text()))
        released = [(each["id"], version) for each in findings.ALL if each["kind"] == "bug"
                    for version in each["versions"] if version != "*"]
        self.assertGreaterEqual(len(released), 20)
        self.assertEqual(len(findings.BY_ID), len(findings.ALL), "an id stands twice")
        for each in findings.ALL:
            with self.subTest(each["id"]):
                self.assertLessEqual({"id", "system", "kernels", "versions", "kind", "what", "link",
                                      "reported", "clauses"}, set(each))
                self.assertIn(each["kind"], ("bug", "dialect", "limit"))
                system = LOCK["systems"][each["system"]]
                kernels = [kernel for about in system["adapters"].values()
                           for kernel in about["kernels"]]
                for pattern in each["kernels"]:
                    self.assertTrue(fnmatch.filter(kernels, pattern), pattern)
                self.assertLessEqual(set(each["versions"]), {"*", *system["versions"]})
                self.assertTrue(each["clauses"] and set(each["clauses"]) <= clauses)
                self.assertRegex(each["link"],
                                 r"^$|^https://github\.com/[\w.-]+/[\w.-]+/issues/\d+$")
                self.assertRegex(each["reported"], r"^$|^20\d\d-\d\d-\d\d$")
                for where in each.get("where", []):
                    self.assertLessEqual(set(where), set(GROUP))

    def test_a_failure_is_explained_by_what_it_is_like(self):
        about = {"system": "onnxruntime", "version": "1.32.0", "kernel": "onnxruntime_mha"}
        group = {**GROUP, "reason": "bound", "problem": "f32 b1 h1/1 q2 k5 d8 causal top_left"}
        self.assertEqual(findings.of(about, group)["id"], "ort-mha-unidirectional")
        self.assertIsNone(findings.of(about, {**group, "problem": "f32 b1 h1/1 q2 k5 d8 full"}))
        self.assertIsNone(findings.of({**about, "kernel": "onnxruntime_attention"}, group))
        old = {"system": "torch", "version": "2.4.1", "kernel": "torch_math_cpu"}
        empty = {**GROUP, "reason": "nonfinite", "blamed": "EMPTY-1"}
        self.assertEqual(findings.of(old, empty)["id"], "torch-math-cpu-empty-rows")
        self.assertIsNone(findings.of({**old, "version": "2.11.0"}, empty))


class DigestTest(unittest.TestCase):
    def test_a_crash_is_a_failure_that_wants_a_finding(self):
        verdict = {"kind": "verdict", "outcome": "CRASH", "reason": "", "case": "a/b/c",
                   "clauses": ["SAFE-4"], "dtype": "f16", "message": "killed by signal 6"}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "results.jsonl").write_text(json.dumps(verdict) + "\n")
            (group,) = digest.groups(pathlib.Path(folder), lambda one: "")
        self.assertEqual((group["outcome"], group["reason"]), ("FAIL", "crash"))
        self.assertEqual(findings.failures({"groups": [group]}), [group])


class ScriptsTest(unittest.TestCase):
    """What shows a finding without Attest."""

    SCRIPT = ("# a case\ndef kernel(q, k, v, *others, **more):  # your kernel: dV in f32\n"
              "    raise NotImplementedError(\"put the kernel in\")\nactual = 1\n")

    def test_those_by_hand_are_of_findings_and_short(self):
        for path in (FOLDER / "scripts").iterdir():
            text = path.read_text()
            self.assertIn(path.stem, findings.BY_ID)
            self.assertLessEqual(text.count("\n"), 30, path.name)
            compile(text, path.name, "exec")
            self.assertNotIn("import attest", text)
            self.assertTrue(text.splitlines()[-1].startswith("assert "), path.name)

    def test_a_kernel_takes_the_place_of_the_placeholder(self):
        names = [kernel for about in ADAPTERS.values() for kernel in about["kernels"]]
        for kernel in in_scripts.KERNELS:
            self.assertIn(kernel, names)
            script = in_scripts.filled(self.SCRIPT, kernel, "dV")
            compile(script, kernel, "exec")
            for left in ("NotImplementedError", "TENSOR", "OPERATOR", "RUN"):
                self.assertNotIn(left, script)
            self.assertTrue(script.startswith("# a case\ndef kernel("))
            self.assertTrue(script.endswith("\nactual = 1\n"))
        self.assertIsNone(in_scripts.filled(self.SCRIPT, "torch_flash_cpu", "O"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["describe"]:
        describe(sys.argv[2])
    else:
        unittest.main()
