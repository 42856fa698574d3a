"""The command `attest` that the wheel carries, with this Python for kernels in Python."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import Dict


def program() -> str:
    """What ATTEST_PROGRAM names, else what the wheel carries, else what is on the PATH."""
    carried = pathlib.Path(__file__).parent / "bin" / "attest"
    path = os.environ.get("ATTEST_PROGRAM") or (str(carried) if carried.exists() else
                                                shutil.which("attest"))
    if not path:
        raise FileNotFoundError("there is no command attest: wheels carry it; else ATTEST_PROGRAM "
                                "names one that was built")
    return path


def environment() -> Dict[str, str]:
    return {"ATTEST_PYTHON": sys.executable, **os.environ}


def main() -> None:
    """Becomes the command."""
    path = program()
    os.execve(path, [path, *sys.argv[1:]], environment())
