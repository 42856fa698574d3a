"""Kernels on a device, which is a fake: what guards find there, in which order work is done, and
errors that leave it unusable; device_modes_test.py has modes. What a real one does is tried by
device_run.py."""
import ctypes
import importlib.util
import io
import os
import pathlib
import sys
import unittest
from unittest import mock

import numpy as np

import attest_attention as attest
import fake_device
from attest_attention import _arrays, _device, _dlpack, _home, _mirror, worker
from attest_attention._backends import Jax, Torch
from textbook import Kernel

HERE = pathlib.Path(__file__).parent
PAGE = 4096
CANARY, ELEMENT = 0xff, 0x7fa57fa5  # what the harness puts around outputs, and in them
SHAPES = {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 6), "o": (2, 4, 5, 6),
          "lse": (2, 4, 5, 1)}


class Request:
    """A forward pass in f32, in memory as the harness lays it out, with gaps between rows."""

    def __init__(self, flush="end", shapes=None, mode=None, armed=False):
        shapes = shapes or SHAPES
        self.fds, self.memory, self.tensors = {}, {}, {}
        for memory in ("input", "output"):
            self.fds[memory] = os.memfd_create(memory)
            os.ftruncate(self.fds[memory], 64 * PAGE)
            self.memory[memory] = np.memmap(f"/proc/self/fd/{self.fds[memory]}", np.uint8, "r+")
        ends = {"input": 0, "output": 0}
        for name, shape in shapes.items():
            memory = "output" if name in ("o", "lse") else "input"
            gap = 3 if name != "lse" else 0
            strides = [0, 0, shape[3] + gap, 1]
            strides[1] = shape[2] * strides[2]
            strides[0] = shape[1] * strides[1]
            size = 4 * (1 + sum((n - 1) * s for n, s in zip(shape, strides)))
            region = -(-(size + 512) // PAGE) * PAGE
            begin = ends[memory]
            offset = begin if flush == "start" else (begin + region - size) // 16 * 16
            self.tensors[name] = {"memory": memory, "dtype": "f32", "shape": list(shape),
                                  "stride": strides, "offset": offset, "bytes": size,
                                  "region_offset": begin, "region_bytes": region}
            ends[memory] += region
            self.memory[memory][begin:begin + region] = CANARY
            view, numbers = self.view(name), np.random.default_rng(len(name) + ord(name[0]))
            if memory == "input":
                view[...] = numbers.standard_normal(shape, np.float32)
            else:
                self.memory[memory][offset:offset + size].view(np.uint32)[...] = ELEMENT
        self.before, self.end = self.memory["output"].copy(), ends["input"]
        query, key = shapes["q"], shapes["k"]
        problem = {"dtype": "f32", "backward": False, "batch": query[0], "query_heads": query[1],
                   "key_heads": key[1], "query_len": query[2], "key_len": key[2],
                   "head_dim": query[3], "value_dim": shapes["v"][3], "scale": 0.5,
                   "softcap": 0.0, "packed": False, "page_size": 0, "bias": False, "alibi": False,
                   "sink": False, "dlse": False, "mask": {"kind": "full"},
                   "dropout": {"mode": "none", "probability": 0.0, "seed": "0", "offset": "0"}}
        self.asked = {"op": "forward", "nonce": "0", "threads": 1, "problem": problem,
                      "tensors": self.tensors, "armed": armed, **({"mode": mode} if mode else {})}

    def view(self, name):
        told = self.tensors[name]
        return np.ndarray(told["shape"], np.float32, self.memory[told["memory"]], told["offset"],
                          [4 * stride for stride in told["stride"]])

    def exact(self):
        """What a kernel is to know beside q, k and v."""
        return {}

    def verdict(self, reply):
        """In a word, and more of them where the worker has some."""
        if reply["status"] != "ok":
            return " ".join(reply[key] for key in ("status", "reason", "message") if key in reply)
        after, elements = self.memory["output"].copy(), np.zeros(len(self.before), bool)
        for name in ("o", "lse"):
            told = self.tensors[name]
            np.ndarray((*told["shape"], 4), bool, elements, told["offset"],
                       [*(4 * stride for stride in told["stride"]), 1])[...] = True
        if not np.array_equal(after[~elements], self.before[~elements]):
            return "outside"
        o, lse = self.view("o"), self.view("lse")
        if np.any(o.view(np.uint32) == ELEMENT) or np.any(lse.view(np.uint32) == ELEMENT):
            return "unwritten"
        exact = Kernel(scale=0.5, real=np.float32, **self.exact()).forward(
            *(self.view(x) for x in "qkv"))
        right = np.allclose(o, exact[0], atol=1e-5) and np.allclose(lse[..., 0], exact[1])
        return "right" if right else "NaN" if np.isnan(o).any() else "wrong"

    def close(self):
        for fd in self.fds.values():
            os.close(fd)


def replied(kernel, device=None, library=fake_device.OnFake, file="device_faults.py", make=Request,
            **options):
    """What a worker says to a request for a kernel; and that request."""
    request = make(**options)
    for name, fd in request.fds.items():
        os.environ[f"ATTEST_{name.upper()}_FD"] = str(fd)
    answer = worker.Worker(str(HERE / file)).answer
    fake_device.install(device, library)  # in place of what the file has installed
    try:
        return answer({**request.asked, "kernel": kernel}), request
    finally:
        _home.in_worker = False
        request.close()


def verdict(kernel, **options):
    reply, request = replied(kernel, **options)
    return request.verdict(reply)


class GuardTest(unittest.TestCase):
    """What is wrong in memory of the device is found as it is in the host's."""

    def test_right_kernels_pass(self):
        for kernel in ("right", "right_in_part", "right_returned"):
            for flush in ("end", "start"):
                with self.subTest(kernel, flush=flush):
                    self.assertEqual(verdict(kernel, flush=flush), "right")

    def test_write_before_the_first_element_of_an_output_is_found(self):
        self.assertEqual(verdict("before", flush="start"),
                         "fault guard wrote 1 bytes before the start of o")
        self.assertEqual(verdict("before", flush="end"), "outside")  # which the harness sees

    def test_write_behind_the_last_element_of_an_output_is_found(self):
        for flush in ("start", "end"):  # there is room for it at either end
            self.assertIn(verdict("behind", flush=flush),
                          ("outside", "fault guard wrote 1 bytes behind the end of o"))

    def test_writes_around_inputs_are_found_with_their_distance(self):
        self.assertEqual(verdict("before_an_input", flush="start"),
                         "fault guard wrote 1 bytes before the start of q")
        self.assertEqual(verdict("before_an_input", flush="end"),
                         "fault input_mutated the kernel wrote to q, -4 bytes from its start")
        self.assertEqual(verdict("far_behind_an_input", flush="end"),
                         "fault guard wrote 3997 bytes behind the end of k")

    def test_write_between_rows_is_found(self):
        self.assertEqual(verdict("gap"), "outside")

    def test_input_that_is_written_to_is_found(self):
        self.assertRegex(verdict("mutated"),
                         r"^fault input_mutated the kernel wrote to v, \d+ bytes from its start$")

    def test_slack_that_is_read_shows(self):
        self.assertEqual(verdict("slack"), "NaN")

    def test_element_that_is_not_written_is_found_in_memory_of_either(self):
        self.assertEqual(verdict("unwritten"), "unwritten")
        self.assertEqual(verdict("unwritten_returned"), "NaN")

    def test_memory_with_holes_keeps_them_and_is_searched(self):
        at_once, large = _mirror._AT_ONCE, _mirror._LARGE
        _mirror._AT_ONCE, _mirror._LARGE = PAGE, 2 * PAGE
        try:
            # Far behind the last row, in a page of the region that nobody had touched.
            found = self._with_hole(lambda o: None), self._with_hole(
                lambda o: fake_device.host_bytes(o.address + 5 * PAGE, 4).fill(1))
        finally:
            _mirror._AT_ONCE, _mirror._LARGE = at_once, large
        self.assertEqual(found, (None, ("guard", f"wrote between the rows of o, {5 * PAGE} bytes "
                                                 "from its start")))

    def test_a_stride_that_is_never_used_is_that_of_dense_memory(self):
        # PyTorch's efficient back end refuses one query whose rows lie 1 apart: it looks at
        # alignment alone.
        for shape, given, expected in (((2, 4, 1, 8), (32, 8, 2**62, 1), (32, 8, 8, 1)),
                                       ((1, 4, 3, 8), (2**62, 8, 32, 1), (96, 8, 32, 1)),
                                       ((2, 1, 3, 1), (9, 0, 3, 5), (9, 9, 3, 1))):
            fd = os.memfd_create("dense")
            os.ftruncate(fd, PAGE)
            mirror = _mirror.Mirror(fake_device.Device(), _mirror.Memory(fd, fd), {"q": {
                "memory": "input", "dtype": "f32", "shape": list(shape), "stride": list(given),
                "offset": 0, "bytes": 1024, "region_offset": 0, "region_bytes": PAGE}})
            self.assertEqual(mirror.view("q").strides, expected)
            os.close(fd)

    def _with_hole(self, work):
        fd = os.memfd_create("sparse")
        os.ftruncate(fd, 8 * PAGE)
        os.pwrite(fd, b"\x01" * PAGE, PAGE)
        told = {"o": {"memory": "output", "dtype": "f32", "shape": [1, 1, 1, 8],
                      "stride": [8, 8, 8, 1], "offset": PAGE, "bytes": 32, "region_offset": 0,
                      "region_bytes": 8 * PAGE}}
        device, memory = fake_device.Device(), _mirror.Memory(fd, fd)
        mirror = _mirror.Mirror(device, memory, told)
        mirror.send(0)
        device.launch(0, lambda: work(mirror.view("o")))
        mirror.fetch(0)
        device.synchronize()
        fault = mirror.settle()
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), PAGE, "a hole has come into being")
        self.assertEqual(os.lseek(fd, 2 * PAGE, os.SEEK_HOLE), 2 * PAGE)
        os.close(fd)
        return fault


