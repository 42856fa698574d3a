"""impl/adapters/judge --shard and --join, on an adapter of NumPy. ATTEST names the command."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

TREE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TREE / "impl/adapters"
sys.path.insert(0, str(FOLDER))

ADAPTER = """
import sys
sys.path.insert(0, "TESTS")
import attest_attention as attest
from textbook import Kernel

@attest.kernel(dtypes=["f32"])
def mine(p, q, k, v):
    return Kernel(scale=p.scale * TIMES).forward(q, k, v)[0].astype("f4")
""".replace("TESTS", str(TREE / "tests/python"))


def loaded_judge():
    loader = importlib.machinery.SourceFileLoader("judge", str(FOLDER / "judge"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("judge", loader))
    loader.exec_module(module)
    return module


class PartsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.out = self.here / "out"
        self.write(1)
        self.judge = loaded_judge()
        self.judge.HERE = self.here
        self.judge.LOCK = {"systems": {"numpy": {"with": [], "versions": [], "adapters": {
            "mine.py": {"device": "cpu", "kernels": ["mine"]}}}}}

    def write(self, scale):
        (self.here / "mine.py").write_text(ADAPTER.replace("TIMES", str(scale)))

    def run_judge(self, *words):
        printed = io.StringIO()
        with mock.patch.dict(os.environ, {"ATTEST_PROGRAM": os.environ["ATTEST"]}), \
                mock.patch.object(sys, "argv", ["judge", *words, "--out", str(self.out)]), \
                contextlib.redirect_stdout(printed):
            code = self.judge.main()
        return code, printed.getvalue()

    def part(self, shard):
        return self.run_judge("--installed", "numpy", "--smoke", "--shard", shard)

    def records(self):
        return json.loads((self.out / "summary.json").read_text())["records"]

    def test_parts_that_are_joined_are_the_whole(self):
        self.assertEqual(self.part("2/2")[0], 0)
        code, told = self.run_judge("--join")
        self.assertEqual((code, self.records()), (3, []))
        self.assertIn("parts: skipped: mine: attest: of 2 shards there is no 1", told)
        self.part("1/2")
        self.assertEqual(self.run_judge("--join")[0], 0)
        joined, = self.records()
        self.run_judge("--installed", "numpy", "--smoke")
        whole, = self.records()
        for name in ("system", "kernel", "tier", "machine", "packages", "outcomes", "clauses",
                     "groups", "passing_ratios", "unsupported", "profiles"):
            self.assertEqual(joined[name], whole[name], name)
        self.assertGreater(joined["outcomes"]["PASS"], 3)
        self.part("1/2")
        self.assertEqual(self.records(), [whole], "a part is no kernel's record")

    def test_parts_of_other_kernels_are_not_joined(self):
        self.part("1/2")
        self.write(2)
        self.part("2/2")
        self.assertIn("headers differ in \"testees\"", self.run_judge("--join")[1])


if __name__ == "__main__":
    unittest.main()
