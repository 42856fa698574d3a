"""What README.md shows of runs of `attest`: parts between <!-- name --> and <!-- /name -->.

    readme.py ATTEST [--write]

Exits with 1 if a part is not what the command prints today, numbers compared to three digits, if
the commands for impl/skeleton.c or the ten lines of C++ do not work, or if the synopsis has other options than --help.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
README = HERE.parent.parent / "README.md"
CASE = "mask/causal/bottom_right_more_keys/dtype=f32/data=normal/s=1"


FILES, JOBS = 256, 64  # that may be open; that are asked for


def attest(*arguments):
    """What the command prints; the mutants fail, so it may exit with 1."""
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"attest {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def indented(lines):
    return "".join(f"    {line}\n" for line in lines)


def failure():
    """A failure as it is told, but for the worst element of each tensor."""
    told = attest("repro", CASE, "--testee", "mutant:top_left").splitlines()
    kept = [line for line in told if " worst at " not in line]
    return indented([f"$ attest repro {CASE} --testee mutant:top_left", *kept])


def diagnosis():
    """What a run of that case's entry ends with."""
    entry = "/".join(CASE.split("/")[:3])
    with tempfile.TemporaryDirectory() as folder:
        told = attest("run", "--testee", "mutant:top_left", "--cases", entry, "--out", folder)
    return indented(told[told.index("Did you mean\n"):].splitlines())


def check():
    """What a check says of the glue."""
    told = attest("check", "mutant:top_left")
    lines = told[told.index("Is the glue"):told.index("\n\nWhat the declaration")].splitlines()
    return indented(["$ attest check mutant:top_left", *(line for line in lines if line)])


def find():
    """What a search ends with, but for what a failure of `failure` shows already."""
    command = ["fuzz", "--testee", "mutant:window_exclusive", "--seed", "1", "--count", "5000"]
    with tempfile.TemporaryDirectory() as folder:
        told = attest(*command, "--jobs", "1", "--out", folder)
        told = told.replace(f"{folder}/", "reports/out/")
    told = re.sub(r"--testee \S*(?=mutants.so)", "--testee .../", told)
    kept = re.findall(r"^(?:FAIL|    attest repro ).*$", told, re.M)
    return indented([f"$ attest {' '.join(command)}", *kept])


def jobs():
    """What is said where few files may be open."""
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    command = ["run", "--testee", "fa2", "--jobs", str(JOBS)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.argv[1], *command, "--cases", CASE, "--out", folder],
                              capture_output=True, text=True, preexec_fn=few_files)
    kept = [line for line in done.stderr.splitlines() if " jobs " in line]
    return indented([f"$ ulimit -n {FILES}; attest {' '.join(command)}", *kept])


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


def python_with_numpy():
    """Its path and environment; None where there is none."""
    library = pathlib.Path(sys.argv[1]).resolve().parent.parent / "lib" / "libattest.so.0"
    for python in ("/usr/bin/python3", sys.executable):
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python, {**os.environ, "ATTEST_LIBRARY": str(library), "ATTEST_PYTHON": python,
                            "PYTHONPATH": str(README.parent / "python"),
                            "PYTHONDONTWRITEBYTECODE": "1"}
    print("skipped: no python3 has NumPy, which parts of README.md need")
    return None


def shown(code):
    """What of an example stands behind its dashes."""
    return code[code.index("# ----\n"):].splitlines()[1:]


