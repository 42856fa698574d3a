"""What assert_close is given: numbers of any library will do; what will not is refused by name."""
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import attest_attention as attest
import textbook
from judge_test import BIAS, D_O, HQ, K, KEEP, Q, SINKS, SK, SQ, TABLE, V, f32
from textbook import Kernel

O, LSE = f32(*Kernel().forward(Q, K, V))
GRADIENTS = ("dq", "dk", "dv")
HUGE = (2**64 + 1, 2**63, -2**63 - 1)  # what 64 bits with a sign do not hold


def has(library):
    return unittest.skipUnless(importlib.util.find_spec(library), f"{library} is not installed")


def gradients(kernel=None):
    kernel = kernel or Kernel()
    kernel.forward(Q, K, V)
    dq, dk, dv, ds, dsink = kernel.backward(D_O, None)
    return f32(dq, dk, dv), f32(ds.sum(0), dsink)


def judged(**options):
    return attest.judge(O, Q, K, V, **{"arithmetic": "exact-f32", **options})


class GradientsTest(unittest.TestCase):
    def judge(self, given, **options):
        return attest.judge_gradients(given, Q, K, V, D_O, arithmetic="exact-f32", **options)

    def test_one_that_is_missing_is_refused(self):
        right, _ = gradients()
        for at, name in enumerate(GRADIENTS):
            given = [None if n == at else each for n, each in enumerate(right)]
            with self.assertRaisesRegex(TypeError, f"^{name} is None: .* dict"):
                self.judge(given)
            with self.assertRaisesRegex(TypeError, f"^{name} is None"):
                attest.assert_gradients_close(given, Q, K, V, D_O, arithmetic="exact-f32")
            with self.assertRaisesRegex(TypeError, f"^{name} is None"):
                self.judge({name: None})
        with self.assertRaisesRegex(TypeError, "^dq is None"):
            self.judge((None, None, None), o=O)

    def test_those_of_a_dict_are_judged_and_the_others_are_named(self):
        right, _ = gradients()
        result = self.judge({"dk": right[1], "dq": right[0]})
        self.assertTrue(result.passed)
        self.assertEqual((list(result.tensors), result.not_judged), (["dq", "dk"], ("dv",)))
        self.assertRegex(str(result), r"(?m)^  not judged +dv$")
        self.assertFalse(self.judge({"dk": right[1] * 1.01}).passed)
        self.assertEqual(self.judge(right).not_judged, ())
        self.assertNotIn("not judged", str(self.judge(right)))

    def test_those_of_bias_and_sinks_are_named_too(self):
        right, (dbias, dsink) = gradients(Kernel(bias=BIAS, sinks=SINKS))
        said = {"bias": BIAS, "sinks": SINKS}
        self.assertEqual(self.judge(right, **said).not_judged, ("dbias", "dsink"))
        self.assertEqual(self.judge(right, dbias=dbias, dsink=dsink, **said).not_judged, ())

    def test_the_file_leaves_out_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "call.npz"
            with self.assertRaises(AssertionError) as caught:
                attest.assert_gradients_close({"dk": K}, Q, K, V, D_O, arithmetic="exact-f32",
                                              save=path)
            again = attest.judge_file(path)
        self.assertEqual(str(again), str(caught.exception))
        self.assertEqual(again.not_judged, ("dq", "dv"))

    def test_a_dict_names_gradients(self):
        for given in ({}, {"do": Q}, {"dq": Q, "lse": LSE}, Q[0]):
            with self.assertRaisesRegex(TypeError, r"^gradients: expected \(dq, dk, dv\), or a "):
                self.judge(given)


