"""attest vectors, a script, attest judge: the verdicts that the same arithmetic has as a worker.

ATTEST names the command.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import numpy_kernel

HERE = pathlib.Path(__file__).resolve().parent
ATTEST = os.environ["ATTEST"]
FEATURES = ",".join(numpy_kernel.DESCRIPTION["features"])
TAKES_CALLS = re.compile(r"(CALL|DET|LAW|MEM|SAFE|SCHED)-|LAYOUT-[1-4]$|DROP-3$|NUM-3$")


def attest(*words):
    """Exit code, and all that it prints."""
    ran = subprocess.run([ATTEST, *map(str, words)], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def record(folder):
    """The header, the verdicts by their cases, the footer."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    verdicts = {line["case"]: line for line in lines if line["kind"] == "verdict"}
    return lines[0], verdicts, lines[-1]


def load(file):
    about = json.loads(file.read_text())
    tensors = {name: np.load(file.parent / t["file"]) for name, t in about["inputs"].items()}
    return about, tensors


def compute(folder, fault=None):
    """What README.md in the folder says; how many problems there are."""
    files = list(folder.rglob("problem.json"))
    for file in files:
        about, tensors = load(file)
        with np.errstate(invalid="ignore"):  # NaN lies hidden
            outputs = numpy_kernel.attend(about["problem"], tensors, fault)
        for name, array in outputs.items():
            np.save(file.parent / about["outputs"][name]["file"], array)
    return len(files)


class VectorsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.vectors, self.out = self.root / "vectors", self.root / "out"
        self.description = self.root / "numpy.json"
        self.description.write_text(json.dumps(numpy_kernel.DESCRIPTION))

    def write(self, *words):
        code, told = attest("vectors", self.vectors, "--description", self.description, *words)
        self.assertEqual(code, 0, told)
        return told

    def judge(self, *words):
        code, told = attest("judge", self.vectors, "--out", self.out, *words)
        return code, told, record(self.out)[1]

    def one(self):
        """The verdict on a folder of one case, and what is told."""
        code, told, verdicts = self.judge()
        self.assertEqual(len(verdicts), 1, told)
        return code, told, next(iter(verdicts.values()))

    def test_same_verdicts_as_the_worker(self):
        for fault in [None, *numpy_kernel.FAULTS]:
            with self.subTest(fault=fault):
                shutil.rmtree(self.vectors, ignore_errors=True)
                told = self.write("--tier", "smoke")
                self.assertRegex(told, r"attest: \d+ problems of \d+ cases selected, about [\d.]+ MiB")
                count = compute(self.vectors, fault)
                self.assertIn(f"{count} problems", told)
                code, told, judged = self.judge()
                worker = " ".join([sys.executable, "-B", str(HERE / "numpy_kernel.py"), fault or ""])
                ran_code, ran_told = attest("run", "--testee", "exec:" + worker, "--tier", "smoke",
                                            "--profile", "none", "--out", self.root / "ran")
                ran = record(self.root / "ran")[1]
                self.assertEqual(judged.keys(), ran.keys())
                compared = self.compare(judged, ran)
                self.assertGreater(compared, 40)
                self.assertEqual((code, ran_code), (1, 1) if fault else (0, 0), told + ran_told)
                self.assertIn("Not judged, as outputs of files were, and nothing was called", told)

    def compare(self, judged, ran):
        """How many verdicts were the same on numbers; all others are told."""
        compared = 0
        for case, by_files in judged.items():
            by_calls = ran[case]
            cited = [c for c in by_calls["clauses"] if not TAKES_CALLS.match(c)]
            if by_files["outcome"] == "UNSUPPORTED" and by_files["reason"] == "not_called":
                self.assertIn(by_calls["outcome"], ("PASS", "UNSUPPORTED"), case)
                self.assertEqual(cited, [], case)
                continue
            if by_files["outcome"] == "INCONCLUSIVE":  # a recommendation about what lies hidden
                self.assertIn("takes a call", by_files["message"], case)
                self.assertIn(by_calls["outcome"], ("FAIL", "WARN"), case)
                continue
            for key in ("outcome", "reason", "blamed", "tensors"):
                no_noise = [{name: {k: v for k, v in t.items() if k != "noise"}
                             for name, t in verdict["tensors"].items()} if key == "tensors"
                            else verdict.get(key) for verdict in (by_files, by_calls)]
                self.assertEqual(*no_noise, (case, key))
            if by_files["outcome"] == "UNSUPPORTED":
                continue
            self.assertEqual(by_files["clauses"], cited, case)
            compared += 1
            if by_files["outcome"] == "PASS" and cited != by_calls["clauses"]:
                self.assertIn("not judged, as nothing was called", by_files["message"], case)
        return compared

    def test_what_is_left_of_a_selection_has_the_forms_that_were_written(self):
        self.description.write_text(json.dumps(
            numpy_kernel.DESCRIPTION | {"dispatch": numpy_kernel.DISPATCH}))
        self.write("--cases", "mask/causal/bottom_right*/**")
        compute(self.vectors)
        code, told, whole = self.judge()
        self.assertEqual(code, 0, told)
        formed = sorted({case.split("/fit=")[0] for case in whole if "/fit=" in case})
        self.assertGreaterEqual(len(formed), 2)
        self.assertEqual(record(self.out)[0]["testees"][0]["besides"],
                         len(whole) - len({case.split("/fit=")[0] for case in whole}))
        code, told, some = self.judge("--cases", formed[0], "--cases", formed[1])
        self.assertEqual(code, 0, told)
        wanted = {case for case in whole if case.split("/fit=")[0] in formed[:2]}
        self.assertEqual(some.keys(), wanted)

    def test_verify_names_forms_that_a_dispatch_asks_for_and_a_record_lacks(self):
        worker = f"exec:{sys.executable} -B {HERE / 'numpy_kernel.py'}"
        def run(testee):
            return attest("run", "--testee", testee, "--cases", "mask/causal/bottom_right*/**", "--profile", "none",
                          "--out", self.out)
        def verify():
            return attest("verify", self.out, "--rerun", "1", "--testee", worker + " dispatched")
        self.assertEqual(run(worker + " dispatched")[0], 0)
        code, told = verify()
        self.assertEqual(code, 0, told)
        self.assertNotIn("lacks", told)
        self.assertEqual(run(worker)[0], 0)
        code, told = verify()
        self.assertEqual(code, 1, told)
        self.assertRegex(told, r"lacks +numpy mask/causal/.*/fit=")

    def test_a_failure_is_told_and_repeated(self):
        self.write("--tier", "smoke")
        compute(self.vectors, "top_left")
        code, told, verdicts = self.judge()
        self.assertEqual(code, 1)
        self.assertIn("O and LSE are exactly what a diagonal at the top left (MASK-3) gives", told)
        failed = next(v for v in verdicts.values() if v["outcome"] == "FAIL")
        self.assertRegex(failed["repro"], rf"^attest judge {self.vectors} --cases ")
        code, told, verdicts = self.judge("--cases", failed["case"])
        self.assertEqual((code, len(verdicts)), (1, 1))
        self.assertEqual(attest("report", self.out)[0], 1)
        code, told = attest("verify", self.out, "--rerun", "3")
        self.assertEqual(code, 2)
        self.assertIn("attest judge", told)

    def test_what_is_wrong_with_files_is_told(self):
        self.write("--cases", "mask/causal/bottom_right_more_keys/dtype=f32")
        folder = next(self.vectors.rglob("problem.json")).parent
        compute(self.vectors)
        good = {file.name: file.read_bytes() for file in folder.iterdir()}
        o = np.load(folder / "o.npy")
        self.assertEqual(self.one()[2]["outcome"], "PASS")

        def truncate(): (folder / "o.npy").write_bytes(good["o.npy"][:-3])
        def garble(): (folder / "o.npy").write_bytes(b"\x93NUMPY" + bytes(50))
        def save(array): return lambda: np.save(folder / "o.npy", array)
        def change_an_input(): np.save(folder / "q.npy", np.load(folder / "q.npy") * 2)

        def edit(**changed):
            def spoil():
                told = json.loads(good["problem.json"])
                told["problem"]["scale"] *= changed.pop("scale", 1)
                (folder / "problem.json").write_text(json.dumps({**told, **changed}))
            return spoil

        wrong = o.copy()
        wrong[0, 0, 0, 0] = np.nan
        for spoil, outcome, message in [
                (lambda: (folder / "lse.npy").unlink(), "PROTOCOL_ERROR", "lse.npy is missing"),
                (lambda: shutil.copy(folder / "o.npy", folder / "dq.npy"), "PROTOCOL_ERROR",
                 "dq.npy is no output of this problem, which has o.npy, lse.npy"),
                (save(o[..., :-1]), "PROTOCOL_ERROR",
                 "o.npy has shape [2,2,17,15], expected [2,2,17,16]"),
                (save(o.astype(np.float64)), "PROTOCOL_ERROR",
                 "o.npy holds float64, expected float32"),
                (truncate, "PROTOCOL_ERROR", "o.npy is cut off"),
                (garble, "PROTOCOL_ERROR", "o.npy is a .npy file of version 0"),
                (change_an_input, "PROTOCOL_ERROR", "q.npy is not as it was written"),
                (edit(scale=2), "PROTOCOL_ERROR", "problem.json is not as it was written"),
                (edit(case="mask/causal/top_left"), "PROTOCOL_ERROR",
                 "problem.json is of another case"),
                (lambda: (folder / "problem.json").write_text("[1"), "PROTOCOL_ERROR",
                 "problem.json holds no problem"),
                (lambda: (folder / "problem.json").unlink(), "PROTOCOL_ERROR", "problem.json"),
                (lambda: os.truncate(folder / "problem.json", 1 << 40), "PROTOCOL_ERROR",
                 "problem.json: holds more than"),
                (save(wrong), "FAIL", "O[0,0,0,0] = nan, exact"),
                (save(o * np.float32(1.001)), "FAIL", "times the bound")]:
            with self.subTest(message=message):
                spoil()
                code, told, verdict = self.one()
                self.assertEqual((code, verdict["outcome"]), (1, outcome), told)
                self.assertIn(message, verdict["message"])
                for file in folder.iterdir():
                    file.unlink()
                for name, content in good.items():
                    (folder / name).write_bytes(content)
        edit(because="said otherwise")()
        for fine in [np.asfortranarray(o), o.astype(">f4")]:
            np.save(folder / "o.npy", fine)
            self.assertEqual(self.one()[2]["outcome"], "PASS")
        np.save(folder / "lse.npy", np.load(folder / "lse.npy")[..., 0])
        self.assertEqual(self.one()[2]["outcome"], "PASS")
        for name in ("o.npy", "lse.npy"):
            (folder / name).unlink()
        code, told, verdict = self.one()
        self.assertEqual((code, verdict["outcome"], verdict["reason"]), (3, "NOT_RUN", "no_outputs"))
        shutil.rmtree(folder)
        self.assertEqual(self.one()[2]["reason"], "no_vectors")

    def test_only_files_are_read(self):
        self.write("--cases", "mask/causal/bottom_right_more_keys/dtype=f32")
        folder = next(self.vectors.rglob("problem.json")).parent
        compute(self.vectors)
        places = {"pipe": os.mkfifo, "folder": os.mkdir,
                  "device": lambda file: file.symlink_to("/dev/zero")}
        for name in ("o.npy", "q.npy"):
            good = (folder / name).read_bytes()
            for what, make in places.items():
                with self.subTest(name=name, what=what):
                    (folder / name).unlink()
                    make(folder / name)
                    code, told, verdict = self.one()
                    self.assertEqual((code, verdict["outcome"]), (1, "PROTOCOL_ERROR"), told)
                    self.assertIn(f"{name}: is a {what}, not a file", verdict["message"])
                    (os.rmdir if what == "folder" else os.unlink)(folder / name)
                    (folder / name).write_bytes(good)
        with open(folder / "o.npy", "r+b") as file:
            file.truncate(1 << 40)
        self.assertIn("o.npy: holds more than", self.one()[2]["message"])
        for name in ("vectors.json", "description.json"):
            good = (self.vectors / name).read_bytes()
            for what, make in places.items():
                with self.subTest(name=name, what=what):
                    (self.vectors / name).unlink()
                    make(self.vectors / name)
                    code, told = attest("judge", self.vectors, "--out", self.out)
                    self.assertEqual(code, 2, told)
                    self.assertIn(f"{name}: is a {what}, not a file", told)
                    (os.rmdir if what == "folder" else os.unlink)(self.vectors / name)
                    (self.vectors / name).write_bytes(good)
        for option in ("--description", "--known"):
            code, told = attest("judge", self.vectors, "--out", self.out, option, "/dev/zero")
            self.assertEqual(code, 2, told)
            self.assertIn("/dev/zero: is a device, not a file", told)

    def test_what_outputs_tell_nothing_of_is_not_written(self):
        for words in [(), ("--description", self.description)]:
            with self.subTest(words=words):
                shutil.rmtree(self.vectors, ignore_errors=True)
                code, told = attest("vectors", self.vectors, "--tier", "smoke", *words)
                self.assertEqual(code, 0, told)
                self.assertIn("of which outputs tell nothing: 6 cases (graph, memory, new-shapes, "
                              "schedule, stream, two-streams)\n", told)
                written = {str(file.parent.relative_to(self.vectors))
                           for file in self.vectors.rglob("problem.json")}
                self.assertFalse([case for case in written if case.startswith("device/")])
                _, told, verdicts = self.judge()
                for case, verdict in verdicts.items():
                    if case not in written:
                        self.assertEqual(verdict["outcome"], "UNSUPPORTED", verdict)
                    elif verdict["outcome"] != "NOT_RUN":
                        self.fail(verdict)

    def test_half_precision_crosses_as_bits(self):
        code, told = attest("vectors", self.vectors, "--dtype", "bf16", "--features", "lse",
                            "--cases", "format/formats/bf16")
        self.assertEqual(code, 0, told)
        for file in self.vectors.rglob("problem.json"):
            about, tensors = load(file)
            self.assertEqual(tensors["q"].dtype, np.uint16)
            exact = {name: (bits.astype(np.uint32) << 16).view(np.float32)
                     for name, bits in tensors.items()}
            outputs = numpy_kernel.attend(about["problem"], exact)
            rounded = numpy_kernel.textbook.bf16_bits(outputs["o"])
            np.save(file.parent / "o.npy", rounded.view("V2"))  # as ml_dtypes' bfloat16 is saved
            np.save(file.parent / "lse.npy", outputs["lse"])
        code, told, verdicts = self.judge()
        self.assertEqual(code, 0, told)
        self.assertEqual({v["outcome"] for v in verdicts.values()}, {"PASS"})

    def test_sizes_are_announced_and_refused(self):
        code, told = attest("vectors", self.vectors, "--tier", "smoke", "--max-bytes", "1000000")
        self.assertEqual(code, 2)
        self.assertRegex(told, r"\d+ problems of \d+ cases selected, about [\d.]+ MiB, are more than "
                               r"--max-bytes 1000000, which has room for the first \d+;")
        self.assertFalse(self.vectors.exists())
        for size, same in [("1e3", "1e3"), ("10KiB", "10KiB"), ("0.001G", "0.001G")]:
            told = attest("vectors", self.vectors, "--max-bytes", size)[1]
            self.assertIn(f"GiB, are more than --max-bytes {same}, which has room", told)
        for size in ("1X", "", "0", "-1", "iB", "1e20", "10 potatoes"):
            code, told = attest("vectors", self.vectors, "--max-bytes", size)
            self.assertEqual(code, 2)
            self.assertIn("--max-bytes takes a number of bytes up to 1024TiB, as 1000000, 1e9, 1.5G "
                          "or 10MiB, not " + size, told)
        self.assertFalse(self.vectors.exists())
        self.assertEqual(attest("vectors", self.vectors, "--max-bytes", "1T", "--tier", "smoke")[0], 0)

    def test_a_folder_that_is_none_or_of_others_is_an_error(self):
        self.root.joinpath("empty").mkdir()
        code, told = attest("judge", self.root / "empty")
        self.assertEqual(code, 2)
        self.assertIn("is no folder of vectors: it has no vectors.json", told)
        self.write("--cases", "mask/causal/square/dtype=f32")
        code, told = attest("vectors", self.vectors)
        self.assertEqual(code, 2)
        self.assertIn("is there already, and not empty; nothing was written", told)
        manifest = self.vectors / "vectors.json"
        written = json.loads(manifest.read_text())
        for key, value, message in [("suite_version", "0.0.1", "was written by Attest 0.0.1"),
                                    ("cases", "0" * 64, "was written from other cases"),
                                    ("schema", "attest-vectors-9", "this program reads"),
                                    ("tier", "smokey", "there is no tier smokey")]:
            manifest.write_text(json.dumps(written | {key: value}))
            code, told = attest("judge", self.vectors, "--out", self.out)
            self.assertEqual(code, 2, told)
            self.assertIn(message, told)
        manifest.write_text("{")
        self.assertEqual(attest("judge", self.vectors, "--out", self.out)[0], 2)

    def test_profiles_are_never_met_by_outputs_alone(self):
        self.write("--tier", "smoke")
        compute(self.vectors)
        code, told, _ = self.judge("--profile", "forward-core/limits")
        self.assertIn(code, (0, 1, 3))
        header, _, footer = record(self.out)
        self.assertEqual(header["isolation"], "not started")
        self.assertTrue(footer["profiles"])
        self.assertFalse(any(p["met"] for p in footer["profiles"]))
        self.assertNotEqual(footer["conclusion"], "conformant")

    @unittest.skipUnless(importlib.util.find_spec("jsonschema"), "no jsonschema")
    def test_problems_meet_their_schema(self):
        import jsonschema
        schema = json.loads((HERE.parents[1] / "spec" / "problem.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        code, told = attest("vectors", self.vectors, "--tier", "smoke")
        self.assertEqual(code, 0, told)
        files = list(self.vectors.rglob("problem.json"))
        self.assertGreater(len(files), 100)
        for file in files:
            about, tensors = load(file)
            validator.validate(about)
            for name, tensor in about["inputs"].items():
                self.assertEqual(list(tensors[name].shape), tensor["shape"], (file, name))
            for key in about:
                wrong = {k: v for k, v in about.items() if k != key}
                self.assertFalse(validator.is_valid(wrong), key)


if __name__ == "__main__":
    unittest.main()
