#!/usr/bin/env python3
"""Compares a build for this machine with one that an emulator runs.

    compare.py NATIVE_BUILD OTHER_BUILD EMULATOR...

Both list the cases of all tiers, print the numbers of the smoke tier (bits.cpp) and judge bundled
kernels on it. Exit code 1 if anything differs that must not; the table says what, and how much.
"""
import array
import collections
import json
import math
import pathlib
import subprocess
import sys

KERNELS = ["naive", "fa2"]


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

    def numbers(self, cases):
        """What bits.cpp prints: by case and name."""
        output = self.run("tests/aarch64_bits", cases)
        tensors, at = {}, 0
        while at < len(output):
            end = output.index(b"\n", at)
            case, name, count = output[at:end].decode().rsplit(" ", 2)
            at = end + 1 + 8 * int(count)
            tensors[case, name] = array.array("d", output[end + 1 : at])
        return tensors

    def verdicts(self, out):
        """Outcome and reason, by testee and case."""
        testees = [word for kernel in KERNELS for word in ("--testee", kernel)]
        self.run("bin/attest", "run", "--tier", "smoke", "--profile", "none", "--out", str(out),
                 *testees, codes=(0, 1))
        with open(out / "results.jsonl") as record:
            lines = [json.loads(line) for line in record]
        return {(line["testee"], line["case"]): f"{line['outcome']} {line.get('reason', '')}".strip()
                for line in lines if line["kind"] == "verdict"}


def share_of_bound(name, case, i, one, other):
    """How far apart two exact values are, in bounds of the first."""
    tensor = name.split(":")[1]

    def exact(tensors):
        rest = tensors.get((case, f"rest:{tensor}"))
        return tensors[case, f"value:{tensor}"][i], rest[i] if rest else 0.0

    (a, a_rest), (b, b_rest) = exact(one), exact(other)
    apart = abs((a - b) + (a_rest - b_rest))
    return apart / one[case, f"bound:{tensor}"][i] if apart else 0.0


def compare_numbers(one, other):
    """Rows of the table: what, how many numbers, how many differ, how much at most."""
    missing = set(one) ^ set(other)
    rows = collections.defaultdict(lambda: [0, 0, 0.0])
    for case, name in sorted(set(one) & set(other)):
        a, b = one[case, name], other[case, name]
        kind = name.split(":")[0]
        wide = "dtype=f64" in case and kind != "input"
        row = rows[kind + (" of f64" if wide else "")]
        row[0] += len(a)
        if a.tobytes() == b.tobytes():
            continue
        for i, (x, y) in enumerate(zip(a, b)):
            if x == y or math.isnan(x) and math.isnan(y):
                continue
            row[1] += 1
            if kind in ("value", "rest"):
                much = share_of_bound(name, case, i, one, other)
            else:
                much = abs(x - y) / abs(x) if x else math.inf
            row[2] = max(row[2], much)
        if len(a) != len(b):
            row[1] += abs(len(a) - len(b))
    return missing, rows


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    native, other = Build(sys.argv[1]), Build(sys.argv[2], sys.argv[3:])
    root = pathlib.Path(__file__).parents[2]
    a, b = native.numbers(root / "cases"), other.numbers(root / "cases")
    missing, rows = compare_numbers(a, b)
    print(len(missing), dict(rows))


if __name__ == "__main__":
    main()
