"""A hostile process swaps directories and links while the cleanup walks: nothing outside the job's directory is lost.

The process owns the job's directory, and so may rename and link whatever it likes in it. It never stops: the cleanup
meets each swap at any of its steps. The counts at the end show that it was hit before, between and after its looks.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pytest

from tftraining import cleanup

MOST_TRIES = 1000
# Argument 1 is the job's directory, 2 that of somebody else. Each place is swapped for a link to the same place there,
# and back; a hard link to each file there appears inside. The parent closes the standard input at the end.
HOSTILE = r"""
import os, select, sys
root, other = sys.argv[1:]
places = ["workertemp_1", "workertemp_1/deep", "workertemp_1/deep/deeper", "backup", "backup/workertemp_1"]
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for number, place in enumerate(places):
        path, aside, link = f"{root}/{place}", f"{root}/aside_{number}", f"{root}/link_{number}"
        for action in (
            lambda: os.symlink(f"{other}/{place}", link),
            lambda: os.rename(path, aside),
            lambda: os.rename(link, path),
            lambda: os.unlink(path),
            lambda: os.rename(aside, path),
            lambda: os.link(f"{other}/workertemp_1/precious", f"{path}/hard"),
        ):
            try:
                action()
            except OSError:
                pass
"""


def populate(root: Path) -> None:
    for save_dir in (root, root / "backup"):
        deeper = save_dir / "workertemp_1" / "deep" / "deeper"
        deeper.mkdir(parents=True, exist_ok=True)
        for directory in (deeper, deeper.parent, deeper.parent.parent):
            (directory / "precious").write_text("mine")


def everything_in(directory: Path) -> dict[str, str]:
    """Every path below the directory, with the content of files; links as what they are."""
    found = {}
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            place = Path(path, name)
            found[str(place.relative_to(directory))] = place.read_text() if place.is_file() else "directory"
    return found


@contextmanager
def hostile(root: Path, other: Path) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOSTILE, root, other], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@pytest.mark.parametrize("tries", [150, pytest.param(MOST_TRIES, marks=pytest.mark.slow_fault)])
def test_nothing_outside_is_lost_in_races(tries: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, other = tmp_path / "training" / "my-job", tmp_path / "training" / "other-job"
    root.mkdir(parents=True)
    populate(other)
    before, met = everything_in(other), Counter[str]()
    with hostile(root, other):
        for count in range(10 * MOST_TRIES):
            if count >= tries and met["removed"] and swaps(met):
                break
            for _ in range(3):  # the hostile process is in the way of this, too
                try:
                    populate(root)
                    break
                except OSError:
                    continue
            run = cleanup.Cleanup(deadline=time.monotonic() + 60)
            run.clean(PurePosixPath(root), [PurePosixPath(each) for each in (".", "backup")], [1])
            met["removed"] += run.removed
            met.update(each["error"] for each in run.failed)
            assert everything_in(other) == before
    capsys.readouterr()
    print(dict(met))
    assert met["removed"] > 0
    assert swaps(met) > 0, "no swap was met"


def swaps(met: Counter[str]) -> int:
    """How many swaps the cleanup has met."""
    return met["a symbolic link; skipped"] + met["Not a directory"]
