"""python -m attest_attention: judges again what assert_close saved; names the libraries here."""
from __future__ import annotations

import argparse
import platform
import sys
from importlib import metadata

from attest_attention import __version__, judge_file


def versions() -> str:
    """Of Python, this package and the libraries that kernels may use."""
    told = [f"Python {platform.python_version()}", f"attest_attention {__version__}"]
    for name in ("numpy", "ml_dtypes", "torch", "jax"):
        try:
            told.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            told.append(f"no {name}")
    return ", ".join(told)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attest_attention", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    judge = commands.add_parser("judge", help="judge again what assert_close saved; exits with 1 "
                                              "if it does not pass, 2 if it is no such file")
    judge.add_argument("file")
    commands.add_parser("versions", help="of Python, NumPy and the libraries that kernels may use")
    asked = parser.parse_args()
    if asked.command == "versions":
        print(versions())
        return 0
    try:
        result = judge_file(asked.file)
    except (OSError, ValueError, TypeError) as error:
        print(f"attest_attention: {error}", file=sys.stderr)
        return 2
    print(result)
    return 0 if result.passed else 1


sys.exit(main())