class NumbersTest(unittest.TestCase):
    """Numbers as NumPy, torch and JAX have them are judged as Python's own, in the file too."""

    def expect_the_same(self, number):
        """`number` makes one of the library of a number."""
        plain = {"scale": 0.75, "softcap": 2.0, "dropout_p": 0.25, "window": (3, 1, "bottom_right"),
                 "mask": attest.dilated(3, "top_left", 1) | attest.causal("top_left", 2),
                 "query_lengths": [9, 4], "key_lengths": (13, 5)}
        made = {"scale": number(0.75), "softcap": number(2.0), "dropout_p": number(0.25),
                "window": (number(3), number(1), "bottom_right"),
                "mask": attest.dilated(number(3), "top_left", number(1)) |
                attest.causal("top_left", number(2)),
                "query_lengths": [number(9), number(4)], "key_lengths": (number(13), number(5))}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "call.npz"
            for name in plain:
                with self.subTest(name):
                    keep = {"keep_mask": KEEP} if name == "dropout_p" else {}
                    with self.assertRaises(AssertionError) as caught:
                        attest.assert_close(O + 1, Q, K, V, arithmetic="exact-f32", save=path,
                                            **{name: made[name]}, **keep)
                    expected = judged(**{name: plain[name]}, **keep)
                    self.assertEqual(attest.judge_file(path).problem, expected.problem)
                    self.assertEqual(str(attest.judge_file(path)), str(caught.exception))

    def test_of_numpy(self):
        self.expect_the_same(lambda x: np.float32(x) if isinstance(x, float) else np.int64(x))
        self.expect_the_same(np.array)

    @has("torch")
    def test_of_torch(self):
        import torch
        self.expect_the_same(torch.tensor)

    @has("jax")
    def test_of_jax(self):
        import jax
        self.expect_the_same(jax.numpy.asarray)

    def test_lists_of_numpy_s_numbers_keep_their_format_in_the_file(self):
        for kind in (list, tuple):
            with tempfile.TemporaryDirectory() as folder, self.subTest(kind):
                path = pathlib.Path(folder) / "call.npz"
                with self.assertRaises(AssertionError) as caught:
                    attest.assert_close(O + 1, Q, K, V, arithmetic="exact-f32", save=path,
                                        sinks=kind(SINKS))
                self.assertEqual(str(attest.judge_file(path)), str(caught.exception))

    def test_in_a_declaration(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "call.npz"
            for number in (np.float64(2), np.float32(2), np.int64(2), np.array(2)):
                with self.assertRaises(AssertionError) as caught:
                    attest.assert_close(O + 1, Q, K, V, arithmetic={"exp_ulp": number}, save=path)
                self.assertEqual(str(attest.judge_file(path)), str(caught.exception))
        with self.assertRaisesRegex(TypeError, "^arithmetic: expected numbers.* ndarray of shape"):
            judged(arithmetic={"exp_ulp": SINKS})

    def test_flags_of_numpy_are_flags(self):
        square = [x[:, :, :SQ] for x in (Q, K, V)]
        o, _ = f32(*Kernel(visible=textbook.causal(SQ, SQ, "top_left")).forward(*square))
        said = {"causal": np.True_, "arithmetic": "exact-f32", "ignore_padding": np.False_}
        attest.assert_close(o, *square, save=np.False_, **said)
        self.assertFalse(attest.judge(o, *square, **{**said, "causal": np.False_}).passed)

    def test_the_command_quotes_the_path(self):
        with tempfile.TemporaryDirectory(prefix="a b'c ") as folder:
            path = os.path.join(folder, "my call.npz")
            with self.assertRaises(AssertionError) as caught:
                attest.assert_close(O + 1, Q, K, V, arithmetic="exact-f32", save=path)
            told = str(caught.exception)
            words = shlex.split(re.search(r"again +(python -m .*)$", told, re.M)[1])
            self.assertEqual(words[-1], path)
            again = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True)
        self.assertEqual((again.returncode, again.stdout.rstrip()), (1, told))


