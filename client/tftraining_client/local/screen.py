"""The output of `tftj run`: plain lines, or on a terminal coloured lines above a progress display.

A screen puts a name in front of each line of a program, and must never change the line itself.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tftraining_client.local.display import display
from tftraining_client.local.timeline import Timeline

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
OURS = "tftj"


class Screen(Protocol):
    """The output as the runner uses it."""

    def output(self, name: str, lines: Sequence[str]) -> None:
        """Print lines of a replica."""

    def note(self, text: str) -> None:
        """Print a message of `tftj`."""

    def show(self, timeline: Timeline, seconds: float) -> None:
        """Show the state of the job, `seconds` after the start of the run."""

    def close(self) -> None:
        """Remove the display; the printed lines stay."""


class PlainScreen:
    """The screen for files, pipes and dumb terminals."""

    def __init__(self, names: Sequence[str], stream: TextIO) -> None:
        self._width = max(len(name) for name in (*names, OURS))
        self._stream = stream

    def output(self, name: str, lines: Sequence[str]) -> None:
        """`worker-0 | line`."""
        self._stream.write("".join(f"{name:<{self._width}} | {line}\n" for line in lines))
        self._stream.flush()

    def note(self, text: str) -> None:
        """`tftj     | text`."""
        self.output(OURS, text.splitlines())

    def show(self, timeline: Timeline, seconds: float) -> None:
        """Print the progress at each new epoch, and at intervals."""
        for line in timeline.progress_lines(seconds):
            self.note(line)

    def close(self) -> None:
        """Nothing to do."""


class LiveScreen:
    """The screen for terminals; honours NO_COLOR."""

    def __init__(self, names: Sequence[str], console: Console) -> None:
        self._width = max(len(name) for name in (*names, OURS))
        self._colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def output(self, name: str, lines: Sequence[str]) -> None:
        """Print the lines, each after the coloured name."""
        prefix = (f"{name:<{self._width}} | ", self._colours.get(name, "bold"))
        texts = [Text.assemble(prefix, Text.from_ansi(line)) for line in lines]
        self._console.print(Text("\n").join(texts), soft_wrap=True, highlight=False)

    def note(self, text: str) -> None:
        """Print a message of `tftj`, in bold."""
        for line in text.splitlines():
            self._console.print(Text(f"{OURS:<{self._width}} | {line}", style="bold"), soft_wrap=True, highlight=False)

    def show(self, timeline: Timeline, seconds: float) -> None:
        """Redraw the display."""
        self._live.update(display(timeline, seconds), refresh=True)

    def close(self) -> None:
        """Remove the display."""
        self._live.stop()


def make_screen(names: Sequence[str]) -> Screen:
    """The screen that fits standard output. Characters outside its encoding are printed as `\\u2588`: a program that
    prints a progress bar must not raise an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal and os.isatty(sys.stdout.fileno()):
        return LiveScreen(names, console)
    return PlainScreen(names, sys.stdout)
