"""A small file in the job's directory, written so that a reader finds the old or the new content, never a part of it.

The directory is the user's: a link in the place of the file is not followed. Errors go to the caller.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Write the file, and its directory if that is missing. OSError if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f"{path.name}.*"):  # left by a launcher that was killed during the write
        leftover.unlink(missing_ok=True)
    # In a container every launcher has the same pid.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_file(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of the file. OSError if there is none; a pipe in its place does not block."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(limit)
