"""A launcher whose loop hangs in a file operation, as it does when TMPDIR lies on storage that does not answer.

    python hanging.py DIRECTORY python -m tftraining.launch -- command…

As soon as the file `hang-create` or `hang-read` lies in the directory, the next page of progress that is made, or read,
is a read of the FIFO `fifo` there: it lasts until somebody has opened that for writing and closed it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tftraining.launch.__main__ import run
from tftraining.launch.process import progress_reader

DIRECTORY = Path(sys.argv[1])


def hanging(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which reads the FIFO first if `hang-<what>` exists."""

    def hang(argument: Any) -> Any:
        if (DIRECTORY / f"hang-{what}").exists():
            (DIRECTORY / f"hangs-{what}").touch()
            (DIRECTORY / "fifo").read_bytes()
        return function(argument)

    return hang


if __name__ == "__main__":
    progress_reader.create = hanging("create", progress_reader.create)
    progress_reader.read = hanging("read", progress_reader.read)
    sys.argv[1:] = sys.argv[sys.argv.index("--") :]
    run()
