"""Records which functions of our packages run, in order: in a block of a test, or in the process of a launcher.

    python tests/support/calls.py FILE python -m tftraining.launch -- COMMAND

`because_of` leaves those that run in calm, too: what remains are the hands that a failure passes through.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
PACKAGES = tuple(f"{REPOSITORY / place}/" for place in ("api", "operator", "trainer"))
# Parts of a function, not functions that a reader has to find.
PARTS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>", "<module>")
NAMED = re.compile(r"`([\w./]+\.py)`")


class Call(NamedTuple):
    """One call: when (monotonic seconds), the file in the repository, the function, the names of its arguments, and the
    functions on the stack down from the one that the event loop or the test has called."""

    at: float
    path: str
    name: str
    arguments: str
    stack: str

    @property
    def hands(self) -> list[str]:
        """The functions on the stack."""
        return self.stack.split(" ")


class Recorder:
    """Notes the calls of functions in our packages; install it in each thread."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and is_ours(frame):
            path = code.co_filename.removeprefix(f"{REPOSITORY}/")
            arguments = " ".join(code.co_varnames[: code.co_argcount])
            self.note(Call(time.monotonic(), path, code.co_qualname, arguments, " ".join(stack_of(frame))))

    def note(self, call: Call) -> None:
        self.calls.append(call)


class FileRecorder(Recorder):
    """Appends each call to a file, so that the end of the process takes none away."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._pid = os.getpid()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, call: Call) -> None:
        if os.getpid() == self._pid:
            os.write(self._fd, "\t".join(map(str, call)).encode() + b"\n")


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGES) and frame.f_code.co_name not in PARTS


def stack_of(frame: FrameType | None) -> list[str]:
    """Our functions on the stack, the event loop's call first."""
    found = []
    while frame is not None and not frame.f_code.co_filename.endswith("/asyncio/events.py"):
        if is_ours(frame):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found[::-1]


def read(path: Path) -> list[Call]:
    """The calls in the file of another process."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [Call(float(at), *words) for at, *words in rows]


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """The calls of a block, in this thread and in those that it starts."""
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder.calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def because_of(calls: Iterable[Call], calm: Iterable[Call]) -> list[Call]:
    """The calls of functions that do not run in calm."""
    known = {(call.path, call.name) for call in calm}
    return [call for call in calls if (call.path, call.name) not in known]


def files(calls: Iterable[Call]) -> list[str]:
    """The files that the calls cross, in the order in which they are first reached."""
    return list(dict.fromkeys(call.path for call in calls))


def rows_of(heading: str) -> list[list[str]]:
    """The files that each row of the table below this heading of docs/architecture.md names."""
    page = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition(f"{heading}\n")[2].partition("\n## ")[0].partition("\n|---")[2].partition("\n\n")[0]
    return [NAMED.findall(line) for line in table.splitlines()[1:]]


def first_row_not_reached(calls: list[Call], rows: list[list[str]]) -> list[str]:
    """The first row of which no call is left after those of the rows before it; empty if the calls go through all."""
    left = iter(calls)
    return next((row for row in rows if not any(call.path in row for call in left)), [])


if __name__ == "__main__":
    file, _, _, module = sys.argv[1:5]
    sys.argv, sys.path[0] = sys.argv[4:], ""
    of_this_process = FileRecorder(Path(file))
    threading.setprofile(of_this_process)
    sys.setprofile(of_this_process)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
