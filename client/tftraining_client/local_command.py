"""The arguments of `tftj run`. An invalid one ends the program with one line and exit code 2."""

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from tftraining_client.local import run
from tftraining_client.manifest import only_file


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments, `run` included; for invalid ones, SystemExit(2) after one line, or UserError."""
    parser = _Parser(prog="tftj", description="Run TFTrainingJobs from the command line.")
    _add_run(parser)
    arguments = parser.parse_args(argv)
    arguments.file = only_file(arguments.manifest, arguments.filename, "run")
    return arguments


def run_locally(argv: Sequence[str]) -> int:
    """Run the command, `run` included, as `parse` takes it."""
    arguments = parse(argv)
    code: int = arguments.main(arguments)
    return code


def option_names() -> list[str]:
    """The options of `run`."""
    return sorted(set(re.findall(r"(?<=\[)--?[a-z]+", _add_run(_Parser(prog="tftj")).format_usage())))


def _add_run(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # An abbreviated option would become ambiguous with the next option of that beginning; the other commands have none.
    local: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a job on this machine, without a cluster",
        epilog="Example: tftj run job.yaml --workers 2",
        allow_abbrev=False,
    )
    run.add_arguments(local)
    local.set_defaults(main=run.main)
    return local
