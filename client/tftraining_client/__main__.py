"""The command `tftj`. An error that the user can fix prints one line, without a traceback; the exit code is 2."""

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
        """Exit with code 2 and one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; for invalid ones, SystemExit(2) after one line."""
    parser = _Parser(prog="tftj", description="Run TFTrainingJobs from the command line.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    local = commands.add_parser("run", help="run a job on this machine, without a cluster")
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
        # The reader of the pipe or the terminal is gone; /dev/null takes the output that Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
