"""Running programs and reporting progress, for the lab.

Everything the lab says goes to standard error, so that standard output stays usable by scripts.
It must never hide a failure: a program that fails raises `LabError` with its name and its last lines.
"""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

QUIET_SECONDS = 3.0
REPEAT_SECONDS = 20.0


class LabError(RuntimeError):
    """One line that names what is wrong and how to put it right."""


class Impossible(LabError):
    """The lab cannot work on this machine at all: something that it needs is neither here nor can it be brought."""


def say(line: str) -> None:
    """Print one line for the person who waits."""
    print(f"[lab] {line}", file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Report `what` with its elapsed time if it takes longer than a person likes to wait in silence."""
    done = threading.Event()
    start = time.monotonic()

    def report() -> None:
        wait = QUIET_SECONDS
        while not done.wait(wait):
            say(f"{what} … ({time.monotonic() - start:.0f} s)")
            wait = REPEAT_SECONDS

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()
        elapsed = time.monotonic() - start
        if elapsed >= QUIET_SECONDS:
            say(f"{what}: {elapsed:.1f} s")


def run(
    command: Sequence[str | Path],
    *,
    stdin: str | bytes | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """Run a program to its end and return its standard output; LabError names it when it fails or takes too long."""
    words = [str(word) for word in command]
    source: dict[str, object] = {"stdin": subprocess.DEVNULL}
    if isinstance(stdin, str | bytes):
        source = {"input": stdin.encode() if isinstance(stdin, str) else stdin}
    elif stdin is not None:
        source = {"stdin": stdin}
    try:
        done = subprocess.run(words, capture_output=True, env=env, cwd=cwd, timeout=timeout, check=False, **source)  # type: ignore[call-overload]
    except FileNotFoundError as error:
        raise LabError(f"{words[0]} is not installed, or {cwd} is missing") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(words[:6])} did not end within {timeout:.0f} s") from error
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip()[-2000:]
        raise LabError(f"{' '.join(words[:8])} failed with exit code {done.returncode}: {tail}")
    return str(done.stdout.decode(errors="replace"))


def cache_dir() -> Path:
    """Return the lab's directory in the user's cache directory, made if missing."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tftraining"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _lock_file(name: str) -> IO[str]:
    return _lock_path(name).open("w")


def _lock_path(name: str) -> Path:
    path = cache_dir() / "locks" / name
    path.parent.mkdir(exist_ok=True)
    return path


def users_file(name: str) -> Path:
    """Return the file that each user of what has this name locks (flock), for a user that is no Python program."""
    return _lock_path(f"users-of-{name}")


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock of this name among all processes of this user's cache directory; it ends with the process."""
    with _lock_file(name) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that uses {name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def use(name: str) -> Iterator[None]:
    """Be one of the users of what has this name, until the block or the process ends."""
    with users_file(name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def used(name: str) -> bool:
    """Say whether anybody uses what has this name."""
    with users_file(name).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