class OrderTest(unittest.TestCase):
    """Poison, copies and the kernel are one after the other, whatever else the device does."""

    def test_whatever_the_device_runs_first_right_kernels_pass(self):
        for seed in range(20):
            for kernel in ("right", "right_returned", "in_every_mode", "returned_in_every_mode"):
                for mode in (None, "stream", "two-streams", "graph"):
                    if mode is None or kernel.endswith("every_mode"):
                        with self.subTest(kernel, seed=seed, mode=mode):
                            self.assertEqual(verdict(kernel, device=fake_device.Device(seed),
                                                     mode=mode), "right")

    def test_poison_of_the_allocator_is_no_other_streams(self):
        """That of a suite that filled memory in one stream and computed in another overtook it."""
        class Racing(fake_device.OnFake):
            def poison(self, sizes):
                self.current, current = 2, self.current
                super().poison(sizes)
                self.current = current

        told = {verdict("recycled", device=fake_device.Device(seed), library=Racing)
                for seed in range(20)}
        self.assertIn("NaN", told)
        self.assertEqual({verdict("recycled", device=fake_device.Device(seed))
                          for seed in range(20)}, {"right"})

    def test_kernel_in_a_stream_that_waits_for_none_meets_poison(self):
        found = {verdict("foreign_stream", device=fake_device.Device(seed)) for seed in range(20)}
        self.assertTrue(found - {"right"}, found)


