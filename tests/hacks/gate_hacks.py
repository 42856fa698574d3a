"""Puts published hacks to the gate: gate_hacks.py ATTEST HACKS.so FOLDER HOW [SEED]; HOW is every,
some, gpu (those that need one, beside PyTorch's flash attention), or ID,ID...

What hacks.json expects to be caught must be; what it calls undecidable may pass, and gains nothing
that is false: its results are right, in their true time. `honest` must pass. `some` takes a few that
nothing but the gate's ways catches."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Of outputs that hold numbers already, of work outside of a call, of what is kept between calls, of
# what long rows, other numbers and declarations tell.
SOME = ["honest", "keeps_output", "late_thread", "early_thread", "replays_last_call",
        "moves_tolerance", "more_threads", "zeros"]


def environment(folder):
    """In which kernels in Python run: with NumPy, and the package of this tree."""
    for python in (os.environ.get("ATTEST_PYTHON"), "/usr/bin/python3", shutil.which("python3")):
        if python and subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL,
                                     check=False).returncode == 0:
            return {**os.environ, "ATTEST_PYTHON": python,
                    "PYTHONPATH": str(folder.parents[1] / "python")}
    sys.exit("no python3 here can import numpy (Debian: python3-numpy)")


# Right on a GPU, and a little wrong.
ON_GPU = [("right", "honest"), ("narrow_rescale", "caught")]


def main():
    attest, plugin, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    hacks = json.loads((folder / "hacks.json").read_text(encoding="utf-8"))["hacks"]
    how, on_gpu = sys.argv[4], folder / "on_gpu.py"
    some = how == "some"
    asked = SOME if some else None if how in ("every", "gpu") else how.split(",")
    seed = sys.argv[5] if len(sys.argv) > 5 else "1"
    names = [("honest", f"{plugin}:honest", "honest")]
    files = {"cpp": plugin, "python": folder / "hacks.py"}
    rounds, more = "3", ["--shapes", str(folder / "small.csv")] if some else []
    if how == "gpu":
        names = [(name, f"{on_gpu}:{name}", expected) for name, expected in ON_GPU]
        files = {"gpu": on_gpu}
        flash = folder.parents[1] / "impl" / "adapters" / "torch_sdpa_cuda.py"
        # Calls enough for an interval.
        rounds, more = "8", ["--baseline", f"{flash}:torch_flash_cuda"]
    for hack in hacks:
        where = files.get(hack["where"])
        if where and (not asked or hack["id"] in asked):
            names.append((hack["id"], f"{where}:{hack['id']}", hack["expected"]))
    assert not asked or len(names) == len({*asked, "honest"}), "a hack has another name"
    wrong = []
    around = environment(folder)
    # Of all there are some that take a few steps.
    steps = "2" if some else "6"
    with tempfile.TemporaryDirectory() as out:
        for name, testee, expected in names:
            for count in ["1", steps] if expected == "caught" else [steps]:
                gate = [attest, "gate", testee, "--seed", seed, "--steps", count, "--rounds", rounds,
                        "--json", "--out", out, *more]
                told = subprocess.run(gate, stdout=subprocess.PIPE, text=True, env=around)
                verdict = json.loads(told.stdout)["verdict"] if told.stdout else "no verdict"
                if verdict == "not conformant":
                    break
            print(f"{name:24} {expected:12} {verdict}", flush=True)
            fine = {"honest": ["conformant"], "caught": ["not conformant"]}.get(
                expected, ["conformant", "not conformant"])
            if verdict not in fine:
                wrong.append(name)
    sys.exit(f"not as expected: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
