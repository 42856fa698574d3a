"""Kernels in Python, judged by the command: right and wrong ones, and those that are misused.

ATTEST_PROGRAM names the command as it was built.
"""
import importlib.util
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import numpy as np

import attest_attention as attest
import kernels
from attest_attention import _backends
from attest_attention._kernel import PROFILES

HERE = pathlib.Path(__file__).parent
PROGRAM = os.environ["ATTEST_PROGRAM"]
CASE = "format/formats/f32/dtype=f32/data=normal"


def program(*arguments, **environment):
    """What it prints, of both kinds."""
    return subprocess.run([PROGRAM, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          env={**os.environ, "ATTEST_PYTHON": sys.executable, **environment}).stdout


def judged(file, names, case=CASE):
    """The verdicts of some kernels of a file on one case, by kernel."""
    with tempfile.TemporaryDirectory() as folder:
        more = [word for name in names[1:] for word in ("--testee", f"{HERE / file}:{name}")]
        run = attest.run(f"{HERE / file}:{names[0]}", cases=[case], profiles=["none"], out=folder,
                         options=more)
        return {verdict.testee.split(":")[1]: verdict for verdict in run.verdicts}


def processor_seconds():
    """Of all that this process started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class SuiteTest(unittest.TestCase):
    """A tier of the suite on a kernel."""

    def test_a_function_that_is_no_kernel_is_told_what_makes_it_one(self):
        with self.assertRaisesRegex(TypeError, "as @attest.kernel makes one of a function.*lambda"):
            attest.run(lambda p, q, k, v: q)

    def test_devices_are_dealt_to_the_jobs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "seeing.py")
            path.write_text("import os\nimport attest_attention as attest\n"
                            "@attest.kernel(dtypes=['f32'])\n"
                            "def mine(p, q, k, v):\n"
                            "    raise ValueError('sees ' + os.environ['CUDA_VISIBLE_DEVICES'])\n")
            with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "3,GPU-5e"}):
                run = attest.run(str(path), tier="smoke", out=folder, profiles=["none"],
                                 options=["--jobs", "2", "--device-per-job"])
            told = " ".join(each.message for each in run.failures)
        self.assertEqual(set(re.findall(r"sees ([^ ]+)", told)), {"3", "GPU-5e"})

    def test_right_kernel_of_every_feature_passes(self):
        run = attest.run(kernels.right, tier="smoke")
        self.assertTrue(run.passed, run)
        self.assertEqual(run.failures, [])
        self.assertGreater(run.counts["PASS"], 100)
        self.assertEqual({verdict.testee for verdict in run.verdicts}, {"kernels.py:right"})

    def test_tables_of_masks_are_seen_as_the_standard_has_them(self):
        run = attest.run(kernels.right, cases=["mask/segments/**/dtype=f32/**", "mask/prefix/**",
                                               "mask/block_sparse/**/dtype=f32/**"])
        self.assertTrue(run.passed, run)
        self.assertGreater(run.counts["PASS"], 30)

    def test_diagonal_at_the_wrong_corner_fails_with_its_clause(self):
        run = attest.run(kernels.top_left, tier="smoke")
        self.assertFalse(run.passed)
        self.assertFalse(run.conformant)
        self.assertEqual({failure.clause for failure in run.failures}, {"MASK-3"})
        self.assertIn("diagonal at the top left (MASK-3)", str(run))
        self.assertIn("MASK-3", run._repr_html_())
        self.assertIn("Not conformant: kernels.py:top_left", repr(run))
        standing = next(each for each in run.profiles if each.profile == "forward-core")
        self.assertLess(standing.passed, standing.demanded)
        self.assertIn(standing.standing, run.text, "the words are those of the terminal")
        self.assertIn(f"<td>{standing.standing}</td>", run._repr_html_())
        self.assertTrue(str(standing).endswith(f": {standing.standing}"))

    def test_profile_that_is_met_makes_it_conformant(self):
        before = processor_seconds()
        run = attest.run(kernels.core, tier="standard")
        seconds = processor_seconds() - before
        self.assertTrue(run.conformant, run)
        self.assertTrue(all(standing.met for standing in run.profiles))
        judged = run.counts["PASS"] + run.counts["WARN"]
        rate = judged / seconds
        print(f"{judged} verdicts in {seconds:.1f} s of one processor: {rate:.0f} a second")
        self.assertGreater(rate, 60)


    def test_sequences_that_are_packed_or_in_pages_are_seen(self):
        run = attest.run(kernels.sequences, cases=["packed/**", "paged/**"])
        self.assertEqual(run.conclusion, "incomplete")  # it claims no profile
        self.assertTrue(run.passed, run)
        self.assertGreater(run.counts["PASS"], 50)

    def test_dialects_and_drawn_masks_cross(self):
        for kernel, cases in ((kernels.two_statistics, ["empty/**", "grad/core/**", "lse/**"]),
                              (kernels.draws, ["dropout/generated/**"])):
            run = attest.run(kernel, profiles="none", cases=cases)
            self.assertTrue(run.passed, run)
            self.assertGreater(run.counts["PASS"], 5)


class MisuseTest(unittest.TestCase):
    """What is returned wrongly, or raised, is told in its own terms."""

    @classmethod
    def setUpClass(cls):
        cls.verdicts = judged("mistakes.py", [
            "plain", "nothing", "alone", "three", "shape", "dtype", "lists", "absent",
            "undeclared_lse", "raises", "raises_within_numpy", "raises_half_a_character", "exits",
            "writes", "dies"])

    def test_right_kernel_passes(self):
        self.assertEqual(self.verdicts["plain"].outcome, "PASS")

    def test_message_says_what_is_wrong(self):
        for name, message in {
            "nothing": "forward failed: nothing returned None, expected (o, lse)",
            "alone": "forward failed: alone returned 1 value, expected 2: (o, lse)",
            "three": "forward failed: three returned 3 values, expected 2: (o, lse)",
            "undeclared_lse": "forward failed: undeclared_lse returned 2 values, expected 1: o; "
                              "LSE is returned with the feature lse alone",
            "dtype": "forward failed: lse has dtype f64, expected f32",
            "lists": "forward failed: o is a list, expected a numpy.ndarray",
        }.items():
            with self.subTest(name):
                self.assertEqual(self.verdicts[name].outcome, "FAIL")
                self.assertEqual(self.verdicts[name].message, message)

    def test_shapes_are_told(self):
        shape = r"\(2, 4, 19, 31\), expected \(2, 4, 19, 32\)"
        self.assertRegex(self.verdicts["shape"].message, rf"^forward failed: o has shape {shape}$")
        self.assertRegex(self.verdicts["absent"].message,
                         r"^forward failed: lse is None, expected an array of shape \(2, 4, 19\)$")

    def test_exception_is_told_with_its_traceback(self):
        verdict = self.verdicts["raises"]
        self.assertRegex(verdict.message, r"^forward failed: ValueError: matmul: .*"
                                          r" \(mistakes.py, line \d+\)$")
        self.assertRegex(verdict.captured, r"(?s)so far so good.*Traceback \(most recent call last\)"
                                           r":.*in raises\n    return helper\(q, k\).*in helper\n"
                                           r"    return q @ k .*ValueError: matmul")
        self.assertNotIn("worker.py", verdict.captured)

    def test_line_told_is_the_kernels_own(self):
        self.assertRegex(self.verdicts["raises_within_numpy"].message,
                         r"LinAlgError: Singular matrix \(mistakes.py, line \d+\)$")

    def test_exception_of_no_utf_8_is_told_too(self):
        self.assertRegex(self.verdicts["raises_half_a_character"].message,
                         r"^forward failed: OSError: no file \? \(mistakes.py, line \d+\)$")

    def test_exit_is_an_exception_too(self):
        self.assertRegex(self.verdicts["exits"].message, r"SystemExit: 1 \(mistakes.py, line")

    def test_input_cannot_be_written_to(self):
        self.assertIn("read-only", self.verdicts["writes"].message)

    def test_what_is_written_by_a_pointer_is_seen(self):
        verdicts = judged("mistakes.py", [
            "writes_to_q", "writes_before_k", "writes_far_behind_v", "writes_to_an_earlier_q",
            "reads_behind_v", "writes_behind_its_output"])
        for name, place in {"writes_to_q": "q, 8 bytes from its start",
                            "writes_before_k": "k, -8 bytes from its start"}.items():
            with self.subTest(name):
                self.assertEqual(verdicts[name].reason, "input_mutated")
                self.assertEqual(verdicts[name].message, f"forward: the kernel wrote to {place}")
        for name in ("writes_far_behind_v", "reads_behind_v", "writes_behind_its_output"):
            with self.subTest(name):
                self.assertEqual(verdicts[name].outcome, "CRASH")
        # Of an earlier call: mapped no more, or the place of another tensor now.
        self.assertIn(verdicts["writes_to_an_earlier_q"].outcome, ("CRASH", "FAIL"))

    def test_crash_is_told_with_its_line(self):
        self.assertEqual(self.verdicts["dies"].outcome, "CRASH")
        self.assertRegex(self.verdicts["dies"].captured, r'mistakes.py", line \d+ in dies')

    def test_masks_that_have_no_short_name_are_told(self):
        for case, message in {
                "mask/dilated/strided": "p.causal: the mask is a union of others: read p.mask",
                "decode/hard/heads_causal": "p.causal: its diagonal is moved by -9: read p.mask, "
                                            "or declare limits="}.items():
            verdicts = judged("mistakes.py", ["causal_alone"], f"{case}/dtype=f32/data=normal")
            self.assertIn(f"ValueError: {message}", verdicts["causal_alone"].message)

    def test_terminal_shows_message_and_traceback(self):
        told = program("repro", f"{CASE}/s=1", "--testee", f"{HERE}/mistakes.py:raises")
        self.assertIn("ValueError: matmul", told)
        self.assertIn("in helper", told)
        with tempfile.TemporaryDirectory() as folder:
            told = program("run", f"{HERE}/mistakes.py:raises", "--cases", CASE, "--out", folder)
        self.assertIn("forward failed: ValueError: matmul", told)
        self.assertIn("    return helper(q, k)", told)
        self.assertNotIn("exited with status", told)


class FileTest(unittest.TestCase):
    """Files that cannot be judged."""

    def complaint(self, text, name="odd.py", command=None, **environment):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            (pathlib.Path(folder) / name).write_text(textwrap.dedent(text))
            run = ("run", "--out", f"{folder}/out", "--testee")
            return program(*(command or run), f"{folder}/{name}", **environment)

    def test_file_that_raises_is_told_with_its_traceback(self):
        told = self.complaint("import numpy\nnumpy.no_such_thing\n")
        self.assertIn("odd.py cannot be used: AttributeError: module 'numpy' has no attribute "
                      "'no_such_thing'", told)
        self.assertIn('odd.py", line 2, in <module>', told)

    def test_traceback_is_told_behind_whatever_was_printed(self):
        told = self.complaint("print(20000 * 'x', flush=True)\nimport no_such_module\n")
        self.assertIn("\nModuleNotFoundError: No module named 'no_such_module'", told)

    def test_syntax_error_is_told(self):
        self.assertIn("odd.py cannot be used: SyntaxError", self.complaint("def f(:\n"))

    def test_file_without_kernels_is_told(self):
        self.assertIn("it has no kernel: no function decorated with @attest_attention.kernel",
                      self.complaint("import attest_attention\n"))

    def test_kernel_without_a_backward_pass_is_refused_in_words(self):
        told = self.complaint("""
            import attest_attention as attest
            @attest.kernel(dtypes=["f32"])
            def f(p, q, k, v):
                if p.query_len > 256 or p.key_len > 512:
                    raise NotImplementedError("it is short")
                return v[:, :, :1].repeat(p.query_len, 2)
            """, command=("probe", "--dtype", "f32"))
        self.assertIn("backward failed: f has no backward pass", told)
        self.assertNotIn("AssertionError", told)

    def test_two_kernels_of_a_name_are_told(self):
        self.assertIn("two kernels are called f", self.complaint("""
            import attest_attention as attest
            def f(p, q, k, v): ...
            a, b = attest.kernel(dtypes=["f32"])(f), attest.kernel(dtypes=["f32"])(f)
            """))

    def test_declaration_that_is_wrong_is_told(self):
        for said, told in {'features=["casual"]': 'there is no feature "casual"',
                           'features=["backward"]': '"backward" is declared, and there is neither',
                           'arithmetic="fp32"': 'no arithmetic is called "fp32"',
                           'arithmetic="gpu-tf32"': "gpu-tf32 says nothing of f16",
                           "alignment=3": "the alignment is a power of two"}.items():
            with self.subTest(said):
                self.assertIn(told, self.complaint(f"""
                    import attest_attention as attest
                    @attest.kernel(dtypes=["f16"], {said})
                    def f(p, q, k, v): ...
                    """))

    def test_run_at_import_is_told(self):
        told = self.complaint("""
            import attest_attention as attest
            @attest.kernel(dtypes=["f32"])
            def f(p, q, k, v): ...
            attest.run(f)
            """)
        self.assertIn("call it below if __name__ == '__main__':", told)

    def test_missing_file_and_missing_python_are_told(self):
        self.assertIn("there is no file", program("run", "--testee", "./nothing.py"))
        told = self.complaint("", ATTEST_PYTHON="/no/such/python")
        self.assertIn("ATTEST_PYTHON names one", told)

    def test_python_without_the_package_is_told(self):
        told = self.complaint("", PYTHONPATH="")
        self.assertIn("the package attest_attention? ATTEST_PYTHON names one", told)

    def test_part_of_a_package_is_imported_as_such(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            package = pathlib.Path(folder) / "flash"
            package.mkdir()
            (package / "__init__.py").touch()
            (package / "plain.py").write_text((HERE / "mistakes.py").read_text())
            (package / "mine.py").write_text("from .plain import fine\n")
            run = attest.run(f"{package}/mine.py", cases=[CASE], profiles=["none"])
        self.assertEqual(run.counts, {"PASS": 1})


class DecoratorTest(unittest.TestCase):
    """Misuse that is seen before anything runs."""

    def test_what_is_wrong_is_named(self):
        def f(p, q, k, v):
            pass

        for declared, message in (
                ({"dtypes": "f32"}, "dtypes: expected a list of names, got the text 'f32'"),
                ({"arrays": "cupy"}, "arrays: expected one of"),
                ({"device": "cuda"}, "device: expected one of"),
                ({"backward": "autograd"}, "backward: expected 'autograd', with arrays='torch'"),
                ({"limit": {}}, "nothing is declared as 'limit'; did you mean limits?")):
            with self.subTest(message), self.assertRaises((TypeError, ValueError)) as caught:
                attest.kernel(**{"dtypes": ["f32"], **declared})(f)
            self.assertIn(message, str(caught.exception))

    def test_kernel_stays_a_function(self):
        twice = attest.kernel(dtypes=["f32"])(lambda p, q, k, v: 2 * q)
        self.assertEqual(twice(None, 3, None, None), 6)

    def test_kernel_that_was_typed_in_is_judged_or_told_what_to_do(self):
        told = subprocess.run([sys.executable, "-"], text=True, capture_output=True, input=f"""
import attest_attention as attest
factor = 2
@attest.kernel(dtypes=["f32"])
def mine(p, q, k, v):
    raise ValueError(f"{{factor}} is what is there")
print(attest.run(mine, cases=["{CASE}"]).failures)
""")
        if importlib.util.find_spec("cloudpickle"):
            self.assertIn("forward failed: ValueError: 2 is what is there", told.stdout)
        else:
            self.assertIn("%%writefile mine.py", told.stderr)

    def test_profiles_follow_from_features(self):
        claimed = kernels.right.description["profiles"]
        self.assertEqual(claimed, [
            "forward-core", "training-core", "training-full", "masks", "sparse-masks", "scores",
            "dropout", "varlen", "layouts", "double"])
        told = program("list", "--features", "--json")
        needed = {}
        for row in json.loads(told):
            for profile in row["clauses"].values():
                if row["declared_in"] == "features" and (
                        not row["limit_if_absent"] or profile == "layouts"):
                    needed.setdefault(profile, set()).add(row["feature"])
        needed.pop("device", None)  # which takes any of them
        self.assertEqual({name: set(features) for name, features in PROFILES.items()}, needed)


class NarrowTest(unittest.TestCase):
    """Kernels with limits, in a file of their own."""

    def judged(self, cases, text):
        """Verdicts, and what was diagnosed."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "narrow.py")
            path.write_text("import numpy as np\nimport attest_attention as attest\n" +
                            f"import sys\nsys.path.insert(0, {str(HERE)!r})\n" +
                            "from mistakes import plain\n" + textwrap.dedent(text))
            run = attest.run(f"{path}:mine", cases=cases, profiles=["none"], out=folder)
            diagnosis = json.loads(pathlib.Path(folder, "diagnosis.json").read_text())
            self.assertTrue(run.verdicts)  # which are read while they are there
            return run, diagnosis

    def test_a_format_may_lack_lse(self):
        run, _ = self.judged(["format/formats/**", "lse/**"], """
            @attest.kernel(dtypes=["f32", "f16"], features=["lse", "gqa"],
                           limits={"dtypes": {"f16": {"features": ["gqa"]}}})
            def mine(p, q, k, v):
                o, lse = plain(p, *(x.astype(np.float32) for x in (q, k, v)))
                o = o.astype(q.dtype)
                return (o, lse) if q.dtype == np.float32 else o
            """)
        self.assertEqual(run.failures, [])
        with_lse = {each.case.split("dtype=")[1].split("/")[0]
                    for each in run.verdicts if "LSE" in each.tensors}
        self.assertEqual(with_lse, {"f32"})

    def test_smaller_neighbours_of_fitted_cases_are_tried(self):
        run, diagnosis = self.judged(["score/softcap/**/dtype=f32/**"], """
            @attest.kernel(dtypes=["f32"], features=["softcap", "gqa"], arithmetic="exact-f32",
                           limits={"head_dim": 64, "query_len": {"multiple": 4}})
            def mine(p, q, k, v):
                if not p.softcap:
                    return plain(p, q, k, v)[0]
                k, v = (np.repeat(x, p.query_heads // p.key_heads, 1) for x in (k, v))
                cap = np.float32(2 * p.softcap)
                s = cap * np.tanh(np.float32(p.scale) * (q @ k.swapaxes(2, 3)) / cap)
                e = np.exp(s - s.max(3, keepdims=True))
                return e @ v / e.sum(3, keepdims=True)
            """)
        self.assertTrue(all("/fit=" in each.case for each in run.failures), run.failures)
        without = [relief["what"] for group in diagnosis["groups"]
                   for relief in group["passes_without"]]
        self.assertIn("a softcap", without)


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class TorchTest(unittest.TestCase):
    def test_own_attention_passes_with_autograd(self):
        run = attest.run(str(HERE / "torch_kernels.py") + ":sdpa", tier="smoke")
        self.assertTrue(run.passed, run)
        self.assertTrue(any("dQ" in each.tensors for each in run.verdicts))

    def test_gradients_of_bias_sinks_and_lse_pass(self):
        run = attest.run(str(HERE / "torch_kernels.py") + ":eager", tier="smoke")
        self.assertTrue(run.passed, run)
        tensors = {tensor for each in run.verdicts for tensor in each.tensors}
        self.assertTrue({"dBias", "dSink"} <= tensors, tensors)

    def test_misuse_is_told(self):
        verdicts = judged("torch_kernels.py", ["in_place", "elsewhere", "numpy_array"])
        self.assertEqual(verdicts["in_place"].reason, "input_mutated")
        self.assertRegex(verdicts["in_place"].message,
                         r"^forward: the kernel wrote to q, \d bytes from its start$")
        self.assertEqual(verdicts["elsewhere"].message,
                         "forward failed: o is on meta, expected cpu")
        self.assertEqual(verdicts["numpy_array"].message,
                         "forward failed: o is a ndarray, expected a torch.Tensor")


    def test_lack_of_a_device_is_told_from_other_lacks(self):
        library = _backends.backend("torch", "cpu", ["f32"])
        for text, lacks in (("CUDA driver error: out of memory (<string>, line 5)", True),
                            ("CUDA error: out of memory", True),
                            ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", True),
                            ("CUDA call failed lazily at initialization with error: num_gpus", True),
                            ("out of resource: shared memory", False)):
            self.assertEqual(library.lacks_device(RuntimeError(text)), lacks, text)


@unittest.skipUnless(importlib.util.find_spec("jax"), "jax is not installed")
class JaxTest(unittest.TestCase):
    def test_kernel_and_its_vjp_pass(self):
        run = attest.run(str(HERE / "jax_kernels.py"), tier="smoke")
        self.assertTrue(run.passed, run)
        self.assertTrue(any("dQ" in each.tensors for each in run.verdicts))


if __name__ == "__main__":
    unittest.main()