def kernel():
    """A kernel in Python, and what comes of it."""
    found = python_with_numpy()
    if not found:
        return None
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        options = ["--tier", "smoke", "--profile", "none"]
        told = subprocess.run([sys.argv[1], "run", str(HERE / "mine.py"), *options, "--out", folder],
                              capture_output=True, text=True, env=found[1])
    lines = [*shown((HERE / "mine.py").read_text()), "",
             f"$ attest run mine.py {' '.join(options)}",
             *re.findall("^No failure .*", told.stdout, re.M)]
    if told.returncode != 0:
        raise SystemExit(told.stdout + told.stderr)
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def one_line():
    """assert_close in a test, and what it says; None where no python3 has NumPy."""
    code, found = (HERE / "one_line.py").read_text(), python_with_numpy()
    if not found:
        return None
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run([found[0], "-c", code], capture_output=True, text=True,
                              env={**found[1], "TMPDIR": folder}).stderr
        told = re.sub(rf"{folder}/attest-\w+", "/tmp/attest-ck2x8f", told)
    if "AssertionError: " not in told:
        raise SystemExit(told)
    lines = [*shown(code), "", *told[told.index("AssertionError: "):].splitlines()]
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def compile_the_skeleton(text):
    """The commands that README.md gives for impl/skeleton.c do what it says."""
    with tempfile.TemporaryDirectory() as folder:
        command = re.search("^    (cc .*) -o skeleton.so (.*)$", text, re.M)
        if not command:
            raise SystemExit("README.md does not say how impl/skeleton.c is compiled")
        subprocess.run(f"{command[1]} -Wall -Wextra -Wpedantic -Werror -o {folder}/skeleton.so "
                       f"{command[2]}", shell=True, check=True, cwd=README.parent)
        told = attest("run", "--testee", f"{folder}/skeleton.so", "--tier", "smoke",
                      "--out", folder)
        if not re.search("^No failure in [1-9]", told, re.M):
            raise SystemExit(told)


def compile_the_glue(text):
    """The ten lines that README.md has for a function of C++ are all that it takes."""
    glue = re.search("<!-- glue -->\n(.*?)<!-- /glue -->", text, re.S)[1].replace("\n    ", "\n").strip()
    call = glue[glue.index("  my_flash("):glue.index("  attest::scatter(")]
    if len(glue.splitlines()) - len(call.splitlines()) > 10:
        raise SystemExit(f"README.md says ten lines, and has\n{glue}")
    include = pathlib.Path(sys.argv[1]).resolve().parent.parent / "include"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "mine.cpp"
        source.write_text(f'#include "{HERE}/my_flash.h"\n{glue}\n')
        subprocess.run(["c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared",
                        "-fPIC", f"-I{include}", source, "-o", f"{folder}/mine.so"], check=True)
        told = attest("run", "--testee", f"{folder}/mine.so", "--tier", "smoke", "--out", folder)
        if not re.search("^No failure in [1-9]", told, re.M):
            raise SystemExit(told)


def options_in(text):
    return set(re.findall(r"--[a-z][a-z-]*", text))


def compare_the_synopsis(text):
    """Each command there is, with the options that its --help lists; "..." are those of its line."""
    chapter = text[text.index("\n## The command\n"):]
    block = re.search(r"\n\n((?:    .*\n)+)", chapter)[1]
    entries = {}
    for line in block.splitlines():
        name = re.match("    (?:attest ([a-z]+)|([.]{3})) ", line)
        if name:
            entry = name[1] or name[2]
            entries[entry] = ""
            line = line[name.end():]
        entries[entry] += line + "\n"
    rest = options_in(entries.pop("...", ""))
    there = set(re.findall("^  ([a-z]+) ", attest("--help").split("Subcommands:")[1], re.M))
    wrong = [f"README.md has the commands {sorted(entries)}, there are {sorted(there)}"]
    if set(entries) == there:
        wrong.pop()
    for command in there & set(entries):
        said = options_in(entries[command])
        if entries[command].endswith(" ...\n"):
            said |= rest
        takes = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", attest(command, "--help"), re.M))
        takes.remove("--help")
        if said != takes:
            wrong.append(f"README.md, attest {command}: lacks {sorted(takes - said)}, has "
                         f"{sorted(said - takes)}, which it doesn't take")
    if wrong:
        raise SystemExit("\n".join(wrong))


def rounded(text):
    return re.sub(r"-?\d+\.\d+(e[+-]?\d+)?", lambda number: f"{float(number[0]):.3g}", text)


def main():
    text, stale = README.read_text(), []
    compile_the_skeleton(text)
    compile_the_glue(text)
    compare_the_synopsis(text)
    for part_of in (failure, one_line, check, kernel, diagnosis, blind, find, jobs):
        name = part_of.__name__
        found = re.search(f"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.S)
        if not found:
            raise SystemExit(f"README.md has no part {name}")
        part = part_of()
        if part is not None and rounded(found[1]) != rounded(part):
            stale.append(f"README.md, {name}, is:\n{found[1]}and should be:\n{part}")
            text = text[:found.start(1)] + part + text[found.end(1):]
    if "--write" in sys.argv:
        README.write_text(text)
    elif stale:
        raise SystemExit("\n".join(stale))


if __name__ == "__main__":
    main()
