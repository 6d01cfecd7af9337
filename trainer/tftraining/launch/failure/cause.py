"""Finds the part of a program's last output that tells the cause of its end: for people, and for same_failure.py.

Pure. TensorFlow and Keras begin most messages with a frame that nearly all errors share ("in user code:", "Graph
execution error:"), and the cause follows lines of stacks later. It must never raise, whatever the program prints. A
message of an unknown form stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

TEXT = 2000  # characters of a message that are looked at
FRAMES = 8  # unwrapped one after the other

# A type without a module begins with a capital letter, as all of Python's do; this excludes `loss: 0.3`.
NAMED = re.compile(r"^(?:[A-Z]\w*|[A-Za-z_]\w*(?:\.[\w<>]+)+)(?::\s.*|:?)$")
_TENSORFLOW = "tensorflow.python.framework.errors_impl."
_ABOUT_THE_CALL = re.compile(r"^(?:Call a|A)rguments received by ")
_NODE_OF_THE_GRAPH = re.compile(r"^Detected at node (\S+) defined at ")
_END_OF_THE_GRAPH = re.compile(r"^\s*\[\[")
_FETCHES_DATA = re.compile(r"Iterator\w*GetNext")
_STACK = re.compile(
    r"^\s*(?:File \"|<stack traces unavailable>|Detected at node |\d+ root error|tf2xla conversion failed)"
)
# Lines that tell more than the last one: of a lost peer, of XLA, of several errors at once.
_TELLING = re.compile(
    r"^(?:.*(?=Collective ops is aborted by)|(?=Detected unsupported operations)|\s*\(0\) [A-Z_]+:\s*)"
)
# The line goes on below: a list, an array, or a half sentence.
_UNFINISHED = re.compile(r"(?:[:=(]|\[[^\])]*)$")
_SIZES = re.compile(r"'\w+' sizes: ")  # Keras 3 names arrays of unequal length line by line
_NOISE = (
    (re.compile(r"^\{\{function_node [^}]*\}\} *"), ""),
    (re.compile(r"^Error in user-defined function passed to .*? with iterator: [\w:\[\]]*\w: "), ""),
    (re.compile(r" *\[Op:[^\]]*\](?: name:.*)?$"), ""),
    (re.compile(r"(?<=\))\{\{node [^}]*\}\}"), ""),
    (re.compile(r"\{\{node ([^}]*)\}\}"), r"\1"),
    (re.compile(r"\s+Label values: .*$"), ""),  # of the whole batch
    (re.compile(r"^ *: "), ""),  # tf.debugging.enable_check_numerics
)
_NUMBER = r"[-+]?\d[\d.e+-]*"
# Arrays differ from batch to batch, and fill the line: rows of fractions, and any eight numbers.
_FRACTIONS = re.compile(r"\[[\[\s]*[-+]?\d+\.[\de+-]*(?:[\s,]+[^\]]*|)(?:\]|$)(?:\.\.\.)?")
_EIGHT_NUMBERS = re.compile(rf"\[*(?:{_NUMBER}[\s,\[\]]+){{7,}}(?:{_NUMBER}\]*)?(?:\.\.\.\]*)?")
_CUT_ARRAYS = re.compile(r"(?:\[…\]+[\s,]*)+")

# Lines of TensorFlow's own log, as absl or its older logger prints them; those of a program's absl.logging name a file
# of Python. A fatal one (F) tells the end of the program.
_LOG = re.compile(
    r"^(?:[IWE]\d{4} [\d:]+\.\d+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] )\S+\.(?:cc|cpp|cu|h):\d+\] "
)
_LOG_GOES_ON = (
    "WARNING: All log messages before absl::InitializeLog()",
    "To enable the following instructions: ",
    "Skipping registering GPU devices",
)
_ERROR_OF_NO_GPU = re.compile(r"cuda_\w+\.cc|cudart_stub|port\.cc|cuInit|Unable to register cu|computation_placer")
_FATAL = re.compile(r"^(?:F\d{4} .*?\] |\d{4}-.*?: F .*?\] |(?=Fatal Python error: )|(?=terminate called ))")


def cause_of(head: str, rest: Sequence[str], place: str = "") -> str:
    """`ValueError: the cause`, from the line that names the exception and the `rest` of its message. `place` is told of
    an exception without a message, or with no more than a key."""
    name, _, text = head.partition(":")
    lines = [text.strip(), *(line for line in rest if not is_log(line))]
    for _ in range(FRAMES):
        inner = _unwrap(name, lines)
        if inner is None:
            break
        name, lines = inner
    framed = lines[0].startswith(tuple(_FRAMES))  # its cause has not been printed, or in an unknown form
    text, name = lines[0] if framed else _sentence(lines), name.removeprefix(_TENSORFLOW)
    told = f"{name}: {text}" if text else name
    return f"{told} ({place})" if place and (not text or name == "KeyError") else told


def is_log(line: str) -> bool:
    """Whether the line is one of TensorFlow's own log, which is no cause of an end."""
    return bool(_LOG.match(line)) or line.startswith(_LOG_GOES_ON)


