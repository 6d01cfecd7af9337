"""Finds the exception that ended a Python program: the line of its last traceback that names the type.

Pure. It must never raise, whatever the program prints. It must never take an exception that did not end the program (in
a destructor, in a thread, at exit) for its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LENGTH = 300  # characters kept of the line
FAR = 200  # lines of output after which a traceback no longer explains the exit; TensorFlow's have up to 100

_BAR = re.compile(r"^ +\| ?")  # in front of each line of an exception group
_HEADER = re.compile(r"^(?:  \+ )?(?:Exception Group )?Traceback \(most recent call last\)")
_NEXT_IN_GROUP = re.compile(r"^ +\+[-+]+ (?:\d+|\.\.\.) -+$")
# A type without a module begins with a capital letter, as all of Python's do; this excludes `loss: 0.3`.
_NAMED = re.compile(r"^(?:[A-Z]\w*|[A-Za-z_]\w*(?:\.[\w<>]+)+)(?::\s.*|:?)$")
_NAMED_AN_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)(?::\s.*|:?)$")
_ENDED_NOTHING = ("Exception ignored", "Exception in thread", "Error in atexit")


class LastException:
    """Parses one stream line by line, with exception messages of any length."""

    def __init__(self) -> None:
        self._line = ""
        self._unheaded = ""  # outside any traceback: the last line of one whose header is missing
        self._age = 0
        self._within = False
        self._aside = False
        self._before = ""

    @property
    def line(self) -> str:
        """`ValueError: boom`; "" if the last lines hold no traceback. For an exception group, its last exception."""
        return self._line if self._age <= FAR else ""

    @property
    def line_or_rest(self) -> str:
        """Like `line`, but also finds a traceback whose header was cut off."""
        return self.line or self._unheaded

    def see(self, text: str) -> None:
        """Parse the next line of the stream."""
        before, self._before = self._before, text
        self._age += 1
        body = _BAR.sub("", text)
        if _HEADER.match(body):
            self._within, self._aside = True, before.startswith(_ENDED_NOTHING)
        elif _NEXT_IN_GROUP.match(text):
            self._within = True
        elif not self._within and _NAMED_AN_ERROR.match(body):
            self._unheaded = body[:LENGTH]
        elif self._within and _NAMED.match(body):
            self._within = False
            if not self._aside:
                self._line, self._age = body[:LENGTH], 0


def exception_of(lines: Iterable[str]) -> str:
    """The exception in the last lines of an output, which may begin in the middle of a traceback."""
    found = LastException()
    for line in lines:
        found.see(line)
    return found.line_or_rest
