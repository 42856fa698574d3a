"""What README.md shows of runs of `attest`: parts between <!-- name --> and <!-- /name -->.

    readme.py ATTEST [--write]

Exits with 1 if a part is not what the command prints today, numbers compared to three digits, or if
the commands for impl/skeleton.c do not work.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
README = HERE.parent.parent / "README.md"
CASE = "mask/causal/bottom_right_more_keys/dtype=f32/data=normal/s=1"


def attest(*arguments):
    """What the command prints; the mutants fail, so it may exit with 1."""
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"attest {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def failure():
    """A failure as it is told: all but the worst element of each tensor."""
    told = attest("repro", CASE, "--testee", "mutant:top_left").splitlines()
    kept = [line for line in told if re.match(r"FAIL|  (problem|because|clauses|blamed|message|did you mean) ", line)]
    return "".join(f"    {line}\n" for line in [f"$ attest repro {CASE} --testee mutant:top_left", *kept])


def diagnosis():
    """What a run of that case's entry ends with."""
    entry = "/".join(CASE.split("/")[:3])
    with tempfile.TemporaryDirectory() as folder:
        told = attest("run", "--testee", "mutant:top_left", "--cases", entry, "--out", folder)
    lines = told[told.index("Did you mean\n"):].splitlines()
    return "".join(f"    {line}\n" for line in lines)


def blind():
    """The rules of other projects, each on its own class of inputs, that a kernel passes which
    looks at neither Q nor K."""
    passed, judged = [], 0
    with tempfile.TemporaryDirectory() as folder:
        def judges(cases):
            attest("criteria", "--testee", "mutant:scores_ignored", "--inputs", "ours", "--from",
                   str(HERE / "blind.json"), "--cases", cases, "--jobs", "1", "--out", folder)
            found = json.loads((pathlib.Path(folder) / "criteria.json").read_text())
            scores = {judge["name"]: judge["scores"] for judge in found["sides"][0]["judges"]}
            return found["judges"], scores

        rules, _ = judges("**/data=normal/**")
        classes = {rule["data"] for rule in rules} - {""}
        by_class = {data: judges(f"**/data={data}/**")[1] for data in classes}
        for rule in rules:
            if not rule["data"] or "bf16" not in rule["dtypes"]:
                continue
            judged += 1
            if by_class[rule["data"]][rule["name"]]["bf16"]["missed_names"]:
                passed.append(rule["name"])
        if any(score["Attest"]["bf16"]["missed_names"] for score in by_class.values()):
            raise SystemExit("Attest passes a kernel that looks at neither Q nor K")
    sizes = json.loads((HERE / "blind.json").read_text())["defaults"]
    return (f"| pass it, of {judged} rules for bf16, on {sizes['query_len']} queries and "
            f"{sizes['key_len']} keys of {sizes['head_dim']} channels | fails it |\n|---|---|\n"
            f"| {', '.join(passed)} | Attest, on each of these inputs |\n")


def one_line():
    """assert_close in a test, and what it says; None where no python3 has NumPy."""
    code = (HERE / "one_line.py").read_text()
    library = pathlib.Path(sys.argv[1]).resolve().parent.parent / "lib" / "libattest.so.0"
    environment = {**os.environ, "ATTEST_LIBRARY": str(library),
                   "PYTHONPATH": str(README.parent / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    pythons = [python for python in ("/usr/bin/python3", sys.executable)
               if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0]
    if not pythons:
        print("skipped: no python3 has NumPy, which README.md, one_line, needs")
        return None
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run([pythons[0], "-c", code], capture_output=True, text=True,
                              env={**environment, "TMPDIR": folder}).stderr
        told = re.sub(rf"{folder}/attest-\w+", "/tmp/attest-ck2x8f", told)
    if "AssertionError: " not in told:
        raise SystemExit(told)
    lines = code[code.index("# ----\n"):].splitlines()[1:]
    lines += ["", *told[told.index("AssertionError: "):].splitlines()]
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def compile_the_skeleton(text):
    """The commands that README.md gives for impl/skeleton.c do what it says."""
    with tempfile.TemporaryDirectory() as folder:
        command = re.search("^    (cc .*) -o skeleton.so (.*)$", text, re.M)
        if not command:
            raise SystemExit("README.md does not say how impl/skeleton.c is compiled")
        subprocess.run(f"{command[1]} -o {folder}/skeleton.so {command[2]}", shell=True, check=True,
                       cwd=README.parent)
        told = attest("run", "--testee", f"{folder}/skeleton.so", "--tier", "smoke",
                      "--out", folder)
        if not re.search("^No failure in [1-9]", told, re.M):
            raise SystemExit(told)


def rounded(text):
    return re.sub(r"-?\d+\.\d+(e[+-]?\d+)?", lambda number: f"{float(number[0]):.3g}", text)


def main():
    text, stale = README.read_text(), []
    compile_the_skeleton(text)
    makers = {"failure": failure, "one_line": one_line, "diagnosis": diagnosis, "blind": blind}
    for name, make in makers.items():
        found = re.search(f"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.S)
        if not found:
            raise SystemExit(f"README.md has no part {name}")
        part = make()
        if part is not None and rounded(found[1]) != rounded(part):
            stale.append(f"README.md, {name}, is:\n{found[1]}and should be:\n{part}")
            text = text[:found.start(1)] + part + text[found.end(1):]
    if "--write" in sys.argv:
        README.write_text(text)
    elif stale:
        raise SystemExit("\n".join(stale))


main()
