"""impl/adapters/judge, on an adapter of NumPy: its parts and their join, and how it is called.
ATTEST names the command."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
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


class JudgeTest(unittest.TestCase):
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
                contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                code = self.judge.main()
            except SystemExit as ended:
                code = ended.code
        return code, printed.getvalue()

    def records(self):
        return json.loads((self.out / "summary.json").read_text())["records"]

    def test_a_script_is_of_one_finding_and_says_of_which(self):
        options = self.judge.argparse.Namespace(script_limit=60)
        groups = [{"outcome": "FAIL", "tensor": "O", "finding": name, "example": str(n)}
                  for n, name in enumerate(["a", "b", "a", ""])]
        ends = {"0": "its script does not show it", "1": "shown", "2": "shown", "3": "shown"}
        with mock.patch.object(self.judge, "show", lambda *given: ends[given[3]["example"]]):
            self.judge.show_all("", "", "numpy", groups, lambda group: group["finding"],
                                self.here, options)
        self.assertEqual([(each["script_of"], each["script"]) for each in groups],
                         [("a", "its script does not show it"), ("b", "shown"), ("a", "shown"),
                          ("", "shown")])


class AgainTest(JudgeTest):
    """What is there already, by what is known now."""

    def test_what_is_there_is_explained_again_and_shown(self):
        self.write(2)
        self.run_judge("--installed", "numpy", "--smoke")
        before, = self.records()
        finding = {"id": "numpy-scale", "system": "numpy", "kernels": ["mine"], "versions": ["*"],
                   "kind": "bug", "what": "the scale is doubled", "link": "", "clauses": ["SCORE-1"],
                   "where": [{"alike": ["the root of the scale"]}]}  # of 0.25, as doubled
        script = self.here / "scripts/numpy-scale.py"
        script.parent.mkdir()
        script.write_text("assert not 'it is wrong'")
        self.write("nothing that can be judged")
        with mock.patch.object(self.judge.findings, "ALL", [finding]), \
                mock.patch.dict(self.judge.findings.BY_ID, {"numpy-scale": finding}):
            code, told = self.run_judge("--installed", "--again", "numpy", "--scripts")
            self.assertEqual(code, 0, told)
            self.assertIn("failed: the scale is doubled", told)
            after, = self.records()
            self.assertEqual({**before, "groups": 0}, {**after, "groups": 0})
            self.assertIn("shown", [each.get("script") for each in after["groups"]])
            self.run_judge("--again", "numpy")
            self.assertEqual(self.records(), [after], "what scripts showed stays")
            code, told = self.run_judge("--installed", "--show", "numpy-scale", "numpy")
            self.assertEqual(code, 0, told)
            self.assertIn("numpy-scale: shown", told)
            summary = json.loads((self.out / "summary.json").read_text())
            self.assertEqual([each["script"] for each in summary["shown"]], ["shown"])
            self.assertEqual(summary["records"], [after])
        self.assertIn("scripts/ has none", self.run_judge("--show", "nosuch", "numpy")[1])

    def test_a_record_that_is_gone_or_cut_is_told_and_what_is_known_of_it_stays(self):
        self.run_judge("--installed", "numpy", "--smoke")
        before, file = self.records(), next(self.out.glob("*/*/results.jsonl"))
        lines = file.read_text().splitlines(keepends=True)
        for left in ("".join(lines[:-1]), "", "[]\n", None):
            file.write_text(left) if left is not None else file.unlink()
            code, told = self.run_judge("--again", "numpy")
            self.assertEqual(code, 3, told)
            self.assertIn("skipped: mine: its record cannot be read", told)
            self.assertEqual(self.records(), before)

    def test_random_problems_that_fail_to_be_drawn_lose_no_tier_and_keep_no_earlier_ones(self):
        call = ("--installed", "numpy", "--smoke", "--fuzz", "3")
        self.run_judge(*call)
        first, = self.records()
        self.assertEqual(sum(first["fuzz"]["tried"].values()), 3)
        code, told = self.run_judge(*call, "--seed", "-7")
        self.assertIn("skipped: mine: no random problems: ", told)
        second, = self.records()
        self.assertNotIn("fuzz", second)
        self.assertEqual(second["outcomes"], first["outcomes"])


class PartsTest(JudgeTest):
    def part(self, shard):
        return self.run_judge("--installed", "numpy", "--smoke", "--shard", shard)

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
        call = "impl/adapters/judge --installed numpy --smoke"
        self.assertEqual(whole["command"], call)
        self.assertEqual(joined["command"].splitlines(), [
            f"{call} --shard 1/2", f"{call} --shard 2/2", "impl/adapters/judge --join"])
        told = subprocess.run([os.environ["ATTEST"], "--version"], capture_output=True, text=True)
        self.assertEqual({joined["attest"], whole["attest"]}, {told.stdout.strip()})
        self.part("1/2")
        self.assertEqual(self.records(), [whole], "a part is no kernel's record")
        self.run_judge("--installed", "nosuch")
        self.assertEqual(self.records(), [whole], "what is skipped replaces nothing")
        (self.out / "summary.json").write_text("{")
        self.assertIn("would be lost", str(self.run_judge("--installed", "numpy", "--smoke")[0]))

    def test_parts_that_make_a_larger_one_are_joined_as_that(self):
        for shard in ("2/4", "4/4", "2/2"):
            self.part(shard)
        part = next(self.out.glob("*/*/2-of-2"))
        alone = json.loads((part / "report.json").read_text())
        part.rename(self.here / "2-of-2")
        self.assertEqual(self.run_judge("--join", "--shard", "2/2")[0], 0)
        joined, = self.records()
        self.assertEqual((joined["outcomes"], joined["shard"]), (alone["counts"], "2/2"))
        self.assertEqual(joined["command"].splitlines()[2],
                         "impl/adapters/judge --join --shard 2/2")
        self.assertIn("of 4 shards there is no 1, 3", self.run_judge("--join")[1])

    def test_parts_of_other_kernels_are_not_joined(self):
        self.part("1/2")
        self.write(2)
        self.part("2/2")
        self.assertIn("headers differ in \"testees\"", self.run_judge("--join")[1])

    def test_parts_of_another_attest_are_not_joined(self):
        for shard in ("1/2", "2/2"):
            self.part(shard)
        about, = self.out.glob("*/*/1-of-2/part.json")
        about.write_text(about.read_text().replace('"attest": "', '"attest": "another '))
        self.assertIn("mine: its parts differ in attest", self.run_judge("--join")[1])


class EndedTest(unittest.TestCase):
    def test_who_ends_it_ends_what_it_started(self):
        started = []

        class Noted(subprocess.Popen):
            def communicate(self, *given, **named):
                started.append(self)
                raise SystemExit

        judge = loaded_judge()
        with mock.patch.object(judge.subprocess, "Popen", Noted), self.assertRaises(SystemExit):
            judge.limited(["sleep", "600"], 9)
        with started[0] as process:
            self.assertEqual(process.poll(), -judge.signal.SIGKILL)


class CallTest(JudgeTest):
    def setUp(self):
        super().setUp()
        self.environments = self.here / "environments"
        self.environments.mkdir()

    def judged(self, *words):
        return self.run_judge(*words, "--environments", str(self.environments))

    def test_what_is_no_version_leads_nowhere(self):
        victim = self.here / "victim"
        victim.mkdir()
        (victim / "file").touch()
        for spec in ("numpy==/../../victim", "numpy==../victim", "numpy==..", "../victim",
                     "numpy== 1", "numpy>=1", "numpy==1/2", "numpy==", ""):
            code, told = self.judged(spec)
            self.assertEqual((code, "expected a system" in told), (2, True), spec)
        self.assertTrue((victim / "file").exists())
        self.assertEqual(list(self.environments.iterdir()), [])

    def test_what_is_no_environment_is_not_removed(self):
        mine = self.environments / "numpy-1.0"
        mine.mkdir()
        (mine / "file").touch()
        self.assertIn("is no environment", self.judged("numpy==1.0")[1])
        self.assertTrue((mine / "file").exists())

    def test_a_name_without_an_adapter_is_skipped_and_counted(self):
        code, told = self.judged("--installed", "unknown", "pip")
        self.assertEqual(code, 3)
        self.assertIn("skipped: unknown: no adapter; there are numpy", told)
        self.assertIn("skipped: pip: no adapter", told)
        self.assertIn("0 kernels judged, 2 skipped", told)

    def test_mistakes_are_told(self):
        for words, said in ((["numpy==1", "--python", "/nonexistent"], "there is no /nonexistent"),
                            (["--installed", "numpy", "--shard", "7/6"], "not 7/6"),
                            (["--installed", "numpy", "--shard", "0/6"], "not 0/6"),
                            (["--installed", "numpy==1"], "numpy==1: expected a system"),
                            (["numpy==1", "--shard", "1/2", "--scripts"], "--scripts")):
            code, told = self.judged(*words)
            self.assertEqual((code, said in told), (2, True), told)

    def test_a_python_that_cannot_be_run_is_told(self):
        mine = self.here / "python"
        mine.write_text("no program")
        mine.chmod(0o755)
        self.assertIn("cannot be installed: [Errno 8]", self.judged("numpy==1", "--python",
                                                                    str(mine))[1])


if __name__ == "__main__":
    unittest.main()
