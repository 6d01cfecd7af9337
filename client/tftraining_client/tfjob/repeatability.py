"""Commands of a shell that fail when they run again in the same container, as they do at each restart. Pure.

It names only what fails for certain, and where the failure ends the script: a false alarm costs more than a missed one.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_SEPARATORS = frozenset(";&|()\n")
_ASSIGNMENT = re.compile(r"\w+=")
_PREFIXES = ("exec", "sudo", "time", "env", "nohup")
_TESTS = ("[", "[[", "test")


@dataclass(frozen=True)
class Simple:
    """One simple command, and the operators on both sides of it ("" at the ends of the script)."""

    before: str
    words: tuple[str, ...]
    after: str


def unrepeatable(command: Sequence[str], arguments: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The commands in a container's command that cannot run twice, each with what mends it."""
    words = [*map(str, command), *map(str, arguments)]
    if not words or words[0].rsplit("/", 1)[-1] not in SHELLS:
        return []
    options = [each for each in words[1:] if each.startswith("-") and not each.startswith("--")]
    place = next((place for place, word in enumerate(words[1:], 2) if re.fullmatch(r"-\w*c", word)), len(words))
    if place == len(words):
        return []
    script = words[place]
    stops = any("e" in each for each in options) or re.search(r"\bset\s+-\w*e", script) is not None
    commands = _split(script)
    found = []
    for index, each in enumerate(commands):
        matters = stops or each.after == "&&" or index == len(commands) - 1
        if matters and each.after != "||" and not _is_guarded(commands[:index], each) and (fix := _fix(each.words)):
            found.append((" ".join(each.words), fix))
    return found


def _split(script: str) -> list[Simple]:
    """The simple commands of a script; none if it cannot be read."""
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    found: list[Simple] = []
    before, words = "", []
    for token in [*tokens, ""]:
        if token and not set(token) <= _SEPARATORS:
            words.append(token)
        else:
            operator = token.replace("\n", ";")[:2]
            if words:
                found.append(Simple(before, tuple(words), operator))
            before, words = operator, []
    return found


def _is_guarded(earlier: Sequence[Simple], command: Simple) -> bool:
    """Whether the command runs only if a test says so: `[ -d x ] || git clone …`, `if …; then`."""
    opened = sum((each.words[0] == "if") - (each.words[0] == "fi") for each in earlier)
    return opened > 0 or command.before == "||" or bool(earlier and earlier[-1].words[0] in _TESTS and command.before)


def _fix(words: Sequence[str]) -> str:
    """What mends a simple command that cannot run twice; "" if it can."""
    kept = list(words)
    while kept and (_ASSIGNMENT.match(kept[0]) or kept[0] in _PREFIXES):
        del kept[0]
    name = kept[0].rsplit("/", 1)[-1] if kept else ""
    return next((fix for known, fails, fix in _KNOWN if known == name and fails(kept[1:])), "")


def _has(words: Sequence[str], letters: str, *names: str) -> bool:
    """Whether one of the short options, alone or in a word with others, or one of the long ones is there."""
    return any(each in names for each in words) or bool(set(letters) & set(_letters(words)))


def _letters(words: Sequence[str]) -> Iterator[str]:
    for each in words:
        if re.fullmatch(r"-[A-Za-z]+", each):
            yield from each[1:]


_KNOWN: tuple[tuple[str, Callable[[Sequence[str]], bool], str], ...] = (
    ("mkdir", lambda words: not _has(words, "p", "--parents"), "mkdir -p"),
    ("git", lambda words: words[:1] == ["clone"], "rm -rf of the directory before it, or spec.code.git"),
    ("ln", lambda words: not _has(words, "f", "--force"), "ln -sfn"),
    (
        "cp",
        lambda words: _has(words, "rRa", "--recursive", "--archive") and not _has(words, "f", "--force"),
        "cp -rf: it fails on files that are read-only, and copies a directory into itself",
    ),
    ("tar", lambda words: "--keep-old-files" in words, "tar without --keep-old-files"),
    ("mv", lambda words: True, "cp -rf instead of mv: what it moved is gone"),
    ("unzip", lambda words: not _has(words, "onlptvzZ"), "unzip -o"),
    ("mkfifo", lambda words: True, "rm -f of the pipe before it"),
)
