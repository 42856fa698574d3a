"""python -m attest_attention judge FILE.npz: the verdict on what assert_close saved."""
from __future__ import annotations

import argparse
import sys

from attest_attention import __version__, judge_file


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attest_attention", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    judge = commands.add_parser("judge", help="judge again what assert_close saved; exits with 1 "
                                              "if it does not pass, 2 if it is no such file")
    judge.add_argument("file")
    try:
        result = judge_file(parser.parse_args().file)
    except (OSError, ValueError, TypeError) as error:
        print(f"attest_attention: {error}", file=sys.stderr)
        return 2
    print(result)
    return 0 if result.passed else 1


sys.exit(main())
