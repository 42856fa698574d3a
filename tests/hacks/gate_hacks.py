"""Puts published hacks to the gate: gate_hacks.py ATTEST HACKS.so FOLDER every|some [SEED].

What hacks.json expects to be caught must be; what it calls undecidable may pass, and gains nothing
that is false: its results are right, in their true time. `honest` must pass. `some` takes a few that
nothing but the gate's ways catches."""
import json
import pathlib
import subprocess
import sys
import tempfile

# Of outputs that hold numbers already, of work outside of a call, of what is kept between calls, of
# what long rows, other numbers and declarations tell.
SOME = ["honest", "keeps_output", "late_thread", "early_thread", "replays_last_call",
        "moves_tolerance", "more_threads", "zeros"]


def main():
    attest, plugin, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    hacks = json.loads((folder / "hacks.json").read_text(encoding="utf-8"))["hacks"]
    some = sys.argv[4] == "some"
    seed = sys.argv[5] if len(sys.argv) > 5 else "1"
    names = [("honest", f"{plugin}:honest", "honest")]
    for hack in hacks:
        where = {"cpp": plugin, "python": folder / "hacks.py"}.get(hack["where"])
        if where and (not some or hack["id"] in SOME):
            names.append((hack["id"], f"{where}:{hack['id']}", hack["expected"]))
    assert not some or len(names) == len(SOME), "a hack has another name"
    wrong = []
    with tempfile.TemporaryDirectory() as out:
        for name, testee, expected in names:
            gate = [attest, "gate", testee, "--seed", seed, "--steps", "2", "--rounds", "3", "--json",
                    "--out", out, *(["--shapes", str(folder / "small.csv")] if some else [])]
            told = subprocess.run(gate, stdout=subprocess.PIPE, text=True)
            verdict = json.loads(told.stdout)["verdict"] if told.stdout else "no verdict"
            print(f"{name:24} {expected:12} {verdict}", flush=True)
            fine = {"honest": ["conformant"], "caught": ["not conformant"]}.get(
                expected, ["conformant", "not conformant"])
            if verdict not in fine:
                wrong.append(name)
    sys.exit(f"not as expected: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
