"""The command `tftj`. An error that the user can fix prints one line, without a traceback; the exit code is 2.

The commands are in `commands/app.py`. `tftj run` imports nothing of a cluster, and knows none of its options.
"""

# ruff: noqa: PLC0415  each road imports only what it needs
import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TextIO

from tftraining_client.errors import JobFailed, UserError
from tftraining_client.visible import visible

CLUSTER_OPTIONS = ("-n", "--namespace", "--context", "--kubeconfig", "--as", "--as-group", "--as-uid", "--v")
VERBOSITY = re.compile(r"--?v(?:=?(\d+))?")
REQUESTS = "6"  # the level of -v alone
GONE = (errno.EPIPE, errno.EIO)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)


def command(argv: Sequence[str]) -> int:
    """Do what the arguments say; for invalid arguments SystemExit(2) after one line."""
    _have_home()
    from typer.exceptions import TyperException
    from typer.main import get_command

    from tftraining_client.commands.app import app, only
    from tftraining_client.commands.fast_start import collect_garbage

    if "_TFTJ_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name or a log line outside the encoding of a pipe or a terminal is no error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        work = get_command(only(app, argv)).main(list(argv), prog_name=program(), standalone_mode=False)
    except TyperException as error:
        print(f"tftj: {_usage(error)}", file=sys.stderr)
        raise SystemExit(UserError.exit_code) from error
    collect_garbage()
    # A number after --help.
    return work() if callable(work) else int(work or 0)


def as_kubectl(argv: Sequence[str]) -> list[str]:
    """The arguments with kubectl's -n=NAME, -v=LEVEL and -v LEVEL, and a -v alone, as the parser takes them."""
    found, rest = [], list(argv)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if level := VERBOSITY.fullmatch(word):
            word = f"--v={level[1] or (rest.pop(0) if rest and rest[0].isdecimal() else REQUESTS)}"
        found.append(f"--namespace={word[3:]}" if word.startswith("-n=") else word)
    return found + rest


def command_first(argv: list[str]) -> list[str]:
    """The arguments with the options of the cluster behind the command, as kubectl takes them before it, too."""
    at = 0
    while at < len(argv) and (argv[at] in CLUSTER_OPTIONS or _has_value(argv[at])):
        at += 1 if _has_value(argv[at]) else 2
    return [argv[at], *argv[:at], *argv[at + 1 :]] if 0 < at < len(argv) else argv


def _has_value(word: str) -> bool:
    """Whether the word is an option of the cluster with its value: --namespace=a, -na."""
    option, equals, _ = word.partition("=")
    return (bool(equals) and option in CLUSTER_OPTIONS) or (word.startswith("-n") and len(word) > 2)


def _have_home() -> None:
    """A container may run as a user without a home directory, which the reader of kubeconfigs needs at its import."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = os.sep


def _usage(error: Exception) -> str:
    """The message about wrong arguments, and the help to read."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else program()
    message = getattr(error, "format_message", lambda: str(error))()
    return f"{' '.join(message.split()).rstrip('.')}; see {path} --help"


def program() -> str:
    """The name by which the user has called this command."""
    return "kubectl tftj" if PurePath(sys.argv[0]).stem.startswith("kubectl-") else "tftj"


def _start_fast(arguments: Sequence[str]) -> None:
    from tftraining_client.commands.fast_start import (
        collect_no_garbage_yet,
        import_aiohttp,
        skip_package_imports,
        skip_pydantic,
    )

    collect_no_garbage_yet()
    skip_package_imports()
    skip_pydantic()
    if arguments and "_TFTJ_COMPLETE" not in os.environ and not {"-h", "--help", "--version"} & set(arguments):
        import_aiohttp()


def _have_streams() -> None:
    """A shell may have closed a stream (`>&-`): /dev/null takes its place, before a file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  open to the end


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = given if given[:1] == ["run"] else command_first(as_kubectl(given))
    if argv is None:
        _have_streams()
        if arguments[:1] != ["run"]:
            _start_fast(arguments)
    try:
        return _run(arguments)
    except OSError as error:
        return _unwritten(error)


def complete_for_kubectl() -> int:
    """`kubectl_complete-tftj`, which kubectl runs with the words behind `kubectl tftj`."""
    _start_fast(["-h"])
    print(*completions(sys.argv[1:]), sep="\n")
    return 0


def completions(given: Sequence[str]) -> list[str]:
    """The completions of the last word, and then, as cobra has it, whether the shell may offer files."""
    from typer._completion_classes import BashComplete
    from typer.main import get_command

    from tftraining_client.commands.app import app

    words = command_first(as_kubectl(given[:-1]))
    found = BashComplete(get_command(app), {}, "kubectl tftj", "").get_completions(words, "".join(given[-1:]))
    return [*(str(each.value) for each in found), f":{4 if found else 0}"]


def _run(arguments: Sequence[str]) -> int:
    try:
        code = command(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"tftj: {visible(error.summary) if isinstance(error, JobFailed) else error}", file=sys.stderr)
        if isinstance(error, JobFailed):
            from tftraining_client.commands.output import hint

            hint(f"explain {error.job}", f"logs {error.job} --tail 50")
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _unwritten(error: OSError) -> int:
    """The exit code where the reader of the pipe or the terminal is gone, or the disk of the output is full."""
    if error.errno not in (*GONE, *FULL):
        raise error
    _drop(sys.stdout)
    if error.errno in GONE:
        return 141
    try:
        print(f"tftj: cannot write the output: {os.strerror(error.errno or 0).lower()}", file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)
    return UserError.exit_code


def _drop(stream: TextIO) -> None:
    """Python flushes at exit what could not be written, and ends with 120 where it fails again: /dev/null takes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
