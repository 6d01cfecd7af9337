"""Arguments of the lab's command line, and what each command prints.

Results go to standard output, progress and errors to standard error. It must never do work of its own.
"""

import argparse

from . import binaries
from .shell import LabError, say


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each carries the function that runs it as `run`."""
    top = argparse.ArgumentParser(prog="python -m tests.cluster.lab", description="A Kubernetes cluster for tests.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    programs = commands.add_parser("binaries", help="build programs of the cluster and print their directory")
    programs.add_argument("name", nargs="+", choices=sorted(binaries.PACKAGES), metavar="NAME")
    programs.set_defaults(run=lambda options: print(binaries.ensure(*options.name)))
    return top


def main(arguments: list[str]) -> int:
    """Run one command; return the exit status: 0, or 1 with one line that says what is wrong."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except LabError as error:
        say(f"error: {error}")
        return 1
    return 0
