"""The leftovers of a job in its directory: temporary save directories, removed at its end, and models.

As in a cluster, `tftraining.cleanup` removes them in a separate process.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tftraining_client.local.process_spec import LocalJob

SECONDS = 60
DEPTH = 4
SUFFIXES = (".keras", ".h5", ".tflite")


async def clean(local: LocalJob, scratch: Path) -> str:
    """Remove the temporary save directories of the non-chief workers; the result in words."""
    storage = local.spec.storage
    if storage is None or local.directory is None or not local.non_chief_workers:
        return "nothing to remove"
    result = scratch / "cleanup.json"
    arguments = ["--root", str(local.directory), f"--timeout={SECONDS}", "--termination-log", str(result)]
    arguments += [f"--save-dir={each}" for each in storage.save_dirs]
    arguments += [f"--index={each}" for each in local.non_chief_workers]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tftraining.cleanup", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return _words(result, output.decode("utf-8", "replace"))


def _words(result: Path, output: str) -> str:
    try:
        found = json.loads(result.read_text())
    except (OSError, ValueError):
        return f"failed: {' '.join(output.split()) or 'the cleanup printed nothing'}"
    number = found["removed"]
    text = f"{number} temporary save director{'y' if number == 1 else 'ies'} removed"
    left = [f"{each['path']}: {each['error']}" for each in found["failed"]]
    return "; ".join([text, *(f"left {each}" for each in left)])


def models(directory: Path, since: float) -> list[Path]:
    """The models saved in the directory since `since` (seconds since 1970), newest first."""
    found = [(path, _saved_at(path)) for path in _candidates(directory, DEPTH)]
    return [path for path, at in sorted(found, key=lambda each: -each[1]) if at >= since]


def _saved_at(model: Path) -> float:
    inside = model / "saved_model.pb"
    return (inside if inside.exists() else model).stat().st_mtime


def _candidates(directory: Path, depth: int) -> Iterator[Path]:
    if depth == 0 or not os.access(directory, os.R_OK | os.X_OK):
        return
    for entry in sorted(directory.iterdir()):
        if entry.is_symlink() or entry.name.startswith("workertemp_"):
            continue
        if entry.is_dir() and not (entry / "saved_model.pb").exists():
            yield from _candidates(entry, depth - 1)
        elif entry.is_dir() or entry.suffix in SUFFIXES:
            yield entry
