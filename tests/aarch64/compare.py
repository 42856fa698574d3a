#!/usr/bin/env python3
"""Compares a build for this machine with one that an emulator runs.

    compare.py NATIVE_BUILD OTHER_BUILD EMULATOR...

Both list the cases of all tiers, print the numbers of the smoke tier (bits.cpp) and judge kernels
on it. Exit code 1 if anything differs that must not; the table says what, and how much.
"""
import array
import json
import math
import pathlib
import subprocess
import sys

CASES = pathlib.Path(__file__).parents[2] / "cases"
# Two that are right, and one each that is beyond its bounds, returns NaN, and crashes.
TESTEES = ["naive", "fa2", "mutant:window_exclusive", "mutant:page_tail", "mutant:dense_page_table"]
# f64 is judged in long double, whose width is the processor's (NUMERICS.md, section 5): its roundoff
# is at most this share of f64's own, and so is what it makes of values and bounds.
OF_LONG_DOUBLE = 2**-11


class Build:
    def __init__(self, folder, emulator=()):
        self.folder = pathlib.Path(folder)
        self.emulator = list(emulator)

    def run(self, program, *arguments, codes=(0,)):
        path = self.folder / program
        if not path.exists():
            sys.exit(f"compare.py: {path} is not built")
        done = subprocess.run([*self.emulator, path, *arguments], stdout=subprocess.PIPE)
        if done.returncode not in codes:
            sys.exit(f"compare.py: {path} {' '.join(arguments)}: exit code {done.returncode}")
        return done.stdout

    def cases(self):
        cases = json.loads(self.run("bin/attest", "list", "--json", "--tier", "full"))
        return {case["case"]: case for case in cases}

    def numbers(self):
        """What bits.cpp prints: by case and name."""
        output = self.run("tests/aarch64_bits", CASES)
        tensors, at = {}, 0
        while at < len(output):
            end = output.index(b"\n", at)
            case, name, count = output[at:end].decode().rsplit(" ", 2)
            at = end + 1 + 8 * int(count)
            tensors[case, name] = array.array("d", output[end + 1 : at])
        return tensors

    def verdicts(self, out):
        """Outcome and reason, by testee and case."""
        testees = [word for name in TESTEES for word in ("--testee", name)]
        self.run("bin/attest", "run", "--tier", "smoke", "--profile", "none", "--out", str(out),
                 *testees, codes=(0, 1))
        with open(out / "results.jsonl") as record:
            lines = [json.loads(line) for line in record]
        return {(line["testee"], line["case"]): f"{line['outcome']} {line.get('reason', '')}".strip()
                for line in lines if line["kind"] == "verdict"}


def signed(x):
    return x, math.copysign(1, x)


def exact_at(tensors, case, tensor, i):
    rest = tensors.get((case, f"rest:{tensor}"))
    return tensors[case, f"value:{tensor}"][i], rest[i] if rest else 0.0


def apart(one, other, case, name, i):
    """How far two numbers are apart: exact values in bounds, all else as a share of the first."""
    kind, tensor = name.split(":")
    if kind not in ("value", "rest"):
        a, b = one[case, name][i], other[case, name][i]
        return abs(a - b) / abs(a) if a else math.inf
    (a, a_rest), (b, b_rest) = (exact_at(tensors, case, tensor, i) for tensors in (one, other))
    distance = abs((a - b) + (a_rest - b_rest))
    bound = one[case, f"bound:{tensor}"][i]
    return distance / bound if bound else math.inf if distance else 0.0


class Row:
    """Of the table: how many of what are compared, how many differ, and how far at most."""

    def __init__(self, allowed=0.0, unit=""):
        self.allowed, self.unit = allowed, unit
        self.compared = self.different = 0
        self.most = 0.0

    def add(self, same, most=math.inf):
        self.compared += 1
        self.different += not same
        if not same:
            self.most = max(self.most, math.inf if math.isnan(most) else most)

    def holds(self):
        if self.compared == 0:
            return False
        return self.different == 0 or 0 < self.allowed and self.most <= self.allowed


def row_of(case, name):
    kind = name.split(":")[0]
    if kind == "input":
        return "inputs", Row()
    if "dtype=f64" not in case:
        return ("bounds" if kind in ("bound", "recommended") else "exact values"), Row()
    if kind in ("bound", "recommended"):
        return "bounds of f64", Row(OF_LONG_DOUBLE, " of themselves")
    return "exact values of f64", Row(OF_LONG_DOUBLE, " of their bounds")


def compare_numbers(one, other, rows):
    for key in sorted(one.keys() | other.keys()):
        case, name = key
        title, row = row_of(case, name)
        row = rows.setdefault(title, row)
        a, b = one.get(key, []), other.get(key, [])
        if len(a) != len(b):
            row.add(False)
            continue
        if a.tobytes() == b.tobytes():
            row.compared += len(a)
            continue
        for i, (x, y) in enumerate(zip(a, b)):
            same = math.isnan(x) and math.isnan(y) or signed(x) == signed(y)
            row.add(same, 0.0 if same else apart(one, other, case, name, i))


def compare(title, one, other, rows):
    row = rows.setdefault(title, Row())
    for key in sorted(one.keys() | other.keys()):
        same = one.get(key) == other.get(key)
        row.add(same)
        if not same:
            print(f"{title}: {key}: {one.get(key)} here, {other.get(key)} there")


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    native, other = Build(sys.argv[1]), Build(sys.argv[2], sys.argv[3:])
    rows = {}
    compare("cases", native.cases(), other.cases(), rows)
    compare_numbers(native.numbers(), other.numbers(), rows)
    out = other.folder / "tests" / "aarch64"
    compare("verdicts", native.verdicts(out / "native"), other.verdicts(out / "emulated"), rows)

    table = [f"{'':24}{'compared':>10}{'different':>11}"]
    for title, row in rows.items():
        how = f"  by at most {row.most:.2g}{row.unit}" if row.different else ""
        if row.different and row.allowed:
            how += f"; {row.allowed:.2g} may be"
        table.append(f"{title:24}{row.compared:10}{row.different:11}{how}")
    text = "\n".join(table) + "\n"
    print(text, end="")
    (out / "table.txt").write_text(text)
    sys.exit(0 if all(row.holds() for row in rows.values()) else 1)


if __name__ == "__main__":
    main()
