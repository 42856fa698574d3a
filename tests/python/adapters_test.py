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
import textbook
LOCK = json.loads((FOLDER / "versions.json").read_text())
BITS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}
ADAPTERS = {name: about for system in LOCK["systems"].values()
            for name, about in system["adapters"].items()}
GROUP = {"outcome": "FAIL", "reason": "", "blamed": "", "clauses": [], "cases": "", "tensor": "",
         "example": "", "problem": "", "message": "", "dtypes": [], "count": 1,
         "alike": [digest.NOT_ASKED], "admitted_by": [digest.NOT_ASKED]}
ROOTS = {"torch", "triton", "jax", "onnx", "onnxruntime", "mlx", "flash_attn", "llama_cpp"}


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
                                 r"^$|^https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$")
                self.assertRegex(each["reported"], r"^$|^20\d\d-\d\d-\d\d$")
                for where in each.get("where", []) + each.get("unless", []):
                    self.assertLessEqual(set(where), set(GROUP))

    def test_a_failure_is_explained_by_what_it_is_like(self):
        about = {"system": "onnxruntime", "version": "1.32.0", "kernel": "onnxruntime_mha"}
        group = {**GROUP, "reason": "bound", "problem": "f32 b1 h1/1 q2 k5 d8 causal top_left",
                 "blamed": "MASK-2"}
        self.assertEqual(findings.of(about, group)["id"], "ort-mha-unidirectional")
        self.assertIsNone(findings.of(about, {**group, "problem": "f32 b1 h1/1 q2 k5 d8 full"}))
        self.assertIsNone(findings.of({**about, "kernel": "onnxruntime_attention"}, group))
        old = {"system": "torch", "version": "2.4.1", "kernel": "torch_math_cpu"}
        empty = {**GROUP, "reason": "nonfinite", "blamed": "EMPTY-1", "problem": "f32",
                 "message": "O[0,0,0,0] = nan, exact 0, and nothing else will do"}
        self.assertEqual(findings.of(old, empty)["id"], "torch-math-cpu-empty-rows")
        self.assertIsNone(findings.of({**old, "version": "2.11.0"}, empty))
        self.assertIsNotNone(findings.of({**old, "version": "2.4.1+cpu"}, empty))

    def test_a_refusal_is_no_wrong_number(self):
        finding = {"clauses": ["CALL-1"]}
        refusals = [{**GROUP, "reason": reason, "blamed": "CALL-1", "problem": "f32 softcap=1 full",
                     "message": "it fell"} for reason in findings.WITHOUT_NUMBERS]
        for more, explained in (({}, False), ({"where": [{"problem": ["*softcap=*"]}]}, False),
                                ({"where": [{"reason": ["*"]}]}, False),
                                ({"where": [{"reason": ["bound", "wrong_refusal", "crash",
                                                        "timeout", "protocol_error"]}]}, True),
                                ({"where": [{"message": ["it fell"]}]}, True)):
            for group in refusals:
                self.assertEqual(findings.explains({**finding, **more}, group), explained, more)
        self.assertTrue(findings.explains(finding, {**refusals[0], "reason": "bound"}))

    def test_what_unless_has_is_not_explained(self):
        finding = {"clauses": ["MASK-2"], "unless": [{"problem": ["* q1 *"], "reason": ["bound"]}]}
        group = {**GROUP, "blamed": "MASK-2", "reason": "bound"}
        self.assertFalse(findings.explains(finding, {**group, "problem": "f32 q1 k2"}))
        self.assertTrue(findings.explains(finding, {**group, "problem": "f32 q2 k2"}))

    def test_what_is_another_mistake_is_not_explained(self):
        cudnn = {"system": "jax", "version": "0.11.2", "kernel": "jax_cudnn_cuda"}
        seen = {**GROUP, "reason": "bound", "problem": "f16 b1 h1/1 q2 k5 d8 window -3..0 top_left"}
        half = {"system": "torch", "version": "2.4.1", "kernel": "torch_math_cpu"}
        near = {**GROUP, "reason": "bound", "problem": "f16 b1 h1/1 q2 k5 d8 full"}
        right, mistakes = "no right edge of the window", ["the mask inverted", "no scale"]
        for about, group, field, told, explained in (
                (cudnn, seen, "alike", [*mistakes, right], True),
                (cudnn, seen, "alike", mistakes, False),
                (cudnn, seen, "alike", [digest.NOTHING], False),
                (cudnn, seen, "alike", [digest.NOT_ASKED], True),
                (half, near, "admitted_by", ['"scores": "f16"'], True),
                (half, near, "admitted_by", [digest.NOTHING], False)):
            self.assertEqual(bool(findings.of(about, {**group, field: told})), explained, told)

    def test_the_sharper_cause_explains(self):
        torch = ("torch", "torch_flash_cpu")
        ort, onnx = ("onnxruntime", "onnxruntime_attention"), ("onnx", "onnx_reference")
        empty = "O[0,0,0,0] = nan, exact 0, and nothing else will do"
        refused = "forward failed: ValueError: non-broadcastable output operand"
        heads = "attn_mask is not compatible with kv_num_heads"
        for (system, kernel), version, problem, reason, message, cause in (
                (ort, "1.26.0", "q1 k5 softcap=1 causal top_left", "bound", "",
                 "ort-causal-one-query"),
                (ort, "1.26.0", "q2 k5 softcap=1 causal top_left", "bound", "",
                 "ort-softcap-order"),
                (ort, "1.26.0", "q2 k5 softcap=1 full", "bound", "", None),
                (ort, "1.23.2", "q2 k5 softcap=1 full bias=[1,4,2,5]", "wrong_refusal", heads,
                 "ort-mask-of-key-heads"),
                (ort, "1.26.0", "q2 k5 full key_lens=[5] bias=[1,1,2,5]", "nonfinite", empty,
                 "ort-empty-rows"),
                (onnx, "1.20.1", "q2 k5 (causal top_left and dense [1,1,2,5])", "nonfinite", empty,
                 "onnx-causal-bool"),
                (onnx, "1.20.1", "q2 k5 causal top_left bias=[1,1,2,5]", "nonfinite", empty,
                 "onnx-empty-rows"),
                (onnx, "1.20.1", "q2 k5 causal bottom_right", "nonfinite", empty,
                 "onnx-empty-rows"),
                (onnx, "1.20.1", "q2 k5 dense [1,1,2,5] key_lens=[3]", "nonfinite", empty,
                 "onnx-empty-rows"),
                (onnx, "1.20.1", "q2 k5 causal top_left", "nonfinite", "", None),
                (onnx, "1.20.1", "q2 k5 softcap=1 full key_lens=[3,2]", "wrong_refusal", refused,
                 "onnx-lengths-of-a-batch"),
                (onnx, "1.20.1", "q9 k5 causal bottom_right bias=[2,1,9,5]", "bound", "",
                 "onnx-causal-lengths"),
                (onnx, "1.23.2", "q9 k5 causal bottom_right bias=[2,1,9,5]", "bound", "", None),
                (onnx, "1.23.2", "q9 k5 causal top_left bias=[2,1,1,5]", "bound", "",
                 "onnx-causal-row-0"),
                (onnx, "1.20.1", "q5 k5 causal bottom_right", "bound", "", None),
                (onnx, "1.19.0", "q5 k5 full", "bound", "", None),
                (torch, "2.4.1", "q9 k513 dense [1,1,9,513]", "nonfinite", "", None),
                (torch, "2.4.1", "q9 k513 dense [1,1,9,513]", "nonfinite", empty,
                 "torch-flash-cpu-empty-rows"),
                (torch, "2.4.1", "q9 k5 full bias=[1,1,9,1]", "crash", "killed by signal 11",
                 "torch-flash-cpu-one-column"),
                (torch, "2.4.1", "q9 k1 full bias=[1,1,9,1]", "crash", "killed by signal 11", None),
        ):
            record = {"system": system, "version": version, "kernel": kernel}
            found = findings.of(record, {
                **GROUP, "problem": f"f32 b2 h4/4 {problem}", "reason": reason, "message": message,
                "blamed": "EMPTY-1" if message == empty else "MASK-2"})
            self.assertEqual(found and found["id"], cause, f"{kernel} {version} {problem}")


