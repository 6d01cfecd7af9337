"""Finds the exception that ended a Python program: its type and its cause (cause.py), from its last traceback.

Pure. It must never raise, whatever the program prints. It must never take an exception that did not end the program (in
a destructor, in a thread, at exit) for its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tftraining.launch.failure.cause import NAMED, cause_of

LENGTH = 300  # characters kept of the line
SOURCE = 100  # and of the line of the program
FAR = 200  # lines of output after which a traceback no longer explains the exit; TensorFlow's have up to 100

_BAR = re.compile(r"^ +\| ?")  # in front of each line of an exception group
_HEADER = re.compile(r"^(?:  \+ )?(?:Exception Group )?Traceback \(most recent call last\)")
_NEXT_IN_GROUP = re.compile(r"^ +\+[-+]+ (?:\d+|\.\.\.) -+$")
_FRAME = re.compile(r'^  File "(.*)", (line \d+), in (\S*)')
_OF_A_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen |/__autograph_generated_file")
_NAMED_AN_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)(?::\s.*|:?)$")
_ENDED_NOTHING = ("Exception ignored", "Exception in thread", "Error in atexit")


class _Raised:
    """A printed exception: the line that names its type, the last frame of the program, and the lines after it."""

    def __init__(self, head: str, place: str = "") -> None:
        self._head, self._place = head, place
        self._rest: list[str] = []  # begins with the rest of the message

    @property
    def far(self) -> bool:
        return len(self._rest) > FAR

    def see(self, line: str) -> None:
        if not self.far:
            self._rest.append(line)

    def told(self) -> str:
        return cause_of(self._head, self._rest, self._place)[:LENGTH] if self._head else ""


class LastException:
    """Parses one stream line by line, with exception messages of any length."""

    def __init__(self) -> None:
        self._last = _Raised("")
        self._unheaded = _Raised("")  # outside any traceback: the last one whose header is missing
        self._place = self._library = ""  # the last frame of the program, and the last one of a library within it
        self._at_frame = False  # the line before names the frame of the place; this one is its source
        self._within = False
        self._aside = False
        self._before = ""

    @property
    def line(self) -> str:
        """`ValueError: boom`; "" if the last lines hold no traceback. For an exception group, its last exception."""
        return "" if self._last.far else self._last.told()

    @property
    def line_or_rest(self) -> str:
        """Like `line`, but also finds a traceback whose header was cut off."""
        return self.line or self._unheaded.told()

    def see(self, text: str) -> None:
        """Parse the next line of the stream."""
        before, self._before = self._before, text
        body = _BAR.sub("", text)
        for raised in (self._last, self._unheaded):
            raised.see(body)
        if _HEADER.match(body):
            self._within, self._aside, self._place = True, before.startswith(_ENDED_NOTHING), ""
        elif _NEXT_IN_GROUP.match(text):
            self._within, self._place = True, ""
        elif not self._within and _NAMED_AN_ERROR.match(body):
            self._unheaded = _Raised(body)
        elif self._within and NAMED.match(body):
            self._within = False
            if not self._aside:
                self._last = _Raised(body, self._place + self._library)
        elif self._within and (frame := _FRAME.match(body)):
            self._see_frame(*frame.groups())
        elif self._at_frame:
            source = body.strip()
            cut = f"{source[:SOURCE]}…" if len(source) > SOURCE else source
            self._place += f": {cut}" if body.startswith("    ") else ""
            self._at_frame = False

    def _see_frame(self, path: str, line: str, function: str) -> None:
        self._at_frame = not (self._place and _OF_A_LIBRARY.search(path))
        if self._at_frame:
            self._place, self._library = f"{path.rpartition('/')[2]}, {line}", ""
        else:
            self._library = "" if function.startswith("<") else f", in {function}"


def exception_of(lines: Iterable[str]) -> str:
    """The exception in the last lines of an output, which may begin in the middle of a traceback."""
    found = LastException()
    for line in lines:
        found.see(line)
    return found.line_or_rest
