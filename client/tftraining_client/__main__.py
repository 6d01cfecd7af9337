"""`tftj`: the command. What a person can put right is one line and exit code 2, never a traceback."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tftraining_client.errors import UserError
from tftraining_client.local import run


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments; SystemExit(2) after one line if they are wrong."""
    parser = _Parser(prog="tftj", description="TFTrainingJob from the command line.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    local = commands.add_parser("run", help="run a job on this machine, with no cluster")
    run.add_arguments(local)
    local.set_defaults(main=run.main)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    arguments = parse(argv)
    try:
        code: int = arguments.main(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"tftj: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # Nobody reads any more, or the terminal is gone; what Python would still flush at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
