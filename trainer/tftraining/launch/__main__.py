"""`python -m tftraining.launch -- command args…`: PID 1 of a training container, or one replica of `tftj run`.

A configuration error prints one line and exits with 2; otherwise the exit code is the job's result for this member.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tftraining.launch.config.settings import VARIABLE, SettingsError, read, with_code_path, with_tf_config
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import Result, termination_message
from tftraining.launch.launcher import Launcher

USAGE = "usage: python -m tftraining.launch -- command [argument…]"


def _report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Suppress cancellations: before Python 3.13 asyncio reports a cancelled connection as an error with traceback."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


async def _run(command: Sequence[str]) -> int:
    asyncio.get_running_loop().set_exception_handler(_report_loop_error)
    try:
        environment = with_code_path(with_tf_config(os.environ))
        return await Launcher(read(environment), command, environment).run()
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def main(arguments: Sequence[str]) -> int:
    """Run the launcher and return its exit code."""
    command = list(arguments[1:]) if arguments[:1] == ["--"] else []
    if not command:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        # Not asyncio.run: it waits for run_in_executor threads, and a thread that hangs in dead storage never ends.
        return asyncio.new_event_loop().run_until_complete(_run(command))
    except SettingsError as error:
        print(f"tftraining: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        traceback.print_exc()
        write_crash_message(f"internal error of the launcher: {type(error).__name__}: {error}")
        return 1


def write_crash_message(message: str) -> None:
    """Write the termination message of a crashed launcher; the operator reads nothing else of it."""
    print(f"tftraining: {message}", file=sys.stderr)
    with contextlib.suppress(Exception):
        path = json.loads(os.environ[VARIABLE])["terminationMessage"]
        Path(path).write_text(termination_message(Result("", "LauncherFailed", message), Ledger(), {}), "utf-8")


def run() -> NoReturn:
    """Run the launcher as this process."""
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: it would wait for ever for a thread that hangs in a read from dead storage or a blocked log write.
    os._exit(code)


if __name__ == "__main__":
    run()
