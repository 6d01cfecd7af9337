"""The operator, whose event loop is busy for so many seconds as the file $BUSY_SECONDS says, at each SIGUSR1; then the
file is removed."""

import os
import signal
import sys
import time
from pathlib import Path

from tftraining_operator.__main__ import main


def keep_busy(*_: object) -> None:
    """Hold the main thread, in which the event loop runs."""
    file = Path(os.environ["BUSY_SECONDS"])
    until = time.monotonic() + float(file.read_text())
    while time.monotonic() < until:
        pass
    file.unlink()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, keep_busy)
    sys.exit(main())
