"""A Python command: its parts, and whether its interpreter imports the launcher's sitecustomize. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

PYTHON = re.compile(r"^python(\d+(\.\d+)*)?$")


@dataclass(frozen=True)
class Invocation:
    """`<python> <options> script.py <arguments>`, or `-m` and a module name instead of the script."""

    python: str
    options: tuple[str, ...]
    module: bool
    target: str
    arguments: tuple[str, ...]


def parse_invocation(command: Sequence[str]) -> Invocation | str:
    """Parse a Python command; a string is the reason why a fork cannot run it."""
    name = command[0].rpartition("/")[2]
    if not PYTHON.match(name):
        return f"{name} is not Python"
    rest = list(command[1:])
    options: list[str] = []
    while rest and rest[0] == "-u":
        options.append(rest.pop(0))
    if rest and rest[0] == "-m" and len(rest) > 1:
        return Invocation(command[0], tuple(options), True, rest[1], tuple(rest[2:]))
    if not rest or rest[0].startswith("-"):
        return f"python {rest[0]}" if rest else "python without a script"
    return Invocation(command[0], tuple(options), False, rest[0], tuple(rest[1:]))


# One option word of Python: flag letters, then at most one option that takes the rest of the word or the next word.
_OPTION = re.compile(r"-([a-zA-Z?]*?)(?:([cmWX])(.*))?", re.DOTALL)


def imports_sitecustomize(command: Sequence[str]) -> bool:
    """Whether the command is a Python that imports the launcher's sitecustomize; -E, -I and -S prevent that."""
    if not command or not PYTHON.match(command[0].rpartition("/")[2]):
        return False
    words = iter(command[1:])
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, None)
        if word.startswith("--"):
            continue
        if not (found := _OPTION.fullmatch(word)):
            break
        letters, last, argument = found.groups()
        if set(letters) & set("EIS"):
            return False
        if last in ("c", "m"):
            break
        if last and not argument:
            next(words, None)
    return True
