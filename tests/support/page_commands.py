"""The commands of a page of the documentation, split as a shell splits them.

A command is a line of a block without a language, or of `sh` or `bash`; an indented line; or an inline span that begins
with a program. Output stands in blocks of the language `text`, where `$ ` begins what somebody types.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
PROGRAMS = ("tftj", "kubectl", "kubectl-tftj", "helm", "make", "docker", "kind", "python", "pip")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
# What a shell substitutes, and what a reader does: <where you pushed the image>.
_SUBSTITUTION = re.compile(r"\$\([^)]*\)|<[a-z][^<>\n]*>")
_SEPARATORS = ";&|\n"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command with its words; `whole` unless an inline span may only mention it."""

    page: str
    words: tuple[str, ...]
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"

    @property
    def program(self) -> str:
        """`tftj` for `.venv/bin/tftj`."""
        return self.words[0].rpartition("/")[2]


def _text(page: Path, section: str) -> str:
    """The page, or its section of that heading of the second level."""
    text = page.read_text(encoding="utf-8")
    if not section:
        return text
    _, found, rest = text.partition(f"\n## {section}\n")
    assert found, f"{page.name} has no section {section}"
    return rest.partition("\n## ")[0]


def blocks(page: Path, section: str = "") -> list[Block]:
    """The fenced blocks of the page or of a section, without their indentation."""
    found = FENCE.findall(_text(page, section))
    return [Block(language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in found]


def commands(page: Path, section: str = "") -> Iterator[Command]:
    """All commands of the page or of a section."""
    for block in blocks(page, section):
        if block.language in ("", "sh", "bash"):
            yield from (Command(page.name, words) for words in split(block.text))
        elif block.language == "text":
            typed = "\n".join(re.findall(r"^\$ (.*)$", block.text, re.MULTILINE))
            yield from (Command(page.name, words) for words in split(typed))
    rest = FENCE.sub("", _text(page, section))
    for line in INDENTED.findall(rest):
        yield from (Command(page.name, words) for words in split(line) if _is_command(words))
    for span in SPAN.findall(INDENTED.sub("", rest)):
        # Prose has apostrophes and placeholders, which no shell splits.
        if span.split()[0].rpartition("/")[2] in PROGRAMS and len(span.split()) > 1:
            yield from (Command(page.name, words, whole=False) for words in split(" ".join(span.split())))


def _is_command(words: tuple[str, ...]) -> bool:
    return words[0].rpartition("/")[2] in PROGRAMS


def split(text: str) -> Iterator[tuple[str, ...]]:
    """The commands of a script; assignments before a command and redirections of its output are left out."""
    plain = _SUBSTITUTION.sub("SUBSTITUTED", _COMMENT.sub("", text.replace("\\\n", " ")))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=f"{_SEPARATORS}<>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    skip = False
    for token in [*lexer, "\n"]:
        if set(token) <= {*_SEPARATORS}:
            if words:
                yield tuple(words)
            words = []
        elif set(token) <= {"<", ">"}:
            skip = True
        elif skip:
            skip = False
        elif words or not re.match(r"[A-Z_]+=", token):
            words.append(token.rstrip("…"))