class DeclarationTest(unittest.TestCase):
    def test_features_of_modes_are_of_devices_and_of_libraries_with_streams(self):
        for declared, message in (
                ({"features": ["graph"]}, "'graph' is of kernels with device='cuda'"),
                ({"features": ["stream"], "arrays": "jax", "device": "cuda"},
                 "JAX chooses its streams itself: 'stream'"),
                ({"features": ["strides"], "arrays": "jax", "device": "cuda"},
                 "arrays of JAX are dense")):
            with self.subTest(message), self.assertRaises(ValueError) as caught:
                attest.kernel(dtypes=["f32"], **declared)
            self.assertIn(message, str(caught.exception))


class ErrorTest(unittest.TestCase):
    def test_error_that_leaves_the_device_unusable_ends_the_worker(self):
        reply, _ = replied("lost")
        self.assertEqual(reply["status"], "error")
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", reply["message"])
        self.assertIs(reply["ends"], True)

    def test_error_that_leaves_the_library_unusable_ends_the_worker(self):
        class Spent(fake_device.OnFake):
            def is_spent(self, error):
                captured = RuntimeError("INTERNAL: (901): cudaErrorStreamCaptureInvalidated")
                return "not this one" in str(error) and super().is_spent(captured)

        reply, _ = replied("raises", library=Spent)
        self.assertEqual(reply["status"], "error")
        self.assertIs(reply["ends"], True)

    def test_lack_of_memory_is_told_from_other_errors(self):
        class Full(fake_device.Device):
            def allocate(self, size):
                raise _device.Unavailable("cuMemAlloc_v2: out of memory")

        class Poor(fake_device.OnFake):
            def lacks_device(self, error):
                return "not this one" in str(error)

        reply, _ = replied("right", device=Full())
        self.assertEqual((reply["status"], reply["reason"]), ("error", "no_memory"))
        reply, _ = replied("raises", library=Poor)  # as a kernel's own library has it
        self.assertEqual(reply["reason"], "no_memory")
        reply, _ = replied("raises")
        self.assertNotIn("reason", reply)

    def test_any_error_may_be_lack_of_memory_where_the_device_is_full(self):
        class Full(fake_device.Device):
            def is_full(self):
                return True

        reply, _ = replied("raises", device=Full())
        self.assertEqual((reply["status"], reply["reason"]), ("error", "no_memory"))
        self.assertIn("not this one", reply["message"])
        reply, _ = replied("lost", device=Full())
        self.assertIs(reply["ends"], True)

    def test_other_errors_do_not(self):
        reply, _ = replied("raises")
        self.assertIn("ValueError: not this one (device_faults.py", reply["message"])
        self.assertNotIn("ends", reply)

    def test_worker_reads_no_request_behind_the_last(self):
        asked = b'{"nonce": "1"}'
        request = len(asked).to_bytes(4, "little") + asked
        read, write = os.pipe()
        with open(write, "wb", buffering=0) as replies:
            worker.serve(lambda asked: {"status": "error", "ends": True},
                         worker.Stream(io.BytesIO(2 * request), replies))
        with open(read, "rb") as told:
            self.assertEqual(told.read().count(b"nonce"), 1)

    def test_what_is_told_beforehand_waits_for_its_word(self):
        frames = [b'{"nonce": "1", "armed": true}', b'{"nonce": "2", "op": "go"}']
        requests = io.BytesIO(b"".join(len(each).to_bytes(4, "little") + each for each in frames))
        read, write = os.pipe()
        with open(write, "wb", buffering=0) as replies:
            stream = worker.Stream(requests, replies)
            worker.serve(lambda asked: stream.wait_for_word() or {"status": "ok"}, stream)
        with open(read, "rb") as told:
            self.assertRegex(told.read(), b'"armed": true, "nonce": "1".*"ok", "nonce": "2"')

    def test_missing_driver_is_told(self):
        if _has_driver():
            self.skipTest("this machine has the driver")
        with self.assertRaises(_device.DeviceError) as caught:
            _device.Cuda()
        self.assertIn("device='cuda' needs the driver of CUDA", str(caught.exception))


