"""The exception that ended a Python program: the line of its last traceback that names the type.

Pure. It must never raise for anything that a program can print. What a traceback tells of an exception that ended
nothing (in a destructor, in a thread, at the exit) must never be taken for the program's end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LENGTH = 300  # of the line that is kept
FAR = 200  # lines after which a traceback is not the last word of the program any more; TensorFlow's have up to 100

_BAR = re.compile(r"^ +\| ?")  # in front of each line of an exception group
_HEADER = re.compile(r"^(?:  \+ )?(?:Exception Group )?Traceback \(most recent call last\)")
_NEXT_IN_GROUP = re.compile(r"^ +\+[-+]+ (?:\d+|\.\.\.) -+$")
# A type without a module begins with a capital letter, as all of Python's do: `loss: 0.3` is none.
_NAMED = re.compile(r"^(?:[A-Z]\w*|[A-Za-z_]\w*(?:\.[\w<>]+)+)(?::\s.*|:?)$")
_NAMED_AN_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)(?::\s.*|:?)$")
_ENDED_NOTHING = ("Exception ignored", "Exception in thread", "Error in atexit")


class LastException:
    """Takes in the lines of one stream as they come, however long the message of an exception is."""

    def __init__(self) -> None:
        self._line = ""
        self._unheaded = ""  # outside of any traceback: the end of one whose beginning is not known
        self._age = 0
        self._within = False
        self._aside = False
        self._before = ""

    @property
    def line(self) -> str:
        """`ValueError: boom`, "" if no traceback is among the last lines. Of a group the last of its exceptions."""
        return self._line if self._age <= FAR else ""

    @property
    def line_or_rest(self) -> str:
        """The same where the first lines are not known: a traceback may have lost its head."""
        return self.line or self._unheaded

    def see(self, text: str) -> None:
        """The next line."""
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
    """The same of the last lines of an output, which may begin in the middle of a traceback."""
    found = LastException()
    for line in lines:
        found.see(line)
    return found.line_or_rest