class DigestTest(unittest.TestCase):
    def test_a_crash_is_a_failure_that_wants_a_finding(self):
        verdict = {"kind": "verdict", "outcome": "CRASH", "reason": "", "case": "a/b/c",
                   "clauses": ["SAFE-4"], "dtype": "f16", "message": "killed by signal 6"}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "results.jsonl").write_text(json.dumps(verdict) + "\n")
            (group,) = digest.groups(pathlib.Path(folder), lambda one: "")
        self.assertEqual((group["outcome"], group["reason"]), ("FAIL", "crash"))
        self.assertEqual(findings.failures({"groups": [group]}), [group])


    def test_a_group_has_what_explains_its_failures(self):
        verdicts = [{"kind": "verdict", "outcome": "FAIL", "reason": "bound", "case": case,
                     "clauses": ["MASK-4"], "dtype": "f16", "message": "", "tensors": {}}
                    for case in ("a/b/c", "a/b/d", "a/b/e")]
        failures = [{"testee": "t", "case": "a/b/c", "alike": [{"name": "m", "clause": "MASK-4"}],
                     "admitted_by": []},
                    {"testee": "t", "case": "a/b/d", "alike": [], "admitted_by": ["x"]}]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "results.jsonl").write_text("\n".join(map(json.dumps, verdicts)))
            (folder / "diagnosis.json").write_text(json.dumps({"failures": failures}))
            groups = digest.groups(folder, lambda one: one["example"])
        self.assertEqual([(each["alike"], each["admitted_by"]) for each in groups], [
            (["m"], [digest.NOTHING]), ([digest.NOTHING], ["x"]),
            ([digest.NOT_ASKED], [digest.NOT_ASKED])])