class RefusedTest(unittest.TestCase):
    def expect(self, words, **options):
        with self.assertRaisesRegex((TypeError, ValueError), words):
            judged(**options)

    def test_numbers_that_no_field_holds(self):
        for huge in HUGE:
            for make in (lambda n: attest.causal("top_left", n),
                         lambda n: attest.window(0, 0, "top_left", n),
                         lambda n: attest.dilated(2, "top_left", n)):
                with self.assertRaisesRegex(ValueError, rf"^offset: .* -2\*\*63 .*{abs(huge)}"):
                    make(huge)
        for huge in HUGE[:2]:
            self.expect(r"^window: .* 2\*\*63 - 1, got", window=(huge, 0, "top_left"))
            self.expect(r"^window: .* 2\*\*63 - 1, got", window=(0, huge, "top_left"))
            for name, make in {
                    "dilation": lambda n: attest.dilated(n, "top_left"),
                    "left": lambda n: attest.window(n, 0, "top_left"),
                    "right": lambda n: attest.window(0, n, "top_left"),
                    "block_query": lambda n: attest.block_sparse(TABLE, n, 4),
                    "block_key": lambda n: attest.block_sparse(TABLE, 4, n)}.items():
                with self.assertRaisesRegex(ValueError, rf"^{name}: .* 2\*\*63 - 1, got {huge}"):
                    make(huge)
        self.expect("^threads: expected a whole number from 0 to 1024, got 1099511627776",
                    threads=1 << 40)
        self.expect("^scale: expected a number, got ", scale=10**400)

    def test_numbers_that_are_none(self):
        for name in ("scale", "softcap", "dropout_p"):
            for wrong in ("0.5", SINKS, [1.0], 1j):
                self.expect(f"^{name}: expected a number, got ", **{name: wrong})
        for wrong in ("2", None, 1.5, -1, [2]):
            self.expect("^threads: expected a whole number", threads=wrong)
        self.expect("^ignore_padding: expected True or False", ignore_padding=SINKS)
        self.expect("^causal: expected one of", causal=SINKS)
        self.expect("^window: expected", window=(SINKS, 0, "top_left"))
        self.expect("^layout: expected one of", layout=["bshd"])
        self.expect("^dtype: expected None or 'bf16'", dtype=SINKS)

    def test_blocks_and_steps_of_nothing(self):
        for make, words in ((lambda: attest.block_sparse(TABLE, 0, 4), "^block_query: .* 0"),
                            (lambda: attest.block_sparse(TABLE, 4, -1), "^block_key: .* -1"),
                            (lambda: attest.dilated(0, "top_left"), "^dilation: .* 0"),
                            (lambda: attest.window(-1, 0, "top_left"), "^left: .* -1")):
            with self.assertRaisesRegex(ValueError, words):
                make()

    def test_masks_of_no_kind(self):
        for make, words in (
                (lambda: attest.Mask("all_of"), "^mask: all_of needs parts"),
                (lambda: attest.Mask("any_of", parts=(TABLE,)), "^mask: .* ndarray"),
                (lambda: attest.Mask("circle"), "^mask: no kind is called 'circle'"),
                (lambda: attest.Mask("band", anchor="left"), "^anchor: expected one of"),
                (lambda: judged(mask=attest.Mask("dense")), "^mask: a Mask of dense needs a table"),
                (lambda: judged(mask=attest.Mask("segments", table=np.zeros(3, int))),
                 "^mask: a Mask of segments needs a table"),
                (lambda: attest.causal("top_left") & 3, "^mask: expected booleans")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                make()

    def test_masks_combine_with_tables(self):
        causal, seen = attest.causal("top_left"), textbook.causal(SQ, SK, "top_left")
        for mask, meant in ((causal & TABLE, seen & TABLE), (TABLE & causal, seen & TABLE),
                            (causal | TABLE, seen | TABLE), (TABLE | causal, seen | TABLE),
                            (attest.Mask("full"), np.array(True))):
            o, _ = f32(*Kernel(visible=meant).forward(Q, K, V))
            attest.assert_close(o, Q, K, V, mask=mask, arithmetic="exact-f32")

    def test_where_to_save_is_looked_at_before_anything_is_judged(self):
        for save in (None, 1, b"x.npz", 0):
            with self.assertRaisesRegex(TypeError, "^save: expected True, False or a path, got "):
                attest.assert_close(O + 1, Q, K, V, arithmetic="exact-f32", save=save)
            with self.assertRaisesRegex(TypeError, "^save: expected"):
                attest.assert_gradients_close(gradients()[0], Q, K, V, D_O, save=save,
                                              arithmetic="exact-f32")

    def test_lengths_are_told_to_be_integers(self):
        self.expect("^key_lengths: expected integers, got f64", key_lengths=[7.0, 7.0])
        self.expect("^page_table: expected integers, got f64", page_table=[[0.0], [1.0]])
        self.expect("^mask: expected booleans", mask=[[0.0] * SK] * SQ)

    @has("torch")
    def test_tensors_of_torch_that_hold_no_plain_numbers(self):
        import torch
        q, k, v, o = (torch.tensor(x) for x in (Q, K, V, O))
        for name, wrong in {
                "a meta tensor": q.to("meta"), "a sparse tensor": q.to_sparse(),
                "float8_e4m3fn": q.to(torch.float8_e4m3fn),
                "a nested tensor": torch.nested.nested_tensor([q[0], q[1]], layout=torch.jagged)
                }.items():
            with self.assertRaisesRegex(TypeError, f"^q: expected .*{name}"):
                attest.judge(o, wrong, k, v, arithmetic="exact-f32")
            with self.assertRaisesRegex(TypeError, f"^bias: expected .*{name}"):
                attest.judge(o, q, k, v, bias=wrong, arithmetic="exact-f32")
        self.expect("^scale: expected a number", scale=torch.zeros((), device="meta"))


if __name__ == "__main__":
    unittest.main()
