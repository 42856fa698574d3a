"""assert_close in place of the tolerance of five suites, on what they try.

Each test here is our own, on the shapes, inputs and rule of a public test, which `source` names: a
right kernel passes both; a fault that the rule passes fails assert_close. What either takes is
printed. References of the suites that compute in low precision are emulated operation by operation.
"""
import time
import unittest

import numpy as np

import attest_attention as attest
from textbook import Kernel, bf16_bits, to_bf16


def flash_bf16(q, k, v, **changes):
    """What flash kernels do in bf16: P rounded before PV, all else in f32."""
    o, lse = Kernel(real=np.float32, round_p=to_bf16, **changes).forward(q, k, v)
    return to_bf16(o), lse


def eager_bf16(q, k, v):
    """The same with each result rounded to bf16, as a framework does it by its operations."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    s = to_bf16(to_bf16(q @ k.swapaxes(2, 3)) * np.float32(q.shape[3] ** -0.5))
    p = np.exp(s - s.max(3, keepdims=True))
    return to_bf16(to_bf16(p / p.sum(3, keepdims=True)) @ v)


def farthest(a, b):
    return float(np.abs(a - b).max())


class Suite:
    """A public test: its name, where it is, and what it tries."""

    name = source = arithmetic = ""
    bf16 = False

    def inputs(self, rng):
        raise NotImplementedError

    def right(self, q, k, v):
        """O, and LSE if the fault shows there alone."""
        return flash_bf16(q, k, v)[0], None

    def faulty(self, q, k, v):
        raise NotImplementedError

    def passes(self, o, lse, q, k, v):
        """By the rule of the suite."""
        raise NotImplementedError

    def judge(self, o, lse, q, k, v):
        if self.bf16:
            o, q, k, v = (bf16_bits(x) for x in (o, q, k, v))
        attest.assert_close(o, q, k, v, lse=lse, arithmetic=self.arithmetic, save=False,
                            dtype="bf16" if self.bf16 else None)


class PyTorch(Suite):
    name = "PyTorch"
    source = "pytorch: test/test_transformers.py, test_flash_attention_vs_math_ref_grads"
    arithmetic, bf16 = "gpu-16bit", True

    def inputs(self, rng):  # 4 heads of torch.rand
        return (to_bf16(x) for x in rng.random((3, 1, 4, 1024, 64), np.float32))

    def faulty(self, q, k, v):
        """The mean of V: Q and K are not looked at."""
        return to_bf16(np.broadcast_to(v.mean(2, keepdims=True), v.shape)), None

    def passes(self, o, lse, q, k, v):
        exact = Kernel(real=np.float32).forward(q, k, v)[0]
        return farthest(o, exact) <= max(1e-5, 4 * farthest(eager_bf16(q, k, v), exact))


class FlashAttention(Suite):
    name = "flash-attention"
    source = "flash-attention: tests/test_flash_attn.py, test_flash_attn_output"
    arithmetic, bf16 = "gpu-16bit", True

    def inputs(self, rng):  # a batch of 4, 6 heads, 113 queries, 203 keys
        for length in (113, 203, 203):
            yield to_bf16(rng.standard_normal((4, 6, length, 64), np.float32))

    def right(self, q, k, v):
        return flash_bf16(q, k, v)

    def faulty(self, q, k, v):
        """A key of padding, whose score is 0, in the sum."""
        o, lse = flash_bf16(q, k, v)
        more = np.logaddexp(lse, np.float32(0))
        return to_bf16(o * np.exp(lse - more)[..., None]), more

    def passes(self, o, lse, q, k, v):  # it looks at no LSE
        exact = Kernel(real=np.float32).forward(q, k, v)[0]
        return farthest(o, exact) <= 2 * farthest(eager_bf16(q, k, v), exact) + 1e-5


class Jax(FlashAttention):
    name = "JAX"
    source = "jax: tests/nn_test.py, testDotProductAttention"

    def inputs(self, rng):  # B, S, T, N, H of 2, 128, 128, 4, 64; keys in groups of 2
        for heads in (4, 2, 2):
            yield to_bf16(rng.standard_normal((2, heads, 128, 64), np.float32))

    def passes(self, o, lse, q, k, v):
        exact = Kernel(real=np.float32).forward(q, k, v)[1]
        return (np.allclose(o, eager_bf16(q, k, v), 0.01, 0.01) and
                np.allclose(lse, exact, 0.01, 0.01))


class Ggml(Suite):
    name = "ggml"
    source = "llama.cpp: tests/test-backend-ops.cpp, test_flash_attn_ext"
    arithmetic = "exact-f32"

    def inputs(self, rng):  # heads of 128, K and V in f16, 8 queries
        for length in (8, 512, 512):
            x = rng.uniform(-1, 1, (1, 4, length, 128))
            yield x.astype(np.float16).astype(np.float32)

    def right(self, q, k, v):
        return Kernel(real=np.float32).forward(q, k, v)[0], None

    def faulty(self, q, k, v):
        """A scale that is off by 1 %."""
        return Kernel(real=np.float32, scale=1.01 * 128**-0.5).forward(q, k, v)[0], None

    def passes(self, o, lse, q, k, v):
        exact = Kernel(real=np.float32).forward(q, k, v)[0]
        return ((o - exact)**2).sum() / (exact**2).sum() <= 5e-4


class Onnx(Suite):
    name = "ONNX"
    source = "onnx: onnx/backend/test/case/node/attention.py, attention_4d; runner's tolerance"
    arithmetic = "exact-f32"

    def inputs(self, rng):
        for length in (4, 6, 6):
            yield rng.random((2, 3, length, 8), np.float32)

    def right(self, q, k, v):
        return Kernel(real=np.float32).forward(q, k, v)[0], None

    def faulty(self, q, k, v):
        """P in f16, of tensors in f32."""
        kernel = Kernel(real=np.float32, round_p=lambda p: p.astype(np.float16).astype(np.float32))
        return kernel.forward(q, k, v)[0], None

    def passes(self, o, lse, q, k, v):
        return np.allclose(o, Kernel(real=np.float32).forward(q, k, v)[0], 1e-3, 1e-7)


def timed(act):
    """What it returns, and milliseconds: the least of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = act()
        times.append(1e3 * (time.perf_counter() - start))
    return result, min(times)


class SuitesTest(unittest.TestCase):
    def test_faults_that_their_rules_pass_fail_and_right_kernels_do_not(self):
        print(f"\n{'suite':<16} {'q, k':<36} {'its rule':>10} {'assert_close':>13}  fault")
        for suite in (PyTorch(), FlashAttention(), Ggml(), Jax(), Onnx()):
            with self.subTest(suite.name):
                q, k, v = suite.inputs(np.random.default_rng(1))
                right, faulty = suite.right(q, k, v), suite.faulty(q, k, v)
                told, rule = timed(lambda: suite.passes(*right, q, k, v))
                self.assertTrue(told, "its rule fails a right kernel")
                self.assertTrue(suite.passes(*faulty, q, k, v), "its rule fails the fault")
                _, ours = timed(lambda: suite.judge(*right, q, k, v))
                with self.assertRaises(AssertionError):
                    suite.judge(*faulty, q, k, v)
                print(f"{suite.name:<16} {f'{q.shape}, {k.shape}':<36} {rule:>7.1f} ms "
                      f"{ours:>10.1f} ms  {suite.faulty.__doc__}")


if __name__ == "__main__":
    unittest.main()