class ScriptsTest(unittest.TestCase):
    """What shows a finding without Attest."""

    # As attest repro --as numpy writes it, with all that may stand before the kernel.
    SCRIPT = """# a.py:a 1.0: O[0, 0, 0, 0] is wrong
# f32 b2 h2/2 q%d k%d d8 scale=0.5 %s
import math
import numpy as np
def numbers(t, *shape):
    n = np.arange(math.prod(shape)) %% 61
    return (((n * n + 11 * n + 29 * t) %% 61 - 30) / 16).reshape(shape).astype(np.float32)
q = 1
k = 1
v = 1
bias = 1
i, j = np.arange(2)[:, None], np.arange(1)[None, :]
mask = 1
def kernel(q, k, v, *others, **more):  # your kernel: O in f32
    raise NotImplementedError("put the kernel in")
actual = float(kernel(q, k, v, %sscale=0.5%s)[0, 0, 0, 0])
exact, bound = 0.5, 1.16e-06  # of the arithmetic declared
print(f"O[0, 0, 0, 0] = {actual}, exact {exact}, at most {bound} away")
assert actual == exact or abs(actual - exact) <= bound
"""
    ANY = ["full", "full bias", "causal top_left", "causal bottom_right",
           "causal bottom_right bias", "dense [1,1,4,6]", "dense [1,1,4,6] bias",
           "(causal top_left and dense [1,1,4,6])",
           "causal bottom_right key_lens=[6,5]", "full key_lens=[6,3]"]
    PROBLEMS = {  # that each does
        "onnx_reference": ANY, "onnxruntime_attention": ANY, "onnxruntime_attention_24": ANY,
        "onnxruntime_mha": ["full", "causal top_left", "full bias"],
        "onnxruntime_gqa_prompt": ["causal bottom_right", "window -1..0 bottom_right bias"],
        "onnxruntime_gqa_cache": ["causal bottom_right bias", "window -2..0 bottom_right"],
        "mlx_attention": ["full", "dense [1,1,4,6]", "dense [1,1,4,6] bias", "full bias",
                          "full: dQ", "causal top_left: dV", "dense [1,1,4,6] bias: dBias"]}

    def filled(self, kernel, problem, softcap):
        """A script of 4 queries and 6 keys, or 4 each: the text, the names of its arrays, what it
        asks for, and how many keys it has."""
        problem, _, tensor = problem.partition(": ")
        keys = 4 if kernel in ("onnxruntime_gqa_prompt", "onnxruntime_mha") else 6
        names = [name for name, has in (("d_o", tensor), ("bias", "bias" in problem), (
            "mask", "lens" in problem or not problem.startswith("full"))) if has]
        names.sort(key=["d_o", "mask", "bias"].index)
        script = self.SCRIPT % (4, keys, problem.replace(" bias", f" bias=[1,1,4,{keys}]"),
                                "".join(f"{name}, " for name in names),
                                ", softcap=1" if softcap else "")
        return in_scripts.filled(script, kernel, tensor or "O"), names, tensor or "O", keys

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
        self.assertEqual(set(in_scripts.KERNELS), set(self.PROBLEMS))
        for kernel, problems in self.PROBLEMS.items():
            self.assertIn(kernel, names)
            for problem in problems:
                with self.subTest(f"{kernel} {problem}"):
                    script = self.filled(kernel, problem, kernel != "mlx_attention")[0]
                    compile(script, kernel, "exec")
                    self.assertLessEqual(script.count("\n"), 30)
                    self.assertLessEqual(max(map(len, script.splitlines()[13:-4])), 100)
                    self.assertNotIn("NotImplementedError", script)
                    self.assertEqual(script.splitlines()[-3:], self.SCRIPT.splitlines()[-3:])
        self.assertIsNone(self.filled("torch_flash_cpu", "full", False)[0])

    def test_what_a_kernel_cannot_be_asked_gets_none(self):
        for kernel, problem in (("onnxruntime_gqa_prompt", "dense [1,1,4,4]"),
                                ("onnxruntime_gqa_prompt", "window -1..1 bottom_right"),
                                ("onnxruntime_mha", "causal bottom_right"),
                                ("onnxruntime_mha", "dense [1,1,4,6]")):
            self.assertIsNone(self.filled(kernel, problem, False)[0], problem)

    def test_a_script_that_would_be_too_long_is_none(self):
        script = self.SCRIPT % (4, 6, "full", "", "")
        self.assertIsNotNone(in_scripts.filled(script, "onnx_reference", "O"))
        self.assertIsNone(in_scripts.filled(script + "\n" * 9, "onnx_reference", "O"))

    def test_a_kernel_computes_what_is_asked(self):
        for kernel, problems in self.PROBLEMS.items():
            library = "onnx" if kernel == "onnx_reference" else kernel.partition("_")[0]
            if any(importlib.util.find_spec(each) is None for each in {library, library[:4]} -
                   {"mlx_"}):
                continue
            for problem in problems:
                with self.subTest(f"{kernel} {problem}"):
                    self.expect_right(kernel, problem)

    def expect_right(self, kernel, problem):
        script, names, tensor, keys = self.filled(kernel, problem, False)
        rng = np.random.default_rng(1)
        batch = 2 if keys == 4 or "gqa" not in kernel else 1  # with a past it takes one
        q, k, v, d_o = (rng.standard_normal((batch, 2, each, 8)).astype("f4")
                        for each in (4, keys, keys, 4))
        bias = rng.standard_normal((1, 1, 4, keys)).astype("f4")
        seen = np.ones((batch, 1, 4, keys), bool)
        if "dense" in problem:
            seen &= rng.random((4, keys)) < 0.7
            seen[..., 0] = True
        lengths = re.search(r"key_lens=(.*)", problem)
        ends = np.array(json.loads(lengths[1]) if lengths else [keys] * batch)[:, None, None, None]
        seen &= np.arange(keys) < ends
        shift = ends - 4 if "bottom_right" in problem else 0
        distance = np.arange(keys) - np.arange(4)[:, None] - shift
        if "causal" in problem or "window" in problem:
            seen &= distance <= 0
        if "window" in problem:
            seen &= distance >= -int(problem[8])
        right = textbook.Kernel(visible=seen, scale=0.5, bias=bias if "bias" in names else None)
        results = {"O": right.forward(q, k, v)[0]}
        results.update(zip(("dQ", "dK", "dV", "dBias"), right.backward(d_o)))
        results["dBias"] = results["dBias"].sum((0, 1), keepdims=True)
        space = {"np": np}
        exec(re.search(r"^def kernel.*?(?=^actual)", script, re.M | re.S)[0], space)
        given = {"d_o": d_o, "mask": seen, "bias": bias}
        actual = space["kernel"](q, k, v, *(given[name] for name in names), scale=0.5)
        np.testing.assert_allclose(actual, results[tensor], atol=1e-4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["describe"]:
        describe(sys.argv[2])
    else:
        unittest.main()
