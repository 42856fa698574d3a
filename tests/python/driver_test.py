"""Calls of CUDA's driver, which is a fake: fake_libcuda.c."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

HERE = pathlib.Path(__file__).parent
COMPILER = shutil.which("cc")


@unittest.skipUnless(COMPILER, "there is no compiler")
class DriverTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", f"{cls.folder.name}/libcuda.so.1",
                        f"{HERE}/fake_libcuda.c"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def told(self, test, **around):
        """What a process says that has the driver: it runs a function of this file."""
        done = subprocess.run([sys.executable, "-B", __file__, test], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": self.folder.name, **around})
        return done.stdout.strip()

    def test_memory_goes_there_and_back(self):
        self.assertEqual(self.told("memory"), "right")

    def test_of_memory_little_may_be_left(self):
        self.assertEqual(self.told("full"), "False\nTrue")

    def test_streams_are_held_for_a_while(self):
        self.assertEqual(self.told("hold"), "right")

    def test_time_between_marks_is_told_in_seconds(self):
        self.assertEqual(self.told("marks"), "1.5")

    def test_errors_are_told_by_their_names(self):
        self.assertEqual(self.told("no_memory"),
                         "Unavailable: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY, out of memory")
        self.assertEqual(self.told("memory", FAKE_INIT="3"),
                         "Unavailable: cuInit: CUDA_ERROR_NOT_INITIALIZED, initialization error")
        self.assertEqual(self.told("lost"), "DeviceError: cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS, "
                                            "an illegal memory access was encountered")


def memory(cuda):
    address, sent = cuda.allocate(10000), cuda.pinned(10000)
    sent[...] = np.arange(10000) % 251
    cuda.copy_in(address, sent, cuda.streams[0])
    cuda.fill(address + 100, 7, 50, 0)
    back = cuda.pinned(10000)
    cuda.copy_out(back, address, cuda.streams[1])
    cuda.synchronize()
    sent[100:150] = 7
    assert np.array_equal(sent, back) and len(set(cuda.streams)) == 2
    cuda.free(address, 10000)
    cuda.unpin(back)
    assert cuda.allocate(9000) == address, "what is not large is kept"
    cuda.free(cuda.allocate(1 << 28), 1 << 28)
    print("right")


def full(cuda):
    for free in ("64", "4"):  # of 80 GiB
        os.environ["FAKE_FREE_GIB"] = free
        print(cuda.is_full())


def marks(cuda):
    print(cuda.seconds(cuda.mark(0), cuda.mark(0)))


def hold(cuda):
    begin = time.monotonic()
    cuda.hold(cuda.streams, 0.05)
    assert time.monotonic() - begin > 0.05
    print("right")


def no_memory(cuda):
    cuda.allocate(1 << 40)


def lost(cuda):
    cuda.fill(cuda.allocate(1), 0xee, 1, 0)
    cuda.synchronize()


if __name__ == "__main__" and sys.argv[1:2] and sys.argv[1] in globals():
    from attest_attention._device import Cuda, DeviceError

    try:
        globals()[sys.argv[1]](Cuda())
    except DeviceError as error:
        print(f"{type(error).__name__}: {error}")
elif __name__ == "__main__":
    unittest.main()