def is_below(line: str, level: str) -> bool:
    """Whether a TF_CPP_MIN_LOG_LEVEL of this value hides the line of TensorFlow's own log. TensorFlow ignores the
    variable while it is imported."""
    if not is_log(line) or not level.isdigit():
        return False
    severity = line[0] if line[:1] in "IWE" else line.partition(": ")[2][:1]
    return "IWE".find(severity if _LOG.match(line) else "I") < int(level)


def is_noise(line: str) -> bool:
    """Whether the line is one of TensorFlow's own log that says nothing about a failure."""
    return is_log(line) and (not _is_error(line) or bool(_ERROR_OF_NO_GPU.search(line)))


def fatal_line(lines: Sequence[str]) -> str:
    """What a process says that ends itself by a signal (a failed check, an uncaught C++ exception); "" if nothing."""
    found = (_FATAL.sub("", line) for line in reversed(lines) if _FATAL.match(line))
    return next(found, "")


def _is_error(line: str) -> bool:
    return line.startswith("E") or ": E " in line[:40]


def _unwrap(name: str, lines: list[str]) -> tuple[str, list[str]] | None:
    """The exception within a frame; None if the first line is no frame, or none is found."""
    for begin, find in _FRAMES.items():
        if lines[0].startswith(begin):
            return find(name, lines)
    return None


def _in_user_code(_: str, lines: list[str]) -> tuple[str, list[str]] | None:
    inner = [line[4:] if line.startswith("    ") else "" for line in lines]
    named = next((number for number, line in enumerate(inner) if NAMED.match(line)), None)
    if named is None:
        return None
    name, _, text = inner[named].partition(":")
    return name, [text.strip(), *inner[named + 1 :]]


def _in_the_graph(name: str, lines: list[str]) -> tuple[str, list[str]] | None:
    end = next((number for number, line in enumerate(lines) if number and _END_OF_THE_GRAPH.match(line)), len(lines))
    told = [line for line in lines[1:end] if line.strip() and not _STACK.match(line)]
    telling = next((_TELLING.sub("", line) for line in told if _TELLING.match(line)), told[-1] if told else "")
    nodes = (found.group(1) for line in lines[:end] if (found := _NODE_OF_THE_GRAPH.match(line)))
    return (name, [_with_node(telling, next(nodes, ""))]) if telling else None


def _with_node(text: str, node: str) -> str:
    """A short text does not tell where; the nodes that fetch the data say nothing."""
    text = _clean(text)
    told = len(text) < 100 and 0 < len(node) < 60 and not _FETCHES_DATA.search(node) and node not in text
    return f"{text} (at {node})" if told else text


def _in_a_call(name: str, lines: list[str]) -> tuple[str, list[str]] | None:
    return _after(name, lines, lambda line: True)


def _in_an_inference(name: str, lines: list[str]) -> tuple[str, list[str]] | None:
    return _after(name, lines, lambda line: line.rstrip().endswith("Error encountered:"))


def _after(name: str, lines: list[str], mark: Callable[[str], bool]) -> tuple[str, list[str]] | None:
    """What follows the first line that has the mark, without the arguments of the call."""
    begin = next((number + 1 for number, line in enumerate(lines) if mark(line)), len(lines))
    while begin < len(lines) and not lines[begin].strip():
        begin += 1
    if begin == len(lines) or _ABOUT_THE_CALL.match(lines[begin]):
        return None
    return name, [lines[begin].strip(), *lines[begin + 1 :]]


_FRAMES = {
    "in user code:": _in_user_code,
    "Graph execution error:": _in_the_graph,
    "Exception encountered when calling": _in_a_call,
    "Could not automatically infer the output": _in_an_inference,
}


def _sentence(lines: list[str]) -> str:
    """The first line; with the paragraph that follows it if the line breaks off."""
    text = _clean(lines[0])
    if _SIZES.search(text):
        text = ", ".join([text, *(line.strip() for line in lines[1:] if _SIZES.match(line.strip()))])
    elif _UNFINISHED.search(text):
        text = " ".join([text, *_paragraph(lines[1:])])
    text = _EIGHT_NUMBERS.sub("[…] ", _FRACTIONS.sub("[…]", text[:TEXT]))
    return _CUT_ARRAYS.sub("[…] ", text).strip()


def _clean(text: str) -> str:
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text[:TEXT])
    return text.strip()


def _paragraph(lines: list[str]) -> list[str]:
    told: list[str] = []
    for line in lines:
        if (told and not line.strip()) or (_END_OF_THE_GRAPH.match(line) and "{{node" in line):
            break
        told += [line.strip()] if line.strip() else []
    return told