def _has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


class Elsewhere:
    """An array on the device, as any library may have it."""

    def __init__(self, array, dtype):
        self._array = array  # kept
        self._view = _dlpack.View(array.ctypes.data, array.shape, tuple(
            stride // array.itemsize for stride in array.strides), dtype, (2, 0))

    def __dlpack_device__(self):
        return self._view.device

    def __dlpack__(self, stream=None):
        self.stream = stream
        return self._view.__dlpack__()


class OracleTest(unittest.TestCase):
    """assert_close on arrays that NumPy cannot look at."""

    def setUp(self):
        fake_device.install()

    def test_arrays_on_a_device_are_copied_when_they_are_ready(self):
        x = np.zeros((3, 4), np.float32)
        fake_device.device().launch(2, lambda: x.__setitem__(slice(None), 5))
        for view in (x, x.T, x[:, 1:3]):
            array = Elsewhere(view, "f32")
            host = _arrays.host(array, "x")
            self.assertEqual((host.dtype, host.shape, array.stream), ("f32", view.shape, 1))
            self.assertTrue(np.array_equal(host.data, view) and np.all(host.data == 5))

    def test_bf16_is_taken_by_its_bits(self):
        host = _arrays.host(Elsewhere(np.full((2, 2), 0x3fc0, np.uint16), "bf16"), "x")
        self.assertEqual(host.dtype, "bf16")
        self.assertTrue(np.all(_arrays.as_f32(host, "x", None).data == 1.5))

    def test_interface_of_cuda_is_read(self):
        class Array:
            x = np.arange(12, dtype=np.float16).reshape(3, 4)[:, ::-2]
            __cuda_array_interface__ = {"data": (x.ctypes.data, False), "shape": x.shape,
                                        "typestr": "<f2", "strides": x.strides, "version": 3}

        host = _arrays.host(Array(), "x")
        self.assertEqual(host.dtype, "f16")
        self.assertTrue(np.array_equal(host.data, Array.x))

    def test_verdict_is_that_on_the_host(self):
        numbers = np.random.default_rng(1)
        q, k, v = (numbers.standard_normal((1, 2, n, 16), np.float32) for n in (5, 9, 9))
        o, _ = Kernel(scale=0.25, real=np.float32).forward(q, k, v)
        there = [Elsewhere(x, "f32") for x in (o, q, k, v)]
        attest.assert_close(*there, arithmetic="exact-f32")
        o[0, 0, 0, 0] += 1
        with self.assertRaises(AssertionError):
            attest.assert_close(*there, arithmetic="exact-f32", save=False)


class LibraryTest(unittest.TestCase):
    """Views that libraries have of memory that is not theirs."""

    def view(self, array, dtype):
        return _dlpack.View(array.ctypes.data, array.shape, tuple(
            stride // array.itemsize for stride in array.strides), dtype, (1, 0))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_torch_sees_the_memory_itself_with_its_strides(self):
        dense = np.arange(2 * 3 * 5 * 8, dtype=np.float32).reshape(2, 3, 5, 8)
        library = Torch("cpu", ["f32"])
        for view in (dense, dense.swapaxes(1, 2), dense[:, :, ::2, 1:6], dense[:, :, :0],
                     np.broadcast_to(dense[:, :1], dense.shape), dense.swapaxes(2, 3)):
            tensor = library.lend(self.view(view, "f32"))
            self.assertTrue(np.array_equal(tensor.numpy(), view))
            if view.size:
                self.assertEqual([4 * step for step in tensor.stride()], list(view.strides))
                self.assertEqual(tensor.data_ptr(), view.ctypes.data)
        for dtype, bits in (("bf16", np.uint16), ("f16", np.float16), ("i64", np.int64),
                            ("i32", np.int32), ("u8", np.bool_), ("f64", np.float64)):
            array = np.ones((2, 3), bits)
            tensor = library.lend(self.view(array, dtype))
            self.assertEqual(library.form(tensor), ((2, 3), "bool" if dtype == "u8" else {
                "i64": "int64", "i32": "int32"}.get(dtype, dtype)))

    def test_jax_leaves_a_gpu_its_memory_for_kernels_on_the_cpu_too(self):
        jax = mock.Mock(devices=lambda kind: [kind])
        with mock.patch.dict(sys.modules, jax=jax, ml_dtypes=mock.Mock(bfloat16=np.float16)), \
                mock.patch.dict(os.environ):
            for device in ("cpu", "cuda"):
                os.environ.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)
                Jax(device, ["f32"])
                self.assertEqual(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"], "false")

    @unittest.skipUnless(importlib.util.find_spec("jax"), "jax is not installed")
    def test_jax_sees_dense_memory(self):
        library = Jax("cpu", ["f32"])
        memory = np.zeros(4096, np.uint8)
        array = memory[-memory.ctypes.data % 64:][:96].view(np.float32).reshape(1, 2, 3, 4)
        array[...] = np.arange(24).reshape(array.shape)
        seen = library.lend(self.view(array, "f32"))
        self.assertTrue(np.array_equal(np.asarray(seen), array))
        self.assertEqual(seen.unsafe_buffer_pointer(), array.ctypes.data)
        self.assertEqual(library.lend(self.view(array.view(np.uint16), "bf16")).dtype, "bfloat16")
        self.assertIsNone(library.lend(self.view(array[..., :2], "f32")))


class SuiteTest(unittest.TestCase):
    """As the command judges it."""

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_torch_computes_in_the_mirror_with_gradients_by_its_own(self):
        run = attest.run(f"{HERE}/torch_on_fake.py:by_autograd", tier="smoke")
        self.assertTrue(run.passed, run)
        self.assertTrue({"dBias", "dSink"} <= {tensor for each in run.verdicts
                                               for tensor in each.tensors})
        for name, reason in {"in_place": "", "writes_q": "input_mutated",
                             "leaves_one": "unwritten"}.items():
            run = attest.run(f"{HERE}/torch_on_fake.py:{name}", profiles=["none"],
                             cases=["layout/strides/gaps/*_3/dtype=f32/**"])
            self.assertEqual({each.reason for each in run.verdicts}, {reason}, run)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "jax is not installed")
    def test_jax_computes_in_the_mirror(self):
        run = attest.run(f"{HERE}/jax_on_fake.py:jitted", tier="smoke")
        self.assertTrue(run.passed, run)
        self.assertTrue(any("dQ" in each.tensors for each in run.verdicts))

    def test_faults_are_blamed_on_the_clauses_that_they_break(self):
        for name, reasons in {"right": {""}, "right_returned": {""}, "before": {"guard"},
                              "behind": {"guard"}, "gap": {"guard", "bound"},
                              "mutated": {"input_mutated"}, "before_an_input": {"input_mutated"},
                              "unwritten": {"unwritten"}, "lost": {"wrong_refusal"}}.items():
            with self.subTest(name):
                run = attest.run(f"{HERE}/device_faults.py:{name}", profiles=["none"],
                                 cases=["layout/strides/gaps/*/dtype=f32/**"])
                self.assertEqual({each.reason for each in run.verdicts}, reasons, run)
                self.assertEqual(run.passed, reasons == {""})


if __name__ == "__main__":
    unittest.main()
