"""A verdict on attention, in the tests you already have.

    import attest_attention as attest

    attest.assert_close(o, q, k, v, causal="bottom_right", lse=lse, arithmetic="gpu-16bit")
    attest.assert_gradients_close((dq, dk, dv), q, k, v, d_o, causal=True, arithmetic="gpu-16bit")

One line in place of a tolerance: every element is held to its exact value, within a bound that is
derived from the arithmetic named. Arrays of NumPy, PyTorch and JAX, on any device.
"""
from attest_attention._judge import (
    assert_close,
    assert_gradients_close,
    judge,
    judge_file,
    judge_gradients,
)
from attest_attention._given import Problem
from attest_attention._kernel import Kernel, kernel
from attest_attention._masks import (
    Mask,
    block_sparse,
    causal,
    dense,
    dilated,
    prefix,
    segments,
    window,
)
from attest_attention._options import ARITHMETICS, Options
from attest_attention._pytest import pytest
from attest_attention._result import Result, TensorResult
from attest_attention._run import Run, RunError, Verdict, run

__version__ = "0.1.0"

__all__ = [
    "ARITHMETICS", "Kernel", "Mask", "Options", "Problem", "Result", "Run", "RunError",
    "TensorResult", "Verdict", "assert_close", "assert_gradients_close", "block_sparse", "causal",
    "dense", "dilated", "judge", "judge_file", "judge_gradients", "kernel", "prefix", "pytest",
    "run", "segments", "window",
]
