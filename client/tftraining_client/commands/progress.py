"""The progress of a transfer on standard error: a bar on a terminal, otherwise a line every ten seconds."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tftraining_client.commands.output import note

SECONDS = 10.0
Progress = Callable[[int, int], None]


@contextmanager
def shown(title: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """A function of the bytes so far and of all, which shows them once the first are there."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _lines(title, clock)
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn  # noqa: PLC0415

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    bar = Progress(f"tftj: {title}", *columns, console=Console(stderr=True))
    task = bar.add_task(title, total=None)

    def advance(sent: int, size: int) -> None:
        bar.start()
        bar.update(task, completed=sent, total=size)

    try:
        yield advance
    finally:
        bar.stop()


def _lines(title: str, clock: Callable[[], float]) -> Progress:
    told = clock()

    def advance(sent: int, size: int) -> None:
        nonlocal told
        if clock() - told >= SECONDS:
            told = clock()
            note(f"{title}: {amount(sent)} of {amount(size)}")

    return advance


def amount(size: int) -> str:
    """So many bytes: 12 B, 1.5 KiB, 3.0 GiB."""
    if size < 1 << 10:
        return f"{size} B"
    unit = min((size.bit_length() - 1) // 10, 4)
    return f"{size / (1 << 10 * unit):.1f} {'KMGT'[unit - 1]}iB"
