"""A folder in storage that all workers of a job share, filled by one of them. It must never be seen half-filled."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def fill_once(folder: Path, fill: Callable[[Path], object]) -> None:
    """Fill `folder` unless it exists. Every worker may call this at once: one of them wins, with a complete folder."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}-"))
    try:
        fill(own)
        own.chmod(0o755)
        own.rename(folder)
    except OSError:  # another worker was faster, or the disk is full
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(own, ignore_errors=True)
