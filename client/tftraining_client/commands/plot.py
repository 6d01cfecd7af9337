"""`tftj plot`: the curves of a job in the terminal, or as a file."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tftraining.launch.history import FILE
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.curves import Curves, curves_of
from tftraining_client.commands.output import hint, is_terminal, note
from tftraining_client.errors import UserError
from tftraining_client.history import History

PIPE_WIDTH = 80
SHOWN_METRICS = 4


async def plot_job(client: AsyncClient, name: str, metrics: Sequence[str], output: str | None, file: str | None) -> int:
    """Plot the history of a job; the exit code."""
    plot(name, await client.history(name), metrics, output, file)
    hint(*(f"plot {name} -o html",) if output is None else (), f"status {name}")
    return 0


def plot_directory(path: str, metrics: Sequence[str], output: str | None, file: str | None) -> int:
    """Plot the history in a job's directory, or in the file of a history; the exit code."""
    place = Path(path).resolve()
    history = read_history(place)
    plot((place if place.is_dir() else place.parent).name, history, metrics, output, file)
    return 0


def is_path(job: str) -> bool:
    """Whether the argument is a path in place of the name of a job, which has neither of these characters."""
    return "/" in job or "\\" in job or job.startswith(".")


def read_history(path: Path) -> History:
    """The history in a job's directory, or in a file; UserError if there is none."""
    place = path / FILE if path.is_dir() else path
    try:
        columns = json.loads(place.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the history {place}: {error.strerror}") from None
    except (ValueError, RecursionError):
        columns = None
    if not isinstance(columns, dict):
        raise UserError(f"{place} is no history of a job")
    return History.of(columns)


def plot(job: str, history: History, metrics: Sequence[str], output: str | None, file: str | None) -> None:
    """Print the plot, or write the file."""
    if output == "json":
        _write(json.dumps(history.to_dict(), indent=2, ensure_ascii=False).encode() + b"\n", file or "-")
    elif output is None:
        curves = curves_of(job, history, metrics, SHOWN_METRICS)
        _write(("\n".join(_terminal_lines(curves)) + "\n").encode(), file or "-")
    else:
        _write(_document(output, curves_of(job, history, metrics)), file or f"{job}.{output}")


def _terminal_lines(curves: Curves) -> list[str]:
    from tftraining_client.commands.plot_terminal import plot_lines  # noqa: PLC0415  only for the terminal

    return plot_lines(curves, shutil.get_terminal_size().columns if is_terminal() else PIPE_WIDTH)


def _document(output: str, curves: Curves) -> bytes:
    if output == "html":
        from tftraining_client.commands.plot_html import html_page  # noqa: PLC0415  only for this format

        return html_page(curves).encode()
    from tftraining_client.commands.plot_png import png_image  # noqa: PLC0415

    return png_image(curves)


def _write(document: bytes, file: str) -> None:
    """Write to the file; `-` is standard output."""
    if file == "-":
        sys.stdout.buffer.write(document)
        sys.stdout.flush()
        return
    try:
        Path(file).write_bytes(document)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    note(f"wrote {file}")
