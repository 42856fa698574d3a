"""What the command attest says of itself."""
import os
import pathlib
import shutil
import subprocess

TREE = pathlib.Path(__file__).resolve().parents[2]


def program():
    """Its path: ATTEST_PROGRAM, or of the tree's build, or the one on PATH; None without any."""
    built = TREE / "build/release/bin/attest"
    return os.environ.get("ATTEST_PROGRAM") or (
        str(built) if built.exists() else shutil.which("attest"))


def version():
    """As attest --version says it."""
    return subprocess.run([program(), "--version"], check=True, capture_output=True,
                          text=True).stdout.strip()


def _listed(what):
    told = subprocess.run([program(), "list", f"--{what}"], check=True, capture_output=True,
                          text=True)
    return [line.split() for line in told.stdout.splitlines() if line[:1].strip()]


def profiles():
    return [words[0] for words in _listed("profiles")]


def clauses():
    """{clause: its title}"""
    named = set(profiles())
    return {words[0]: " ".join(words[3 if words[2] in named else 2:])
            for words in _listed("clauses")}
