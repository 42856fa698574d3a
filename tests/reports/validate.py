"""Holds real reports to their schemas and parsers: validate.py SPEC_FOLDER ATTEST [WRITE_SAMPLES]

Given the samples' writer: report.json and every line of results.jsonl must meet their schemas, and mutated ones must not;
junit.xml must be well-formed and count right; index.html must balance, fetch nothing and hold no
script but those that its policy names. diagnosis.json of a run of ATTEST on a mutant must meet its schema. So must what its gate
says of a right kernel and a wrong one, alone and side by side: without the samples that is all.
"""
import base64
import copy
import hashlib
import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import jsonschema

VOID = {"meta", "br", "hr", "img", "link", "input"}


def validators(spec):
    record = json.loads((spec / "record.schema.json").read_text())
    report = json.loads((spec / "report.schema.json").read_text())
    store = {"record.schema.json": record, "report.schema.json": report}
    for schema in (record, report):
        jsonschema.Draft202012Validator.check_schema(schema)
    return [
        jsonschema.Draft202012Validator(
            schema, resolver=jsonschema.RefResolver(schema["$id"], schema, store=store)
        )
        for schema in (record, report)
    ]


def strict(text):
    """JSON without the NaN and Infinity that Python would let pass."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def mutations(report):
    """The report with one thing wrong each."""

    def mutated(change):
        wrong = copy.deepcopy(report)
        change(wrong)
        return wrong

    yield "a missing key", mutated(lambda r: r.pop("conclusion"))
    yield "a digest that is none", mutated(lambda r: r["header"]["cases"].update(digest="12"))
    yield "a testee without isolation", mutated(lambda r: r["header"]["testees"][0].pop("isolation"))
    yield "notes that are text", mutated(lambda r: r.update(notes="none"))
    yield "an unknown key", mutated(lambda r: r.update(verdict="fine"))
    yield "an unknown conclusion", mutated(lambda r: r.update(conclusion="mostly fine"))
    yield "an unknown outcome", mutated(lambda r: r["counts"].update(PASSED=3))
    yield "a negative count", mutated(lambda r: r["counts"].update(PASS=-1))
    yield "a count that is text", mutated(lambda r: r["testees"][0]["counts"].update(PASS="3"))
    yield "another schema", mutated(lambda r: r["header"].update(schema=1))
    yield "a failure that passed", mutated(lambda r: r["failures"][0].update(outcome="PASS"))
    yield "a failure without reason", mutated(lambda r: r["failures"][0].update(reason=""))
    yield "an unknown reason", mutated(lambda r: r["failures"][0].update(reason="bad luck"))
    yield "a failure without repro", mutated(lambda r: r["failures"][0].pop("repro"))
    yield "a ratio that is text", mutated(
        lambda r: r["testees"][0]["worst"][0]["evidence"].update(max_ratio="large")
    )
    yield "a clause without counts", mutated(
        lambda r: r["testees"][0]["clauses"]["MASK-2"].pop("counts")
    )
    yield "a profile with no list", mutated(lambda r: r["profiles"][0].update({"with": "exp"}))
    yield "a profile without words", mutated(lambda r: r["profiles"][0].pop("standing"))
    yield "a profile with more", mutated(lambda r: r["profiles"][0].update(surprise=1))
    yield "a profile without dtype", mutated(lambda r: r["profiles"][0].pop("dtype"))


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.problems, self.ids, self.targets, self.text = [], [], [], [], []
        self.policy, self.script = "", None

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            data = ("type", "application/base64") in attributes
            self.script = None if data else ""
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attributes:
            self.policy = dict(attributes)["content"]
        if tag in {"img", "link", "iframe", "object", "embed", "base", "form"}:
            self.problems.append(f"<{tag}>")
        for name, value in attributes:
            if name.startswith("on") or name in {"src", "srcset", "action"}:
                self.problems.append(f"{tag} {name}={value}")
            if name == "href":
                self.targets.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes what is not open")
        if tag == "script" and self.script is not None:
            digest = base64.b64encode(hashlib.sha256(self.script.encode()).digest()).decode()
            if f"'sha256-{digest}'" not in self.policy:
                self.problems.append(f"a script that the policy does not name: {self.script[:80]}")
            self.script = None

    def handle_data(self, data):
        if self.script is not None:
            self.script += data
        elif self.open and self.open[-1] not in {"script", "style"}:
            self.text.append(data)


def check_html(text):
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, f"never closed: {page.open}"
    assert not page.problems, page.problems
    assert len(page.ids) == len(set(page.ids)), "an id occurs twice"
    for target in page.targets:
        place = target[1:].split("?")[0]
        assert target.startswith("#") and place in page.ids, f"a link leads nowhere: {target}"
    style = text[text.index("<style>"):text.index("</style>")]
    assert "@import" not in style and "url(" not in style, "the style sheet fetches something"
    return "".join(page.text)


def check_junit(text, lines, state):
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    cases = root.findall("testsuite/testcase")
    conclusion = [c for c in cases if c.get("classname") == "attest"]
    verdicts = [line for line in lines if line["kind"] == "verdict"]
    assert len(cases) == len(verdicts) + len(conclusion)
    for holder in [root, *root.findall("testsuite")]:
        assert int(holder.get("tests")) == len(list(holder.iter("testcase")))
        for count, tag in [("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]:
            found = len(list(holder.iter(tag)))
            assert int(holder.get(count)) == found, (holder.get("name"), count)
    footer = lines[-1] if lines[-1]["kind"] == "footer" else None
    red = int(root.get("failures")) + int(root.get("errors")) > 0
    good = footer and footer["conclusion"] in ("conformant", "no failure")
    assert red or (good and state == "complete"), "a run that is not conformant looks green"


def check_diagnosis(spec, attest):
    schema = json.loads((spec / "diagnosis.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    with tempfile.TemporaryDirectory() as folder:
        run = [attest, "run", "--testee", "mutant:scale_squared", "--cases", "mask/causal/square",
               "--out", folder]
        assert subprocess.run(run, stdout=subprocess.DEVNULL).returncode == 1, "the mutant passed"
        diagnosis = strict((pathlib.Path(folder) / "diagnosis.json").read_text(encoding="utf-8"))
        page = (pathlib.Path(folder) / "index.html").read_text(encoding="utf-8")
    validator.validate(diagnosis)
    groups = diagnosis["groups"]
    assert any("the scale twice" in group["headline"] for group in groups), groups
    assert "the scale twice" in check_html(page), "the page does not tell the diagnosis"

    def rejects(change):
        wrong = copy.deepcopy(diagnosis)
        change(wrong["groups"][0])
        assert not validator.is_valid(wrong)

    for key in groups[0]:
        rejects(lambda group: group.pop(key))
    rejects(lambda group: group.update(surprise=1))
    rejects(lambda group: group.update(outcome="PASS"))
    rejects(lambda group: group["did_you_mean"][0].update(clause="the scale"))
    rejects(lambda group: group["did_you_mean"][0].pop("rows"))


def check_gate(spec, attest):
    schema = json.loads((spec / "gate.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    with tempfile.TemporaryDirectory() as folder:
        shapes = pathlib.Path(folder) / "shapes.csv"
        shapes.write_text("1,2,1,64,64,16,16,causal\n")
        for testee, code in [("fa2", 0), ("mutant:scale_squared", 1)]:
            gate = [attest, "gate", testee, "--baseline", "naive", "--shapes", str(shapes), "--steps",
                    "1", "--rounds", "2", "--out", folder, "--json"]
            told = subprocess.run(gate, stdout=subprocess.PIPE, text=True)
            assert told.returncode == code, told.stdout
            said = strict(told.stdout)
            validator.validate(said)
            for key in schema["required"]:
                assert not validator.is_valid({k: v for k, v in said.items() if k != key}), key
            assert not validator.is_valid({**said, "surprise": 1})
            assert bool(said["counterexamples"]) == (code == 1)
            assert ("mean_ratio" in said) == (code == 0)
        check_rank(spec, attest, pathlib.Path(folder), schema)


def check_rank(spec, attest, folder, of_gate):
    schema = json.loads((spec / "rank.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    store = {"gate.schema.json": of_gate, "rank.schema.json": schema}
    validator = jsonschema.Draft202012Validator(
        schema, resolver=jsonschema.RefResolver(schema["$id"], schema, store=store)
    )
    (folder / "no_kernel.py").write_text("raise RuntimeError('<script>no')\n")
    rank = [attest, "rank", "fa2", "mutant:scale_squared", str(folder), "--shapes",
            str(folder / "shapes.csv"), "--steps", "1", "--rounds", "3", "--out", str(folder / "out")]
    told = subprocess.run(rank, stdout=subprocess.PIPE, text=True)
    assert told.returncode == 1, told.stdout
    ranking = strict((folder / "out/rank.json").read_text(encoding="utf-8"))
    validator.validate(ranking)
    assert [k["kernel"] for k in ranking["kernels"]] == ["fa2", "mutant:scale_squared",
                                                         "no_kernel.py"]
    for key in schema["required"]:
        assert not validator.is_valid({k: v for k, v in ranking.items() if k != key}), key
    for key in ("place", "speed", "gate"):
        wrong = copy.deepcopy(ranking)
        wrong["kernels"][0].pop(key)
        assert not validator.is_valid(wrong), key
    page = check_html((folder / "out/index.html").read_text(encoding="utf-8"))
    why = ranking["kernels"][2]["error"].split("\n")[0]
    for part in (ranking["sentence"], "the scale twice", why):
        assert part in page, f"the page does not tell: {part}"


def check_samples(spec, write_samples):
    of_line, of_report = validators(spec)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([write_samples, folder], check=True)
        folders = sorted(pathlib.Path(folder).iterdir())
        assert len(folders) >= 7, "the samples were not written"
        for sample in folders:
            print("checking", sample.name)
            report = strict((sample / "report.json").read_text(encoding="utf-8"))
            of_report.validate(report)
            text = (sample / "results.jsonl").read_text(encoding="utf-8")
            lines = [strict(line) for line in text.split("\n") if line]
            for line in lines:
                of_line.validate(line)
                assert not of_line.is_valid({**line, "surprise": 1}), "an unknown key is accepted"
                assert not of_line.is_valid({k: v for k, v in line.items() if k != "kind"})
            check_junit((sample / "junit.xml").read_text(encoding="utf-8"), lines, report["state"])
            page = check_html((sample / "index.html").read_text(encoding="utf-8"))
            assert report["sentence"] in page, "the page does not tell the conclusion"
            (sample / "summary.md").read_text(encoding="utf-8")
            (sample / "summary.txt").read_text(encoding="utf-8")
            if report["conclusion"] != "conformant":
                assert "Conformant:" not in page

        report = strict((pathlib.Path(folder) / "realistic/report.json").read_text())
        for what, wrong in mutations(report):
            assert not of_report.is_valid(wrong), f"the schema accepts {what}"
            print("rejected:", what)


def main():
    spec, attest, *samples = sys.argv[1:]
    if samples:
        check_diagnosis(pathlib.Path(spec), attest)
        check_samples(pathlib.Path(spec), samples[0])
    else:
        check_gate(pathlib.Path(spec), attest)


if __name__ == "__main__":
    main()
