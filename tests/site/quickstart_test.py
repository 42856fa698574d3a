"""What the quickstarts of the site say is done, and comes out: quickstart_test.py ATTEST [PAGE...]

Each block of a page has a mark before it, which the site does not show:

    <!-- run -->          commands, behind $, in a folder of the page's own; the lines below each
                          stand in that order in what it prints, with anything for ...
    <!-- file NAME -->    a file of that folder
    <!-- gpu -->          commands that need a GPU: their options are those that there are
    <!-- build -->        commands that build Attest, as whoever runs this has done

A page of which something needs what isn't there (NumPy, pytest, cmake) is skipped, and named.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/documents"))
from readme import options_in, python_with_numpy, rounded  # noqa: E402

PAGES = ROOT / "site/pages"
NEEDS = {"quickstart/npu.md": ["cmake", "cc"], "quickstart/tests.md": ["pytest"]}
BLOCK = re.compile(r"(?:^<!-- (?P<mark>run|gpu|build|file (?P<name>\S+)) -->\n\n)?"
                   r"(?P<text>(?<=\n\n)(?:    .*\n|\n(?=\n?    ))+)", re.M)


def blocks(text):
    """(mark, name of the file, text) of each; one without a mark is a fault."""
    for found in BLOCK.finditer(text):
        if not found["mark"]:
            raise SystemExit(f"no mark says what becomes of\n{found['text']}")
        lines = [line.removeprefix("    ") for line in found["text"].splitlines()]
        yield found["mark"].split()[0], found["name"], "\n".join(lines) + "\n"


def commands(text):
    """(command, the lines that it prints) of a block."""
    told = []
    for line in text.splitlines():
        if line.startswith("$ "):
            told.append((line[2:], []))
        elif not told:
            raise SystemExit(f"no command prints\n{text}")
        else:
            told[-1][1].append(line)
    return told


def missing(lines, printed):
    """The first of the lines that what was printed has not, behind those before it."""
    at, printed = 0, rounded(printed)
    for line in lines:
        parts = map(re.escape, rounded(line.strip()).split("..."))
        found = re.compile(".*".join(parts)).search(printed, at)
        if not found:
            return line
        at = found.end()
    return None


def run(command, expected, folder, env):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, text=True, timeout=200,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lacks = missing(expected, done.stdout)
    if done.returncode != 0 or lacks is not None:
        raise SystemExit(f"$ {command}\n{done.stdout}exit code {done.returncode}" +
                         (f"; it doesn't print {lacks!r}" if lacks is not None else ""))


def look_at(command, env):
    """What is not run: that there is such a command with such options, or such a script."""
    words = command.split()
    if words[0] == "attest":
        told = subprocess.run(["attest", words[1], "--help"], env=env, text=True,
                              capture_output=True).stdout
        own = re.sub(r'"[^"]*"', "", command)  # not those of a sanitizer
        unknown = options_in(own) - options_in(told)
        if unknown or not told:
            raise SystemExit(f"{command}: no such option: {unknown}")
    elif words[0].startswith("script/") and not os.access(ROOT / words[0], os.X_OK):
        raise SystemExit(f"{command}: no such script")


def try_page(page, env):
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # another user may be the testee's
        folder = pathlib.Path(folder)
        (folder / "impl").mkdir()
        shutil.copy(ROOT / "impl/skeleton.py", folder / "impl")
        for mark, name, text in blocks(page.read_text()):
            if mark == "file":
                (folder / name).write_text(text)
                if name.endswith(".py"):
                    compile(text, name, "exec")
                continue
            for command, expected in commands(text):
                if mark == "run":
                    run(command, expected, folder, env)
                    done += 1
                else:
                    look_at(command, env)
    return done


def is_there(name, python):
    """A program, or a package of that Python."""
    return bool(shutil.which(name)) or subprocess.run(
        [python, "-c", f"import {name}"], capture_output=True).returncode == 0


def main():
    found = python_with_numpy()
    if not found:
        return 77
    python, env = found
    left = 0
    with tempfile.TemporaryDirectory() as shims:
        os.chmod(shims, 0o755)
        os.symlink(python, pathlib.Path(shims) / "python3")
        attest = pathlib.Path(sys.argv[1]).resolve().parent
        env = {**env, "PATH": f"{shims}:{attest}:{os.environ['PATH']}", "NO_COLOR": "1",
               **({"CMAKE_GENERATOR": "Ninja"} if shutil.which("ninja") else {})}
        for name in sys.argv[2:] or sorted(p.relative_to(PAGES).as_posix()
                                           for p in PAGES.rglob("*.md")):
            lacking = [each for each in NEEDS.get(name, []) if not is_there(each, python)]
            if lacking:
                print(f"skipped: {name}, which needs {', '.join(lacking)}")
                left += 1
                continue
            print(f"{name}: {try_page(PAGES / name, env)} commands", flush=True)
    return 77 if left else 0


if __name__ == "__main__":
    sys.exit(main())
