"""attest repro --as: a failure as a script that needs no Attest, tried with a kernel that is right.

ATTEST names the command.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import textbook

ATTEST = os.environ["ATTEST"]
# What fails, and by which tensor its script shows it: as the case is made small.
FAILURES = {
    "top_left": ("mask/causal/bottom_right_more_keys/dtype=f32/data=normal/s=1", "O"),
    "window_exclusive": ("mask/window/both_sides/dtype=f32/data=key_names/s=1", "O"),
    "scale_squared": ("empty/rows/gradients/dtype=f16/data=normal/s=1", "LSE"),
    "lse_base_2": ("decode/decode/one_query_small/dtype=f32/data=normal/s=1", "LSE"),
    "dense_inverted": ("mask/dense/random/dtype=f32/data=normal/s=1", "O"),
    "dk_misses_head": ("empty/rows/gradients/dtype=f32/data=normal/s=1", "dK"),
    "zero_gradients": ("empty/rows/gradients/dtype=f16/data=normal/s=1", "dV"),
}
NAMED = re.compile(r"(?:#|//) \S+ \S+: (\w+)\[([\d, ]+)\] is wrong")
PLACEHOLDER = re.compile(r"def kernel\(.*\n    raise NotImplementedError.*\n")
MOST_LINES = 30


def script(mutant, case, language):
    ran = subprocess.run([ATTEST, "repro", case, "--testee", f"mutant:{mutant}", "--as", language],
                         capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr


def right(tensor):
    """The placeholder's place taken by the textbook."""
    def kernel(q, k, v, *others, scale, softcap=0.0):
        others = list(others)
        d_o = others.pop(0) if tensor.startswith("d") else None
        masks = [each for each in others if each.dtype == bool]
        biases = [each for each in others if each.dtype != bool]
        kernel = textbook.Kernel(visible=masks[0] if masks else np.array(True), scale=scale,
                                 softcap=softcap, bias=biases[0] if biases else None)
        forward = dict(zip(("O", "LSE"), kernel.forward(q, k, v)))
        if d_o is None:
            return forward[tensor] if tensor == "O" else forward[tensor][..., None]
        return dict(zip(("dQ", "dK", "dV"), kernel.backward(d_o)))[tensor]
    return kernel


# O by its definition, for the C++ script's [1, 1, Sq, Dv] of [1, 1, Sk, D].
RIGHT_IN_CPP = """
Tensor kernel(const Tensor& q, const Tensor& k, const Tensor& v) {
  Tensor o(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      const double p = visible(int(i), int(j)) ? std::exp(SCALE * q[i] * k[j]) : 0;
      sum += p;
      o[i] += p * v[j];
    }
    o[i] = sum > 0 ? o[i] / sum : 0;
  }
  return o;
}
"""


class ScriptTest(unittest.TestCase):
    def written(self, language, failures=None):
        for mutant, (case, tensor) in (failures or FAILURES).items():
            code, text, errors = script(mutant, case, language)
            with self.subTest(mutant=mutant, language=language):
                self.assertEqual(code, 1, errors)
                self.assertLessEqual(len(text.splitlines()), MOST_LINES)
                self.assertNotIn("attest", text.lower())
                self.assertEqual(NAMED.match(text)[1], tensor)
                yield text, tensor

    def test_numpy_passes_with_a_right_kernel_and_fails_with_a_wrong_one(self):
        tried = 0
        for text, tensor in self.written("numpy"):
            body, places = PLACEHOLDER.subn("", text)
            self.assertEqual(places, 1)
            with np.errstate(all="ignore"):
                exec(body, {"kernel": right(tensor)})
                with self.assertRaises(AssertionError):
                    exec(body, {"kernel": lambda *a, **b: right(tensor)(*a, **b) * 1.5 + 1})
            tried += 1
        self.assertEqual(tried, len(FAILURES))

    @unittest.skipUnless(shutil.which("c++"), "there is no c++")
    def test_cpp_is_a_program_that_ends_with_0_for_a_right_kernel_alone(self):
        for mutant in ("top_left", "window_exclusive", "dense_inverted"):
            for text, _ in self.written("cpp", {mutant: FAILURES[mutant]}):
                scale = re.search(r"with a scale of (\S+)", text)[1]
                for kernel, ends in ((RIGHT_IN_CPP, 0), (RIGHT_IN_CPP.replace("o[i] / sum", "7"), 1)):
                    with tempfile.TemporaryDirectory() as folder:
                        file, program = pathlib.Path(folder, "a.cpp"), pathlib.Path(folder, "a")
                        file.write_text(text + kernel.replace("SCALE", scale))
                        subprocess.run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", file,
                                        "-o", program], check=True)
                        ran = subprocess.run([program], stdout=subprocess.DEVNULL)
                    self.assertEqual(ran.returncode, 0 if "exact = 0," in text else ends, text)

    def test_torch_and_jax_are_called_by_their_public_functions(self):
        failures = {name: FAILURES[name] for name in
                    ("top_left", "window_exclusive", "dense_inverted", "zero_gradients")}
        for language, call in (("torch", "F.scaled_dot_product_attention("),
                               ("jax", "jax.nn.dot_product_attention(")):
            for text, _ in self.written(language, failures):
                self.assertIn(call, text)
                program = compile(text, language, "exec")
                # They do it right, but for rows without keys, of which JAX gives the mean of V.
                if importlib.util.find_spec(language) and "exact, bound = 0," not in text:
                    exec(program, {})

    def test_torch_is_given_tensors_as_they_lie(self):
        case = "grad/layouts/transposed_inputs/layouts=d_o_bhds_v_bhds/dtype=f32/data=normal/s=1"
        for text, _ in self.written("torch", {"dense_do": (case, "dV")}):
            self.assertIn("d_o = d_o.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)", text)

    def test_an_issue_has_the_script_the_clause_and_the_version(self):
        code, text, _ = script("top_left", FAILURES["top_left"][0], "issue")
        self.assertEqual(code, 1)
        for part in ("### O is wrong: ", "`mutant/top_left` 1", "```python\n# mutant/top_left",
                     "- MASK-3"):
            self.assertIn(part, text)

    def test_what_cannot_be_said_is_named(self):
        for mutant, case, language, why in (
                ("lse_base_2", FAILURES["lse_base_2"][0], "torch", "no number is wrong that is"),
                ("leaks_masked_nan", "hide/masked_nan/beyond_the_diagonal/dtype=f32/data=normal/s=1",
                 "numpy", "what lies hidden in the inputs"),  # which is a warning
                ("rust", FAILURES["top_left"][0], "rust", "--as takes torch, jax, numpy, cpp, issue"),
                ("top_left", FAILURES["top_left"][0].replace("s=1", "s=2"), "cpp",
                 "--as takes the case's own numbers")):
            code, text, errors = script(mutant, case, language)
            self.assertEqual((code, text), (2, ""), errors)
            self.assertIn(why, errors)

    def test_what_passes_has_no_script(self):
        ran = subprocess.run([ATTEST, "repro", FAILURES["top_left"][0], "--testee", "naive", "--as",
                              "cpp"], capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
