"""Which programs of the machine our code calls, as far as the text of the code says it.

It reads Python by its syntax tree, shell and Makefiles by their words. It must never run anything. A program whose
name is computed escapes it; so does one that is called inside a container.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

# What starts a program, or looks for it, by the words that it is given.
RUNNERS = re.compile(r"_?run|Popen|check_call|check_output|create_subprocess_exec|which|exec[lv]\w*")
# Of these, what takes a text as its first argument that names a program.
BY_NAME = re.compile(r"_run|create_subprocess_exec|which|exec[lv]\w*")
# What is named so is put in front of, or is, a command line.
COMMAND_NAMES = re.compile(r"command|wrapper|argv", re.IGNORECASE)
PROGRAM = re.compile(r"[A-Za-z_][\w.+-]*")
SHELLS = ("sh", "bash")
OPENERS = frozenset("{ ! do then else elif if while until exec".split())  # noqa: SIM905
REDIRECTION = re.compile(r"\d*[<>]+[&|]?")
BUILTINS = frozenset(
    ". : [ alias break case cd command continue done echo esac eval exit export false fi for in printf read return set "  # noqa: SIM905
    "shift source test trap true type ulimit umask unset wait } )".split()
)


class Call(NamedTuple):
    """One program that is called, and the line of it."""

    program: str
    line: int


def in_python(source: str) -> list[Call]:
    """The programs that this Python code calls."""
    nodes = list(ast.walk(ast.parse(source)))
    return [Call(program, line) for line, words in _command_lines(nodes) for program in _programs(words)]


def _command_lines(nodes: list[ast.AST]) -> Iterator[tuple[int, list[ast.expr]]]:
    """The line and the words of each command line, of those that stand in the code word by word."""
    assigned = list(_assigned(nodes))
    yield from ((value.lineno, value.elts) for name, value in assigned if COMMAND_NAMES.search(name))
    lists = dict(assigned)
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and RUNNERS.fullmatch(name := _last_name(node.func)):
            given = _resolved(node.args[0], lists)
            if isinstance(given, ast.List | ast.Tuple):
                yield node.lineno, [_resolved(word, lists) for word in given.elts]
            elif BY_NAME.fullmatch(name):
                yield node.lineno, [_resolved(word, lists) for word in node.args]


def _resolved(word: ast.expr, lists: dict[str, ast.List | ast.Tuple]) -> ast.expr:
    """The list that this name, or starred name, stands for; anything else as it is."""
    if isinstance(word, ast.Starred):
        return ast.Starred(_resolved(word.value, lists))
    return lists.get(word.id, word) if isinstance(word, ast.Name) else word


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.List | ast.Tuple]]:
    """The lists that are assigned to a name, attribute or item, or returned by a function that is named so."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.List | ast.Tuple):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((ast.unparse(target), node.value) for target in targets)
        elif isinstance(node, ast.FunctionDef) and COMMAND_NAMES.search(node.name):
            inner = [each.value for each in ast.walk(node) if isinstance(each, ast.Return | ast.Yield)]
            yield from ((node.name, value) for value in inner if isinstance(value, ast.List | ast.Tuple))


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _programs(words: list[ast.expr]) -> list[str]:
    """The programs of one command line: its first word, what follows a wrapper, and those of a shell's script."""
    if not words:
        return []
    if isinstance(words[0], ast.Starred):
        wrapper = words[0].value
        inner = wrapper.elts if isinstance(wrapper, ast.List | ast.Tuple) else []
        return [*_programs(inner), *_programs(words[1:2])]
    text = [_text(each) for each in words[:3]]
    script = text[2] if text[0] in SHELLS and text[1:2] == ["-c"] else ""
    return [*_first_word(text[0]), *in_shell(script)]


def _text(node: ast.expr) -> str:
    """The text of a constant, or of an f-string with something in place of what is computed; empty for all else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) or "computed" for each in node.values)
    return ""


def _first_word(text: str) -> list[str]:
    word = PurePath(text.split(maxsplit=1)[0]).name if text.strip() else ""
    return [word] if PROGRAM.fullmatch(word) else []


def in_shell(script: str) -> list[str]:
    """The programs that this shell script calls."""
    found, expected = [], True
    words = iter(_words(script))
    for word in words:
        found += [each for inner in re.findall(r"\$\(([^()]*)\)", word) for each in in_shell(inner)]
        if REDIRECTION.fullmatch(word):
            next(words, "")
        elif word in OPENERS or re.fullmatch(r"[;&|(\n]+", word):
            expected = True
        elif expected and not re.match(r"\w+\+?=", word):
            found += [] if word in BUILTINS or word.startswith("$") else _first_word(word)
            expected = False
    return found


def _words(script: str) -> Iterator[str]:
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    return iter(lexer)


def in_makefile(text: str) -> list[str]:
    """The programs that the recipes of this Makefile call, and the parts of them that are kept in variables."""
    joined = re.sub(r"\\\n\s*", " ", text)
    recipes = [line.lstrip("\t@-+") for line in joined.splitlines() if line.startswith("\t")]
    kept = [line.partition("=")[2] for line in joined.splitlines() if re.match(r"[A-Z_]+ = \{", line)]
    return [program for line in [*recipes, *kept] for program in in_shell(_expanded(line))]


def _expanded(line: str) -> str:
    """The line with a shell's variable for each of make's, so that a program that stands behind one is none of ours."""
    before = ""
    while before != line:
        before, line = line, re.sub(r"(?<!\$)\$\([^()]*\)", "$$made/", line)
    return line.replace("$$", "$")


def asked_for(source: str) -> set[str]:
    """The programs that this Python code asks for: the words of its calls of `need` and `need_or_skip`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    asking = [call for call in calls if _last_name(call.func) in ("need", "need_or_skip")]
    return {word for call in asking for argument in call.args if (word := _text(argument))}
