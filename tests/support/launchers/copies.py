"""Copies of a training state as a program leaves them, for tests of the launchers."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tftraining.launch.in_user_process.memory_backup import copy_file


def state_of(step: int, size: int) -> bytes:
    """A state that differs in every step."""
    word = hashlib.sha256(str(step).encode()).digest()
    return (word * (size // len(word) + 1))[:size]


def write_copy(directory: Path, number: int, step: int, size: int = 1000) -> Path:
    """A complete copy of that round and step beside those that are there."""
    slots = copy_file.Slots(str(directory), size, None)
    file = directory / "free-test"
    with file.open("wb") as stream:
        stream.truncate(copy_file.HEAD + size)
    slots._files = [(file.name, slots._map(file.name))]
    buffer = slots.begin()
    buffer[copy_file.HEAD :] = state_of(step, size)
    slots.commit(number, step, {"step": step, "exponent": 4})
    return directory / copy_file.name_of(number, step)


def is_whole(path: Path, step: int) -> bool:
    """Whether the file is the copy of that step that `write_copy` makes."""
    state = path.read_bytes()[copy_file.HEAD :]
    return state == state_of(step, len(state))
