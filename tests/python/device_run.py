"""Has the kernels of device_kernels.py judged, on a machine with a GPU, PyTorch, Triton and JAX:

    ATTEST_PROGRAM=build/release/bin/attest PYTHONPATH=python python3 tests/python/device_run.py

A line for each: how a right one passes, or by which verdict a fault is caught. Arguments are names
of kernels, with *, else all. Exits with 1 if a fault is missed or a right kernel fails.
"""
import concurrent.futures
import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

from attest_attention import _command
from attest_attention._run import PASSED, Run

HERE = pathlib.Path(__file__).resolve().parent
AT_ONCE = 8
LIMIT = 100  # seconds, for one run

# A fault, like a case about changing shapes, takes a fresh worker: of these few.
GAPS = ["layout/strides/gaps/*/dtype=f32/**"]
ONE = ["layout/strides/gaps/layouts=bhsd_gap_3/dtype=f32/**"]
IN_STREAMS = ["device/calls/stream*/**", "device/calls/two_streams*/**", "device/calls/graph*/**"]
NEW_SHAPES = ["device/calls/new_shapes/dtype=f32/**"]


def calls(mode):
    return [f"device/calls/{mode}/dtype=f32/**"]


# Of a kernel of a file the cases, and what is to come of them: passes alone; or failures, each for
# one of these reasons, or one for that clause; or a failure of one case, and passes of the others.
RIGHT, ONCE = "right", "once"
RUNS = {
    "device_kernels.py:torch_in_place": ([*IN_STREAMS, *GAPS, "format/formats/**"], RIGHT),
    "device_kernels.py:torch_returned": ([*IN_STREAMS, *GAPS, *NEW_SHAPES], RIGHT),
    "device_kernels.py:triton_in_place": ([*IN_STREAMS, *GAPS, *NEW_SHAPES], RIGHT),
    "device_jax.py:jitted": ([*NEW_SHAPES, "format/formats/**"], RIGHT),
    "device_kernels.py:before": (ONE, ("guard",)),
    "device_kernels.py:behind": (ONE, ("guard",)),
    "device_kernels.py:far_before_an_input": (ONE, ("guard",)),
    "device_kernels.py:gap": (ONE, ("guard",)),
    "device_kernels.py:mutated": (ONE, ("input_mutated",)),
    "device_kernels.py:unwritten": (ONE, ("unwritten",)),
    "device_kernels.py:unwritten_returned": (ONE, ("unwritten", "nonfinite", "bound")),
    "device_kernels.py:uncleared_workspace": (ONE, ("nonfinite", "bound")),
    "device_kernels.py:slack": (ONE, ("nonfinite", "bound")),
    "device_kernels.py:default_stream": (calls("stream"), "DEV-1"),
    "device_kernels.py:item_then_default_stream": (calls("stream"), "DEV-1"),
    "device_kernels.py:shared_scratch": (calls("two_streams"), "DEV-2"),
    "device_kernels.py:shares_plan": (calls("two_streams"), "DEV-2"),
    "device_kernels.py:baked": (calls("graph"), "DEV-3"),
    "device_kernels.py:baked_lengths": (calls("graph_lengths"), "DEV-3"),
    "device_kernels.py:counter_cleared_by_host": (calls("graph"), "DEV-3"),
    "device_kernels.py:former_shape": (calls("new_shapes"), "DEV-4"),
    "device_kernels.py:illegal_address": (GAPS, ONCE),
    "device_kernels.py:failed_assertion": (GAPS, ONCE),
}


def judged(testee, cases, folder):
    words = [_command.program(), "run", "--testee", f"{HERE}/{testee}", "--out", folder, "--tier",
             "full", "--profile", "none", "--jobs", "1", "--memory-limit", "32768"]
    words += [word for case in cases for word in ("--cases", case)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", timeout=LIMIT, env=_command.environment())
    if not os.path.exists(f"{folder}/report.json"):
        raise RuntimeError(f"attest exited with {done.returncode}: {done.stdout[-1000:]} "
                           f"{done.stderr[-3000:]}")
    return Run(pathlib.Path(folder), done.stdout)


def found(run, expected):
    """Whether it is what was expected, and a line that says what it is."""
    passed = [each for each in run.verdicts if each.outcome in PASSED]
    failed = [each for each in run.verdicts if each.failed]
    told = f"{len(passed)} passed" + "".join(
        f"; {each.outcome}({each.reason}) {each.clause}: {each.message[:160]}"
        for each in failed[:1]) + (f", and {len(failed) - 1} more" if len(failed) > 1 else "")
    if expected == RIGHT:
        return bool(passed) and not failed, told
    if expected == ONCE:  # and the cases behind it are judged as if nothing had been
        return len(failed) == 1 and len(passed) > 1, told
    if isinstance(expected, str):
        return any(each.clause == expected for each in failed), told
    return bool(failed) and all(each.reason in expected for each in failed), told


def tried(testee):
    """Never raises: one that cannot be run must not stop the rest."""
    cases, expected = RUNS[testee]
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="attest-device-") as folder:
            os.chmod(folder, 0o755)
            run = judged(testee, cases, folder)
            good, told = found(run, expected)
            more = "" if good else "\n".join(f"    {each}"[:3000] for each in run.failures[:3])
    except Exception:
        good, told, more = False, "could not be run", traceback.format_exc()[-3000:]
    word = {(True, True): "right ", (True, False): "FAILS ", (False, True): "caught",
            (False, False): "MISSED"}[expected == RIGHT, good]
    print(f"{word} {testee:<40} {time.monotonic() - begin:5.1f} s  {told}"
          + (f"\n{more}" if more else ""), flush=True)
    return good


def main():
    names = [testee for testee in RUNS if not sys.argv[1:] or any(
        fnmatch.fnmatch(testee.split(":")[1], name) for name in sys.argv[1:])]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        good = list(pool.map(tried, names))
    print(f"{sum(good)} of {len(good)} as expected")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
