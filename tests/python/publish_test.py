"""impl/adapters/publish: what may be named, what is left open, and the page, in a browser where
there is one. ATTEST names the command."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TREE / "impl/adapters"
sys.path.insert(0, str(FOLDER))
import findings

PUBLISHED = TREE / "reports/published"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
TOLD = next(each for each in findings.ALL if each["id"] == "jax-window-ignored")
UNTOLD = next(each for each in findings.ALL if each["id"] == "ort-mha-unidirectional")


def group(**more):
    return {"outcome": "FAIL", "reason": "bound", "blamed": "MASK-4", "clauses": ["MASK-4"],
            "cases": "mask/window", "tensor": "O", "count": 3, "dtypes": ["f32"],
            "example": "mask/window/some/s=1", "problem": "f32 q2 k5 window 1..0 top_left",
            "message": "O[0,0,0,0] = 1, exact 2", "script": "shown", "script_of": TOLD["id"],
            "alike": ["not asked"], "admitted_by": ["not asked"],
            **more}


def record(finding, groups=None, **more):
    groups = [group()] if groups is None else groups
    return {"system": finding["system"], "version": finding["versions"][0].replace("*", "1.0"),
            "kernel": finding["kernels"][0], "adapter": "a.py", "device": "cpu",
            "outcomes": {"PASS": 7, "FAIL": sum(each["count"] for each in groups)},
            "conclusion": "not conformant", "profiles": {}, "unsupported": {},
            "passing_ratios": {"O": 0.5, "LSE": "inf"}, "seconds": 1.0,
            "clauses": {"MASK-4": {"PASS": 7, "FAIL": 3}, "LSE-1": {"PASS": 2}},
            "groups": groups, "verdicts_a_second": 10.0, "packages": ["x==1"], **more}


UNTOLD_GROUP = group(problem="f32 b1 h1/1 q2 k5 causal top_left", blamed="MASK-2",
                     clauses=["MASK-2"], script_of=UNTOLD["id"],
                     script="no script: cannot be said (f32 b1 h1/1 q2 k5 causal top_left)")


HOW = {"command": "impl/adapters/judge x==1", "tier": "standard", "date": "2026-11-27",
       "machine": {"cpu": "a cpu", "cores": 2}}


class PublishTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.into = pathlib.Path(folder.name)
        self.judged = self.into / "judged"
        self.judged.mkdir()

    def publish(self, *words):
        return subprocess.run(
            [sys.executable, "-B", str(FOLDER / "publish"), "--into", str(self.into), *words],
            capture_output=True, text=True,
            env={**os.environ, "ATTEST_PROGRAM": os.environ["ATTEST"]})

    def take_in(self, *records, words=()):
        (self.judged / "summary.json").write_text(json.dumps({
            "records": [{**HOW, **each} for each in records], "skipped": []}))
        return self.publish(str(self.judged), *words)

    def page(self):
        return (self.into / "index.html").read_text()

    def test_what_a_tracker_has_is_named_and_counted_as_found(self):
        done = self.take_in(record(TOLD))
        self.assertEqual(done.returncode, 0, done.stderr)
        kept = json.loads((self.into / "jax-0.7.2-cpu.json").read_text())["kernels"][0]
        self.assertEqual(kept["groups"][0]["finding"], TOLD["id"])
        self.assertEqual(kept["groups"][0]["example"], "mask/window/some/s=1")
        for said in (TOLD["what"], TOLD["link"], "<td>yes</td>", "a cpu", "by the tier"):
            self.assertIn(said, self.page())
        self.assertIn({"finding": TOLD["id"], "by": "tier"}, kept["recall"])

    def test_a_clause_is_broken_where_random_problems_break_it_and_right_where_all_was_run(self):
        def cell(**more):
            self.assertEqual(self.take_in(record(TOLD, **more), words=("--lesser",)).returncode, 0)
            row, = re.findall(r"<th>MASK-4 .*", self.page())
            return re.search(r"<td [^>]*title=\"([^\"]*)\">([^<]*)<", row).groups()

        passed = {"groups": [], "clauses": {"MASK-4": {"PASS": 7}}}
        self.assertEqual(cell(**passed), ("7 PASS", "✓"))
        fuzz = {"seed": 1, "tried": {"PASS": 9, "FAIL": 3}, "groups": [group()]}
        self.assertEqual(cell(**passed, fuzz=fuzz), ("7 PASS; 3 FAIL of random problems", "✗"))
        self.assertEqual(cell(groups=[], clauses={"MASK-4": {"PASS": 7, "NOT_RUN": 9}}),
                         ("7 PASS, 9 NOT_RUN", "…"))

    def test_a_script_that_is_no_text_is_told(self):
        done = self.take_in(record(TOLD, groups=[group(script=5)]))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is no summary of judge's: script is 5", done.stderr)

    def test_a_finding_counts_what_it_explains_by_itself(self):
        exact = {**TOLD, "where": [{"alike": ["no window", "not asked"], "reason": ["bound"]}]}
        self.assertTrue(findings.by_itself(exact, group(alike=["no scale", "no window"])))
        self.assertFalse(findings.by_itself(exact, group(alike=["no scale"])))
        self.assertFalse(findings.by_itself(exact, group()))
        self.assertFalse(findings.by_itself(TOLD, group(alike=["no window"])))

    def test_what_came_of_a_script_by_itself_is_taken_in(self):
        self.take_in(record(TOLD, groups=[group(script="no script: too long")]))
        self.assertNotIn("<td>yes</td>", self.page())
        end = {"finding": TOLD["id"], "system": "jax", "version": "0.7.2", "device": "cpu",
               "script": "shown"}
        for more, why in (({}, ""), ({"version": "9"}, "explains nothing that is published"),
                          ({"script": 3}, "script is 3")):
            (self.judged / "summary.json").write_text(json.dumps(
                {"records": [], "skipped": [], "shown": [{**end, **more}]}))
            done = self.publish(str(self.judged))
            self.assertIn(why, done.stderr)
            self.assertEqual(done.returncode, 1 if why else 0, done.stderr)
            self.assertIn("<td>yes</td>", self.page())

    def test_what_its_owner_has_not_been_told_is_counted_and_not_named(self):
        self.assertFalse(findings.named(UNTOLD), "take another, this one may be named now")
        done = self.take_in(record(UNTOLD, groups=[UNTOLD_GROUP]))
        self.assertEqual(done.returncode, 0, done.stderr)
        file, = self.into.glob("*.json")
        for text in (file.read_text(), self.page()):
            for secret in (UNTOLD["what"], UNTOLD["id"], "mask/window", "exact 2", "q2 k5"):
                self.assertNotIn(secret, text)
        self.assertIn("not named before their owners have been told", self.page())
        self.assertIn("<td>0 of 1 kinds of failures</td>", self.page())

    def test_nothing_is_published_while_a_failure_is_left_open(self):
        done = self.take_in(record(TOLD), record(UNTOLD, groups=[group(problem="f32 full")]))
        self.assertEqual(done.returncode, 1)
        self.assertIn("mask/window/some/s=1: O[0,0,0,0] = 1, exact 2", done.stderr)
        self.assertEqual(list(self.into.glob("*.*")), [])

    def test_a_kernel_keeps_its_record_until_it_is_judged_anew(self):
        def kept():
            file, = self.into.glob("*.json")
            return [(each["kernel"], each["seconds"])
                    for each in json.loads(file.read_text())["kernels"]]

        first = record(TOLD, seconds=1)
        other = {**record(TOLD, groups=[], seconds=2), "kernel": "another"}
        self.assertEqual(self.take_in(first, other).returncode, 0)
        self.assertEqual(self.take_in({**first, "seconds": 3}).returncode, 0)
        self.assertEqual(kept(), [(first["kernel"], 3), ("another", 2)])

    def test_a_folder_without_a_summary_is_told(self):
        done = self.publish(str(self.into))
        self.assertEqual((done.returncode, "no summary.json" in done.stderr), (1, True))

    def shown(self, *groups):
        """What the page says of scripts of what explains these failures."""
        given = record(TOLD, groups=list(groups))
        self.assertEqual(self.take_in(given, words=["--lesser"]).returncode, 0)
        return re.search(r"<td class=\"number\">\d*</td><td>([^<]*)</td><td><a", self.page())[1]

    def test_a_script_shows_what_it_was_made_of_and_nothing_else(self):
        self.assertEqual(self.shown(group()), "yes")
        self.assertEqual(self.shown(group(script_of="jax-nan-length")), "no: none was run")
        self.assertEqual(self.shown(group(script_of="")), "no: none was run")

    def test_what_no_script_shows_is_told_as_that(self):
        unshown, ran = "its script does not show it", "its script fails: it fell"
        no_script = "no script: cannot be said"
        for ends, said in (([unshown, ""], unshown), (["", unshown], unshown),
                           ([unshown, no_script], unshown), ([no_script, unshown], unshown),
                           ([no_script, ""], no_script), ([ran, unshown], ran),
                           (["", ""], "none was run")):
            for reason in ("bound", "property:wide"):  # of one group that is kept, and of two
                groups = [group(script=end, reason=how)
                          for end, how in zip(ends, ("bound", reason))]
                self.assertEqual(self.shown(*groups), f"no: {said}", ends)
            self.assertEqual(self.shown(group(script=ends[0]), group(script=ends[1]), group()),
                             "yes")

    def test_a_script_of_one_that_is_held_back_shows_no_other(self):
        other = group(problem="f32 q2 k5 bias=[1,1,1,1] full", reason="property:huge_softcap",
                      blamed="MASK-2", clauses=["MASK-2"], script_of="ort-mha-emptied")
        held_back = record(UNTOLD, groups=[
            {**UNTOLD_GROUP, "reason": "property:huge_softcap"}, other])
        self.assertEqual(self.take_in(held_back).returncode, 0)
        file, = self.into.glob("*.json")
        groups = json.loads(file.read_text())["kernels"][0]["groups"]
        self.assertEqual([each["script"] for each in groups], ["no script", "shown"])

    def test_a_summary_that_is_none_is_told(self):
        for wrong in ("", "{", "{}", "[]", "3", '{"records": [{}]}', '{"records": [1]}',
                      json.dumps({"records": [{**record(TOLD), "tier": "smoke", "date": "",
                                               "command": "", "machine": {}, "groups": [{}]}]}),
                      *(json.dumps({"records": [{**HOW, **record(TOLD), name: value}]})
                        for name, value in (("system", "../../escaped"), ("tier", "quick"),
                                            ("shard", "banana"), ("outcomes", None), ("fuzz", 3),
                                            ("groups", None), ("date", "today"))),
                      '{"records": null}'):
            with self.subTest(wrong[:40]):
                (self.judged / "summary.json").write_text(wrong)
                done = self.publish(str(self.judged))
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"^publish: \S*/judged/summary.json [^\n]+\n$")
                self.assertEqual(list(self.into.glob("*.*")), [])

    def test_a_file_that_is_no_published_one_is_told(self):
        for wrong in ("{}", "[]", '{"kernels": [{}]}', '{"system": "jax", "version": "0.7.2", '
                      '"device": "gpu", "kernels": []}'):
            (self.into / "jax-0.7.2-cpu.json").write_text(wrong)
            done = self.take_in(record(TOLD))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^publish: \S*/jax-0.7.2-cpu.json [^\n]+\n$")

    def test_nothing_is_written_where_it_cannot_be(self):
        (self.into / "index.new").mkdir()
        done = self.take_in(record(TOLD))
        self.assertEqual((done.returncode, list(self.into.glob("*.json"))), (1, []))
        self.assertRegex(done.stderr, r"^publish: [^\n]+\n$")

    def test_nothing_is_written_where_no_page_can_be_made(self):
        self.assertEqual(self.take_in(record(TOLD)).returncode, 0)
        before = {path: path.read_text() for path in self.into.glob("*.*")}
        done = self.take_in(record(TOLD, clauses={"MASK-4": None}))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^publish: no page can be made of the records: [^\n]+\n$")
        self.assertEqual({path: path.read_text() for path in self.into.glob("*.*")}, before)

    def test_a_smaller_tier_replaces_none_unless_it_is_said_to(self):
        def tier():
            return json.loads((self.into / "jax-0.7.2-cpu.json").read_text())["kernels"][0]["tier"]

        smoke = {**record(TOLD), "tier": "smoke"}
        self.assertEqual(self.take_in(record(TOLD)).returncode, 0)
        done = self.take_in(smoke)
        self.assertEqual((done.returncode, tier()), (1, "standard"))
        self.assertIn("jax 0.7.2 cpu, jax_nn: the record would replace one that has more: the tier "
                      "smoke, of standard", done.stderr)
        self.assertIn("part 1/5 of the tier, of 1/1",
                      self.take_in({**record(TOLD), "shard": "1/5"}).stderr)
        self.assertEqual(self.take_in(smoke, words=["--lesser"]).returncode, 0)
        self.assertEqual(tier(), "smoke")
        self.assertEqual(self.take_in(record(TOLD)).returncode, 0)
        self.assertEqual(tier(), "standard")

    def test_one_that_has_less_or_is_older_replaces_none(self):
        fuzz = {"seed": 1, "tried": {"PASS": 9}, "groups": []}
        self.assertEqual(self.take_in(record(TOLD, fuzz=fuzz)).returncode, 0)
        file, = self.into.glob("*.json")
        there = file.read_text()
        for more, why in (({}, "0 random problems, of 9"), ({"fuzz": fuzz, "date": "2026-11-26"},
                                                       "the date 2026-11-26, of 2026-11-27"),
                          ({"fuzz": {**fuzz, "tried": {"PASS": 8}}}, "8 random problems, of 9"),
                          ({"fuzz": fuzz, "outcomes": {"PASS": 6, "FAIL": 3}},
                           "9 cases judged, of 10"),
                          ({"fuzz": fuzz, "tier": "full", "shard": "1/99",
                            "outcomes": {"PASS": 1, "FAIL": 3}}, "4 cases judged, of 10")):
            self.assertIn(why, self.take_in(record(TOLD, **more)).stderr)
            self.assertEqual(file.read_text(), there)

    def test_a_part_of_a_tier_replaces_a_smaller_one_and_says_what_it_is_of(self):
        self.assertEqual(self.take_in({**record(TOLD), "tier": "smoke"}).returncode, 0)
        self.assertEqual(self.take_in({**record(TOLD), "shard": "1/5"}).returncode, 0)
        self.assertIn("standard, part 1/5 of it, 10 cases", self.page())
        self.assertIn("all but part 1/5 of the tier", self.page())

    def test_what_explains_failures_comes_to_them(self):
        fuzz = {"seed": 1, "tried": {"PASS": 9, "FAIL": 5, "CRASH": 1},
                "groups": [group(count=2)]}
        self.assertEqual(self.take_in(record(TOLD, fuzz=fuzz)).returncode, 0)
        self.assertIn("<td class=\"number\">3</td><td>3 bug</td><td>6 of 15; distinct: 2 bug</td>",
                      self.page())
        done = self.take_in(record(TOLD, outcomes={"PASS": 7, "FAIL": 4}))
        self.assertIn("its groups have 3 failures, its outcomes 4", done.stderr)

    def test_a_row_names_its_suite_and_what_it_lacks(self):
        def lacks(**more):
            done = self.take_in(record(TOLD, **more), words=["--lesser"])
            self.assertEqual(done.returncode, 0, done.stderr)
            return re.search(r"<td>([^<]*)</td></tr>", self.page()[self.page().index(
                "id=\"kernels\""):])[1]

        fuzz = {"seed": 1, "tried": {"PASS": 9}, "groups": []}
        self.assertEqual(lacks(fuzz=fuzz, attest="1.2.3"), "nothing")
        self.assertIn("<td>standard, 10 cases, Attest 1.2.3</td>", self.page())
        self.assertIn("1 of standard, 10 cases, Attest 1.2.3.", self.page())
        self.assertEqual(lacks(groups=[group(script="")], outcomes={"FAIL": 3, "NOT_RUN": 5000}),
                         "5,000 cases, for want of time, random problems, scripts")
        self.assertIn("<td>standard, 5,003 cases, Attest (version not noted)</td>", self.page())

    def test_a_finding_that_there_is_no_more_is_told(self):
        self.assertEqual(self.take_in(record(TOLD)).returncode, 0)
        path = self.into / "jax-0.7.2-cpu.json"
        path.write_text(path.read_text().replace(f'"finding": "{TOLD["id"]}"', '"finding": "gone"'))
        done = self.publish()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr,
                         r"^publish: \S+/jax-0.7.2-cpu.json: jax_nn has failures of gone")

    def test_parts_of_a_record_are_told(self):
        for told, said in (("judge x --shard 1/2\njudge x --shard 2/2\njudge --join", False),
                           ("judge x --shard 1/2", True), ("judge x", False)):
            self.assertEqual(self.take_in(record(TOLD, command=told)).returncode, 0)
            self.assertIn(f"<pre>{told}", self.page())
            self.assertEqual("then impl/adapters/judge --join</pre>" in self.page(), said)

    def test_what_is_not_judged_is_told(self):
        self.assertEqual(self.take_in(record(TOLD)).returncode, 0)
        for said in ("<li>mlx 0.30.0 on CPUs: no record of mlx_attention</li>",
                     "<li>jax 0.11.2 on CPUs: no record of jax_nn, jax_nn_bf16, jax_splash</li>",
                     "<li>jax on CUDA: no record of jax_nn_cuda, jax_nn_bf16_cuda",
                     "Triton&#x27;s tutorial kernel: no package has it"):
            self.assertIn(said, self.page())
        self.assertNotRegex(self.page(), r"jax 0\.7\.2 on CPUs: no record of jax_(window|nn,)")

    def test_a_row_says_how_profiles_stand_and_why_what_is_not_judged(self):
        row = record(TOLD, unsupported={"undeclared": 9, "limits": 5, "returns no LSE": 2,
                                        "does not declare lse": 1}, profiles={
            "masks+declared": {"f32": "no failure in 5", "f16": "not met: 1 of 2"},
            "scores+declared": {"f32": "met within limits"}, "packed+declared": {"f32": "no case"},
            "double+declared": {"f64": "no failure in 0"},
            "memory+declared": {"f32": "not asked: 1 case needs memory"}})
        self.assertEqual(self.take_in(row).returncode, 0)
        self.assertIn("<td>masks: f32 no failure in 5, f16 not met: 1 of 2; scores: f32 met within "
                      "limits</td>", self.page())
        self.assertIn(">9 undeclared, 5 limits, 3 not promised</td>", self.page())

    def test_what_random_problems_found_counts_as_found_by_them(self):
        fuzz = {"seed": 1, "tried": {"PASS": 9, "FAIL": 3}, "groups": [group()]}
        self.assertEqual(self.take_in(record(TOLD, groups=[], fuzz=fuzz)).returncode, 0)
        self.assertIn("1 of 1 distinct bugs, each a thread of a tracker: 0 by the tier, 1 by "
                      "random problems alone, 0 not at all.", self.page())

    def test_what_one_bug_explains_is_not_another_found(self):
        both = record({**findings.BY_ID["onnx-softcap-order"], "versions": ["1.20.1"]}, groups=[
            group(problem="f32 q2 k5 softcap=1 causal bottom_right")])
        self.assertEqual(self.take_in(both).returncode, 0)
        kept = json.loads((self.into / "onnx-1.20.1-cpu.json").read_text())["kernels"][0]
        by = {each["finding"]: each["by"] for each in kept["recall"]}
        self.assertEqual((by["onnx-softcap-order"], by["onnx-causal-lengths"]), ("tier", ""))

    def test_a_bug_that_is_not_found_is_told(self):
        self.assertEqual(self.take_in(record(TOLD, groups=[])).returncode, 0)
        self.assertIn("0 of 1 distinct bugs, each a thread of a tracker: 0 by the tier, 0 by "
                      "random problems alone, 1 not at all.", self.page())
        self.assertIn("<td></td><td></td><td>jax 0.7.2: jax_nn</td></tr>", self.page())

    def test_a_bug_counts_once_whatever_versions_and_kernels_have_it(self):
        two = [{**record(TOLD), "kernel": "jax_nn"}, {**record(TOLD, groups=[]),
                                                      "kernel": "jax_nn_bf16"}]
        self.assertEqual(self.take_in(*two).returncode, 0)
        self.assertIn("1 of 1 distinct bugs", self.page())
        self.assertIn("for each version and kernel that has it: 1 of 2.", self.page())
        self.assertIn("<td>jax 0.7.2: jax_nn</td><td></td><td>jax 0.7.2: jax_nn_bf16</td></tr>",
                      self.page())


class PageTest(unittest.TestCase):
    """Of the tree."""

    def test_it_is_as_it_would_be_made(self):
        env = {**os.environ, "ATTEST_PROGRAM": os.environ["ATTEST"]}
        done = subprocess.run([sys.executable, "-B", str(FOLDER / "publish"), "--check"], env=env,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_explains_failures_comes_to_them(self):
        for file in PUBLISHED.glob("*.json"):
            for kernel in json.loads(file.read_text())["kernels"]:
                failed = sum(each["count"] for each in kernel["groups"]
                             if each["outcome"] == "FAIL")
                self.assertEqual(failed, kernel["outcomes"].get("FAIL", 0),
                                 f"{file.name} {kernel['kernel']}")

    def test_causes_are_of_findings_as_they_are_now(self):
        """As far as what is kept of a failure tells."""
        for file in PUBLISHED.glob("*.json"):
            about = json.loads(file.read_text())
            for kernel in about["kernels"]:
                record = {**about, "kernel": kernel["kernel"]}
                for each in kernel["groups"] + kernel.get("fuzz", {}).get("groups", []):
                    if each["outcome"] != "FAIL" or each["finding"] == findings.HELD_BACK:
                        continue
                    where = f"{file.name} {kernel['kernel']} {each['finding']}: {each['message']}"
                    finding = findings.BY_ID[each["finding"]]
                    self.assertTrue(findings.concerns(finding, record), where)
                    known = {name: each[name] for name in ("reason", "blamed", "message", "example")
                             if name != "message" or len(each[name]) < 300}  # or it is cut
                    entries = [{name: patterns for name, patterns in entry.items() if name in known}
                               for entry in finding["where"]
                               if each["reason"] not in findings.WITHOUT_NUMBERS
                               or {"reason", "message"} & set(entry)]
                    self.assertTrue(any(findings.matches(entry, known) for entry in entries), where)

    def test_each_clause_has_a_row_and_each_kernel_a_column(self):
        page = (PUBLISHED / "index.html").read_text()
        told = subprocess.run([os.environ["ATTEST"], "list", "--clauses"], capture_output=True,
                              text=True, check=True).stdout
        for clause in (line.split()[0] for line in told.splitlines()):
            self.assertEqual(len(re.findall(rf"<th>{clause} ", page)), 1, clause)
        kernels = sum(len(json.loads(file.read_text())["kernels"])
                      for file in PUBLISHED.glob("*.json"))
        self.assertGreaterEqual(kernels, 10)
        self.assertEqual(page.count("<span>"), kernels)

    @unittest.skipUnless(BROWSER, "there is no browser")
    def test_a_browser_shows_it_and_its_filter_is_in_the_address(self):
        def shown(query):
            told = subprocess.run(
                [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                 "--virtual-time-budget=5000", "--dump-dom",
                 (PUBLISHED / "index.html").as_uri() + query], capture_output=True, text=True,
                timeout=120)
            self.assertNotIn("CONSOLE", told.stderr)
            rows = re.findall(r"<tr data-words=\"[^\"]*\"([^>]*)><th>([A-Z]+-\d+) ", told.stdout)
            return [clause for attributes, clause in rows if "hidden" not in attributes]

        everything = shown("")
        self.assertGreater(len(everything), 80)
        self.assertEqual(shown("?show=empty-1"), ["EMPTY-1"])
        self.assertEqual(shown("?show=onnx"), everything)


if __name__ == "__main__":
    unittest.main()
