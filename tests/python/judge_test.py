"""assert_close and assert_gradients_close: every option, right and with a fault planted."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import attest_attention as attest
import textbook
from attest_attention._formats import AS_BITS, FORMATS, NAMES_ELSEWHERE, STORED
from textbook import Kernel

B, HQ, HK, SQ, SK, D, DV = 2, 4, 2, 9, 13, 8, 6


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Q, K, V = numbers(1, B, HQ, SQ, D), numbers(2, B, HK, SK, D), numbers(3, B, HK, SK, DV)
D_O, D_LSE = numbers(4, B, HQ, SQ, DV), numbers(5, B, HQ, SQ)
KEEP = np.random.default_rng(6).random((B, HQ, SQ, SK)) < 0.75
BIAS, SINKS, SLOPES = numbers(7, HQ, SQ, SK), numbers(8, HQ), np.exp2(-np.arange(HQ, dtype="f4"))
TABLE = np.random.default_rng(9).random((B, 1, SQ, SK)) < 0.6
IDS = np.sort(np.random.default_rng(10).integers(0, 3, (B, SK)), 1)
DISTANCE = np.abs(np.arange(SQ)[:, None] + SK - SQ - np.arange(SK)[None, :])
LENGTHS = np.array([[13, 5], [9, 4]])  # of keys, of queries


def within_lengths():
    keys = np.arange(SK)[None, :] < LENGTHS[0][:, None]
    queries = np.arange(SQ)[None, :] < LENGTHS[1][:, None]
    return keys[:, None, None, :] & queries[:, None, :, None]


# What is said of a problem, and the kernel that is right for it.
OPTIONS = {
    "full": ({}, {}),
    "scale": ({"scale": np.float32(0.7)}, {"scale": float(np.float32(0.7))}),
    "causal top left": ({"causal": "top_left"}, {"visible": textbook.causal(SQ, SK, "top_left")}),
    "causal": ({"causal": "bottom_right"}, {"visible": textbook.causal(SQ, SK, "bottom_right")}),
    "window": ({"window": (3, 1, "bottom_right")},
               {"visible": textbook.window(SQ, SK, 3, 1, "bottom_right")}),
    "causal window": ({"causal": "bottom_right", "window": (3, -1)},
                      {"visible": textbook.window(SQ, SK, 3, 0, "bottom_right")}),
    "table": ({"mask": TABLE}, {"visible": TABLE}),
    "described": ({"mask": attest.causal("top_left", offset=2) | attest.prefix([4, 1])},
                  {"visible": (np.arange(SK)[None, :] <= np.arange(SQ)[:, None] + 2) |
                   (np.arange(SK)[None, None, None, :] < np.array([4, 1])[:, None, None, None])}),
    "dilated": ({"mask": attest.dilated(3, "top_left")},
                {"visible": (np.arange(SK)[None, :] - np.arange(SQ)[:, None]) % 3 == 0}),
    "blocks": ({"mask": attest.block_sparse(TABLE[:, :, :3, :4], 4, 4)},
               {"visible": TABLE[:, :, :3, :4].repeat(4, 2).repeat(4, 3)[:, :, :SQ, :SK]}),
    "segments": ({"segment_ids": (IDS[:, :SQ], IDS)},
                 {"visible": (IDS[:, :SQ, None] == IDS[:, None, :])[:, None]}),
    "lengths": ({"key_lengths": LENGTHS[0], "query_lengths": LENGTHS[1]},
                {"visible": within_lengths()}),
    "softcap": ({"softcap": 1.5}, {"softcap": 1.5}),
    "sinks": ({"sinks": SINKS}, {"sinks": SINKS}),
    "bias": ({"bias": BIAS}, {"bias": BIAS}),
    "alibi": ({"alibi_slopes": SLOPES}, {"bias": -SLOPES[:, None, None] * DISTANCE}),
    "dropout": ({"dropout_p": 0.25, "keep_mask": KEEP}, {"dropout_p": 0.25, "keep": KEEP}),
    "several": ({"causal": "bottom_right", "mask": TABLE, "softcap": 2, "sinks": SINKS},
                {"visible": TABLE & textbook.causal(SQ, SK, "bottom_right"), "softcap": 2,
                 "sinks": SINKS}),
}


def f32(*arrays):
    return [np.asarray(array, np.float32) for array in arrays]


class OptionsTest(unittest.TestCase):
    def test_each_passes_a_right_kernel_and_fails_that_of_no_option(self):
        blank = f32(*Kernel().forward(Q, K, V))
        for name, (said, meant) in OPTIONS.items():
            with self.subTest(name):
                o, lse = f32(*Kernel(**meant).forward(Q, K, V))
                attest.assert_close(o, Q, K, V, lse=lse, arithmetic="exact-f32", **said)
                if name == "full":
                    continue
                with self.assertRaises(AssertionError):
                    attest.assert_close(blank[0], Q, K, V, arithmetic="exact-f32", save=False,
                                        **said)

    def test_each_has_gradients(self):
        for name, (said, meant) in OPTIONS.items():
            with self.subTest(name):
                kernel = Kernel(**meant)
                o, lse = f32(*kernel.forward(Q, K, V))
                dq, dk, dv, ds, dsink = kernel.backward(D_O, D_LSE)
                side = {"d_lse": D_LSE, "o": o, "lse": lse}
                if "sinks" in said:
                    side["dsink"] = f32(dsink)[0]
                if "bias" in said:
                    side["dbias"] = f32(ds.sum(0))[0]
                right = f32(dq, dk, dv)
                attest.assert_gradients_close(right, Q, K, V, D_O, arithmetic="exact-f32", **side,
                                              **said)
                wrong = [right[0], right[1] * 1.01, right[2]]
                result = attest.judge_gradients(wrong, Q, K, V, D_O, arithmetic="exact-f32",
                                                d_lse=D_LSE, **said)
                self.assertFalse(result.passed)
                self.assertLess(result.tensors["dq"].ratio, 1)
                self.assertGreater(result.tensors["dk"].ratio, 1)

    def test_causal_alone_will_do_where_both_corners_are_one(self):
        square = [x[:, :, :SQ] for x in (Q, K, V)]
        o, _ = f32(*Kernel(visible=textbook.causal(SQ, SQ, "top_left")).forward(*square))
        attest.assert_close(o, *square, causal=True, arithmetic="exact-f32")


    def test_what_may_be_said_is_documented(self):
        for name in attest.Options.__annotations__:
            self.assertRegex(attest.Options.__doc__, rf"(?m)^ +(\w+, )*{name}\b")


class LayoutsTest(unittest.TestCase):
    def test_bshd_is_judged_in_place_and_told_in_its_own_order(self):
        o, lse = f32(*Kernel().forward(Q, K, V))
        o[1, 2, 5, 3] += 1
        turned = [x.transpose(0, 2, 1, 3) for x in (o, Q, K, V)]
        result = attest.judge(*turned, lse=lse, layout="bshd", arithmetic="exact-f32")
        self.assertEqual(result.tensors["o"].index, (1, 5, 2, 3))
        self.assertEqual(result.tensors["o"].place, (1, 2, 5, 3))

    def test_any_strides_will_do(self):
        o, _ = f32(*Kernel().forward(Q, K, V))
        backwards = Q[:, :, ::-1].copy()[:, :, ::-1]
        fortran = np.asfortranarray(K)
        expanded = np.broadcast_to(V[:, :1], V.shape)
        o_expanded, _ = f32(*Kernel().forward(Q, K, expanded))
        attest.assert_close(o, backwards, fortran, V, arithmetic="exact-f32")
        attest.assert_close(o_expanded, Q, K, expanded, arithmetic="exact-f32")

    def packed(self, layout):
        starts = [0, 4, 4, 9], [0, 6, 8, 13]
        o, lse = np.zeros((1, HQ, 9, DV), "f4"), np.zeros((1, HQ, 9), "f4")
        for a, b, c, d in zip(starts[0], starts[0][1:], starts[1], starts[1][1:]):
            rows = Kernel().forward(Q[:1, :, a:b], K[:1, :, c:d], V[:1, :, c:d])
            o[:, :, a:b], lse[:, :, a:b] = rows
        turn = (lambda x: x[0].transpose(1, 0, 2)) if layout == "shd" else (lambda x: x[0])
        return [turn(x) for x in (o, Q[:1], K[:1], V[:1])], lse[0], starts

    def test_packed_sequences(self):
        for layout in ("shd", "hsd"):
            arrays, lse, starts = self.packed(layout)
            attest.assert_close(*arrays, lse=lse, cu_seqlens=starts, layout=layout,
                                arithmetic="exact-f32")
        arrays[0][1, 5, 2] += 1
        result = attest.judge(*arrays, cu_seqlens=starts, layout="hsd", arithmetic="exact-f32")
        self.assertEqual(result.tensors["o"].index, (1, 5, 2))

    def test_packed_sequences_of_one_list_survive_the_file(self):
        arrays, _, _ = self.packed("shd")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "call.npz"
            said = dict(cu_seqlens=[0, 4, 4, 9], arithmetic="exact-f32", save=path)
            with self.assertRaises(AssertionError) as caught:
                attest.assert_close(arrays[0], arrays[1], arrays[2][:9], arrays[3][:9], **said)
            self.assertEqual(str(attest.judge_file(path)), str(caught.exception))

    def test_pages(self):
        lengths, size = np.array([13, 5]), 4
        pages = {"k": np.full((7, HK, size, D), np.nan, "f4"),
                 "v": np.full((7, HK, size, DV), np.nan, "f4")}
        table = np.full((B, 4), -1, "i4")
        free = iter([3, 0, 6, 2, 5, 1])
        for b, length in enumerate(lengths):
            for at in range(0, length, size):
                table[b, at // size] = page = next(free)
                some = min(size, length - at)
                pages["k"][page, :, :some] = K[b, :, at:at + some]
                pages["v"][page, :, :some] = V[b, :, at:at + some]
        seen = np.arange(SK)[None, :] < lengths[:, None]
        o, lse = f32(*Kernel(visible=seen[:, None, None]).forward(Q, K, V))
        said = dict(page_table=table, key_lengths=lengths, arithmetic="exact-f32")
        attest.assert_close(o, Q, pages["k"], pages["v"], lse=lse, **said)
        table[0, 0] = table[1, 0]
        self.assertFalse(attest.judge(o, Q, pages["k"], pages["v"], **said).passed)


class FormatsTest(unittest.TestCase):
    def test_f16_and_f64(self):
        for dtype, arithmetic in ((np.float16, "gpu-16bit"), (np.float64, "exact-f32")):
            q, k, v = (x.astype(dtype) for x in (Q, K, V))
            o, _ = Kernel(real=np.longdouble).forward(q, k, v)
            attest.assert_close(o.astype(dtype), q, k, v, arithmetic=arithmetic)
            wrong = (o * 1.01).astype(dtype)
            self.assertFalse(attest.judge(wrong, q, k, v, arithmetic=arithmetic).passed)

    def test_formats_are_those_of_the_plugin_header(self):
        spec = pathlib.Path(__file__).parents[2] / "spec"
        header = (spec / "attest_plugin.h").read_text()
        schema = json.loads((spec / "description.schema.json").read_text())
        self.assertEqual(list(FORMATS), schema["$defs"]["dtype"]["enum"])
        for name, each in FORMATS.items():
            self.assertIn(f"  ATTEST_{name.upper()} = {each.code},", header)
            one, infinity = (np.array(x, f"u{np.dtype(each.numpy).itemsize}")
                             for x in (1, each.infinity))
            if name not in AS_BITS:
                self.assertTrue(np.isinf(infinity.view(each.numpy)))
                self.assertTrue(np.isnan((infinity + one).view(each.numpy)))

    def test_bf16_as_bits(self):
        bits = [textbook.bf16_bits(x) for x in (Q, K, V)]
        o, lse = Kernel().forward(*(textbook.of_bf16(x) for x in bits))
        said = dict(dtype="bf16", arithmetic="gpu-16bit")
        attest.assert_close(textbook.bf16_bits(o), *bits, lse=lse.astype("f4"), **said)
        self.assertFalse(attest.judge(textbook.bf16_bits(o * 1.05), *bits, **said).passed)

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_bf16_of_ml_dtypes(self):
        import ml_dtypes
        q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (Q, K, V))
        o, _ = Kernel().forward(*(x.astype(np.float32) for x in (q, k, v)))
        attest.assert_close(o.astype(ml_dtypes.bfloat16), q, k, v, arithmetic="gpu-16bit")

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_every_number_of_8_bits_is_that_of_ml_dtypes(self):
        import ml_dtypes
        bits = np.arange(256, dtype=np.uint8)
        for name in STORED:
            dtype = np.dtype(getattr(ml_dtypes, NAMES_ELSEWHERE.get(name, ""), name))
            numbers = bits.view(dtype).astype(np.float32)
            finite = np.isfinite(numbers)
            # One key is its V, and each channel a number of its own.
            v = bits[finite].view(dtype).reshape(1, 1, 1, -1)
            one = np.ones((1, 1, 1, 1), np.float32)
            said = dict(arithmetic="exact-f32", v_scale=2.0, k_scale=1.0)
            k = one.astype(dtype)
            o = 2 * numbers[finite].reshape(1, 1, 1, -1)
            self.assertTrue(attest.judge(o, one, k, v, **said).passed, name)
            for channel in range(o.shape[3]):
                wrong = o.copy()
                wrong[..., channel] = wrong[..., channel] * 1.0001 or 1e-3
                self.assertFalse(attest.judge(wrong, one, k, v, **said).passed, (name, channel))

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_scales_of_what_is_stored_in_8_bits(self):
        import ml_dtypes
        q, k, v = (x.astype(ml_dtypes.float8_e4m3fn) for x in (Q, K, V))
        heads = np.linspace(0.5, 2, k.shape[1], dtype=np.float32)[None]
        scales = dict(q_scale=np.float32(0.7), k_scale=heads,
                      v_scale=np.broadcast_to(heads[..., None, None], (*k.shape[:3], 1)))
        meant = (q.astype("f4") * np.float32(0.7), *(x.astype("f4") * heads[..., None, None]
                                                     for x in (k, v)))
        o, lse = (x.astype("f4") for x in Kernel().forward(*meant))
        said = dict(lse=lse, arithmetic="anything")
        attest.assert_close(o, q, k, v, **said, **scales)
        self.assertFalse(attest.judge(o, q, k, v, **said, **{**scales, "q_scale": 0.8}).passed)
        for wrong, text in (({"k_scale": None}, "k_scale: k is e4m3, which is stored with scales"),
                            ({"v_scale": np.ones((3, 7), "f4")}, "v_scale: expected a number"),
                            ({"q_scale": "x"}, "q_scale: expected a number, got .x."),
                            ({"q_scale": 0.0}, "q_scale: has 0, expected numbers from 2\\^-20")):
            with self.assertRaisesRegex((TypeError, ValueError), text):
                attest.judge(o, q, k, v, **said, **{**scales, **wrong})
        with self.assertRaisesRegex(ValueError, "q_scale: q is f32, which is stored without"):
            attest.judge(o, meant[0], k, v, **said, **scales)

    def test_exponents_of_blocks(self):
        k, v = (np.tile(x, (1, 1, 1, 5)) for x in (K, V))  # of more than one block of 16
        q = np.tile(Q, (1, 1, 1, 5))

        def in_bfp8(x):
            blocks = -(-x.shape[3] // 16)
            parts = np.zeros((*x.shape[:3], blocks * 16), "f4")
            parts[..., :x.shape[3]] = x
            parts = parts.reshape(*x.shape[:3], blocks, 16)
            scales = np.exp2(np.floor(np.log2(np.abs(parts).max(-1))) - 6).astype("f4")
            numbers = np.clip(np.rint(parts / scales[..., None]), -127, 127)
            flat = numbers.reshape(*x.shape[:3], -1)[..., :x.shape[3]]
            return flat.astype(np.int8), scales
        (k, k_scale), (v, v_scale) = in_bfp8(k), in_bfp8(v)
        meant = (x * np.repeat(scale, 16, axis=3)[..., :x.shape[3]]
                 for x, scale in ((k, k_scale), (v, v_scale)))
        o = Kernel().forward(q, *meant)[0].astype("f4")
        said = dict(arithmetic="anything")
        attest.assert_close(o, q, k, v, **said, k_scale=k_scale, v_scale=v_scale)
        other = v_scale.copy()
        other[..., 0] *= 2
        self.assertFalse(attest.judge(o, q, k, v, **said, k_scale=k_scale, v_scale=other).passed)
        with self.assertRaisesRegex(ValueError, "v_scale: has .*, expected powers of two"):
            attest.judge(o, q, k, v, **said, k_scale=k_scale, v_scale=v_scale * 0.75)
        with self.assertRaisesRegex(ValueError, "v_scale: expected a number"):
            attest.judge(o, q, k, v, **said, k_scale=k_scale, v_scale=v_scale[:, :, :-1])

    def test_scales_of_int8(self):
        tokens = np.linspace(0.01, 0.03, K.shape[1] * K.shape[2], dtype=np.float32)
        tokens = tokens.reshape(1, *K.shape[1:3], 1)
        k, v = (np.rint(np.clip(x * 40, -128, 127)).astype(np.int8) for x in (K, V))
        scales = dict(k_scale=tokens, v_scale=tokens[:, :, ::-1])
        meant = (x.astype("f4") * scale for x, scale in zip((k, v), scales.values()))
        o = Kernel().forward(Q, *meant)[0].astype("f4")
        said = dict(arithmetic="anything")
        attest.assert_close(o, Q, k, v, **said, **scales)
        exchanged = dict(zip(scales, reversed(scales.values())))
        self.assertFalse(attest.judge(o, Q, k, v, **said, **exchanged).passed)
        with self.assertRaisesRegex(ValueError, "k_scale: k is int8, which is stored with scales"):
            attest.judge(o, Q, k, v, **said)
        # What lies beyond a length may be anything, as memory that nobody wrote.
        lens = [K.shape[2] - 1] * K.shape[0]
        unused = {name: np.array(scale) for name, scale in scales.items()}
        for scale in unused.values():
            scale[:, :, -1] = np.nan
        meant = [x.astype("f4") * scale for x, scale in zip((k, v), scales.values())]
        o = Kernel().forward(Q, *(x[:, :, :-1] for x in meant))[0].astype("f4")
        attest.assert_close(o, Q, k, v, **said, **unused, key_lengths=lens)
        with self.assertRaisesRegex(ValueError, "k_scale: has nan, expected numbers from 2"):
            attest.judge(o, Q, k, v, **said, **unused)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_torch(self):
        import torch
        for dtype, arithmetic in ((torch.float32, "exact-f32"), (torch.bfloat16, "anything")):
            q, k, v = (torch.tensor(x).to(dtype) for x in (Q, K.repeat(2, 1), V.repeat(2, 1)))
            q.requires_grad_(True)
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            attest.assert_close(o, q, k, v, arithmetic=arithmetic)
            self.assertFalse(attest.judge(o * 1.1, q, k, v, arithmetic=arithmetic).passed)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "jax is not installed")
    def test_jax(self):
        import jax
        q, k, v = (jax.numpy.asarray(x.transpose(0, 2, 1, 3)) for x in (Q, K, V[..., :D]))
        v = jax.numpy.concatenate([v, v[..., :D - DV]], -1)
        with jax.default_matmul_precision("highest"):
            o = jax.nn.dot_product_attention(q, k, v)
        attest.assert_close(o, q, k, v, layout="bshd", arithmetic="exact-f32")


class ToldTest(unittest.TestCase):
    def setUp(self):
        self.o, self.lse = f32(*Kernel(visible=textbook.causal(SQ, SK, "top_left"))
                               .forward(Q, K, V))
        self.said = dict(causal="bottom_right", arithmetic="exact-f32")

    def test_a_failure_tells_all_and_repeats_from_its_file(self):
        with self.assertRaises(AssertionError) as caught:
            attest.assert_close(self.o, Q, K, V, lse=self.lse, **self.said)
        told = str(caught.exception)
        self.assertRegex(told, r"worst +o\[\d+, \d+, \d+, \d+\] = \S+, exact \S+, bound \S+: \S+ "
                               r"times the bound")
        self.assertIn("MASK-3: causal, bottom right, and with any offset", told)
        self.assertIn("exactly what a diagonal at the top left (MASK-3) gives", told)
        path = re.search(r"python -m attest_attention judge (\S+)", told)[1]
        again = subprocess.run([sys.executable, "-m", "attest_attention", "judge", path],
                               capture_output=True, text=True)
        os.remove(path)
        self.assertEqual((again.returncode, again.stdout.rstrip(), again.stderr), (1, told, ""))

    def test_every_kind_of_argument_survives_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "call.npz"
            for name, (said, _) in OPTIONS.items():
                with self.subTest(name), self.assertRaises(AssertionError) as caught:
                    attest.assert_close(Q[..., :DV], Q, K, V, arithmetic={"exp_ulp": 1},
                                        save=path, **said)
                again = attest.judge_file(path)
                self.assertEqual(str(again), str(caught.exception))

    def test_the_verdict_is_told_where_no_file_can_be_written(self):
        with self.assertRaisesRegex(AssertionError, "FAIL(.|\n)*not saved .*No such file"):
            attest.assert_close(self.o, Q, K, V, save="/nowhere/call.npz", **self.said)

    def test_a_verdict_is_as_true_as_it_passed(self):
        self.assertFalse(attest.judge(self.o, Q, K, V, **self.said))

    def test_a_window_has_whole_widths(self):
        for window in ((3.5, 0), (0, "1"), 3):
            with self.assertRaisesRegex((TypeError, ValueError), "window: expected"):
                attest.judge(self.o, Q, K, V, **{**self.said, "causal": None, "window": window})

    def test_the_file_may_be_left_out(self):
        with self.assertRaises(AssertionError) as caught:
            attest.assert_close(self.o, Q, K, V, save=False, **self.said)
        self.assertNotIn("again", str(caught.exception))

    def test_another_file_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("no.npz", None), ("text.npz", b"text")):
                path = pathlib.Path(folder) / name
                if content:
                    path.write_bytes(content)
                ran = subprocess.run([sys.executable, "-m", "attest_attention", "judge", path],
                                     capture_output=True, text=True)
                self.assertEqual(ran.returncode, 2)
                self.assertIn(name, ran.stderr)

    def test_what_says_nothing_is_no_pass(self):
        q = np.full_like(Q, np.nan)
        result = attest.judge(self.o, q, K, V, **self.said)
        self.assertEqual((result.passed, result.outcome), (False, "INCONCLUSIVE"))
        self.assertEqual(result.unspecified, self.o.size)
        with self.assertRaisesRegex(AssertionError, "INCONCLUSIVE"):
            attest.assert_close(self.o, q, K, V, save=False, **self.said)

    def test_a_nan_is_blamed_on_the_empty_row_that_has_it(self):
        o = self.o.copy()
        seen = textbook.causal(SQ, SK, "top_left")
        seen[3] = False
        o, lse = f32(*Kernel(visible=seen).forward(Q, K, V))
        o[:, :, 3] = np.nan
        result = attest.judge(o, Q, K, V, mask=seen, arithmetic="exact-f32")
        self.assertEqual(result.clause, "EMPTY-1")

    def test_large_ones_are_judged_in_part_and_say_so(self):
        one = np.ones((1, 1, 1, 1), "f4")
        long = np.broadcast_to(one, (1, 8, 8192, 64))
        result = attest.judge(long, long, long, long, arithmetic="exact-f32")
        self.assertTrue(result.passed)
        self.assertRegex(result.sampled, r"^O \d+ of 4194304 elements$")
        self.assertEqual(attest.assert_close(long, long, long, long, arithmetic="exact-f32"), result)

    def test_of_large_ones_all_is_to_be_finite(self):
        long = np.ones((1, 4, 4096, 64), "f4")
        o = long.copy()
        o[0, 1:, 16::512] = np.nan  # where little is compared
        result = attest.judge(o, long, long, long, arithmetic="exact-f32")
        self.assertEqual((result.passed, result.clause), (False, "SOFTMAX-2"))


class ErrorsTest(unittest.TestCase):
    def expect(self, kind, words, *arrays, **options):
        with self.assertRaisesRegex(kind, words):
            attest.judge(*(arrays or (V[:, :1].repeat(4, 1)[:, :, :SQ], Q, K, V)),
                         **{"arithmetic": "exact-f32", **options})

    def test_shapes_and_formats_name_the_argument(self):
        o = V[:, :1].repeat(4, 1)[:, :, :SQ]
        self.expect(ValueError, r"^o: expected shape \(2, 4, 9, 6\) \(bhsd\), got \(2, 4, 9, 8\)",
                    Q, Q, K, V)
        self.expect(ValueError, r"^k: expected head_dim 8 as q, got 7", o, Q, K[..., :7], V)
        self.expect(ValueError, r"^k: its 3 heads do not divide the 4", o, Q,
                    K[:, :1].repeat(3, 1), V[:, :1].repeat(3, 1))
        self.expect(ValueError, r"^v: expected shape \(2, 2, 13, 6\)", o, Q, K, V[:, :, :12])
        self.expect(ValueError, r"^k: expected batch 2 as q, got 1", o, Q, K[:1], V[:1])
        self.expect(ValueError, r"^q: expected 4 axes \(bhsd\), got shape \(4, 9, 8\)", o, Q[0], K, V)
        self.expect(TypeError, r"^k: expected f32 as q, got f64", o, Q, K.astype("f8"), V)
        self.expect(TypeError, r"^q: expected f64, f32, f16 or bf16, got int32", o,
                    Q.astype("i4"), K, V)
        self.expect(TypeError, r"^q: expected an array of numbers, got object", o, object(), K, V)
        self.expect(ValueError, r"^lse: expected shape \(2, 4, 9\) \(batch, query heads, queries\)",
                    lse=np.zeros((B, SQ, HQ), "f4"))
        self.expect(TypeError, r"^lse: expected f32, got f64", lse=np.zeros((B, HQ, SQ)))

    def test_options_name_themselves(self):
        self.expect(TypeError, r"'casual'; did you mean causal", casual=True)
        self.expect(ValueError, r"^causal: .* say 'top_left' or 'bottom_right'", causal=True)
        self.expect(ValueError, r"^causal: expected one of", causal="left")
        self.expect(ValueError, r"^window: a width is negative", window=(-3, 0, "top_left"))
        self.expect(ValueError, r"^window: .* say 'top_left' or 'bottom_right' as its third",
                    window=(3, 0))
        self.expect(TypeError, r"^dtype: 'bf16' says how 16 bits are read, and q is f32",
                    dtype="bf16")
        self.expect(TypeError, r"^mask: expected booleans \(additive", mask=np.zeros((SQ, SK)))
        self.expect(ValueError, r"^mask: expected a shape that broadcasts to \(2, 4, 9, 13\)",
                    mask=np.ones((SK, SQ), bool))
        self.expect(ValueError, r"^segment_ids: expected \[9\]", segment_ids=IDS)
        self.expect(ValueError, r"^key_lengths: .* got 14 at \[1\]", key_lengths=[1, 14])
        self.expect(ValueError, r"^key_lengths: expected shape \(2,\)", key_lengths=[1])
        self.expect(ValueError, r"^problem: SCORE-2: a softcap is finite", softcap=-1)
        self.expect(ValueError, r"^sinks: expected shape \(4,\)", sinks=SINKS[:3])
        self.expect(ValueError, r"^sinks: \[0,1,0,0\] is nan",
                    sinks=np.where(np.arange(HQ) == 1, np.nan, SINKS).astype("f4"))
        self.expect(TypeError, r"^bias: expected f32 as q", bias=BIAS.astype("f2"))
        self.expect(ValueError, r"^alibi_slopes: expected shape", alibi_slopes=SLOPES[:2])
        self.expect(ValueError, r"^keep_mask: dropout_p needs", dropout_p=0.5)
        self.expect(ValueError, r"^page_table: needs key_lengths", page_table=[[0], [0]])
        self.expect(ValueError, r"^layout: expected one of", layout="sbhd")
        self.expect(TypeError, r"^scale: expected a number, got 'x'", scale="x")
        self.expect(TypeError, r"^q: a list does not say in which format", V, Q.tolist(), K, V)
        self.expect(ValueError, r"^arithmetic: no arithmetic is called \"gpu\"; for f32 there are",
                    arithmetic="gpu")
        self.expect(ValueError, r"^arithmetic: gpu-16bit says nothing of f32",
                    arithmetic="gpu-16bit")
        self.expect(TypeError, r"^arithmetic: expected one of", arithmetic=None)

    def test_packed_ones_too(self):
        q, k, v = (x[0].transpose(1, 0, 2) for x in (Q, K, V))
        o = np.zeros((SQ, HQ, DV), "f4")
        self.expect(ValueError, r"^cu_seqlens\[0\]: ends at 8, of 9 positions", o, q, k, v,
                    cu_seqlens=([0, 8], [0, 13]))
        self.expect(ValueError, r"^cu_seqlens\[1\]: expected numbers that ascend", o, q, k, v,
                    cu_seqlens=([0, 9], [1, 13]))
        self.expect(ValueError, r"^cu_seqlens: 2 sequences of queries, 1 of keys", o, q, k, v,
                    cu_seqlens=([0, 3, 9], [0, 13]))

    def test_gradients_name_what_is_missing(self):
        with self.assertRaisesRegex(TypeError, "^gradients: expected"):
            attest.judge_gradients((Q,), Q, K, V, D_O, arithmetic="exact-f32")
        with self.assertRaisesRegex(ValueError, "^dbias: is given, but not bias"):
            attest.judge_gradients((Q, K, V), Q, K, V, D_O, dbias=BIAS, arithmetic="exact-f32")


if __name__ == "__main__":
    unittest.main()
