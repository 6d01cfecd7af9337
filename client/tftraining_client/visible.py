"""Text of others as a terminal or a page may show it: a control character is shown, as kubectl does, and never obeyed.

A message, a name or a log line comes from whoever runs a job; its escape sequences would rewrite the reader's screen.
Pure. Objects in JSON and YAML keep their texts, escaped as those formats do.
"""

import re
from typing import Any

# With C1 controls, which terminals take for escape sequences, and those that reorder the text around them.
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_PLAIN = "\x1b[0m"


def visible(text: str) -> str:
    """The text with `^[` for an escape character, `\\r` for a carriage return; line feeds and tabs stay."""
    return _CONTROL.sub(_shown, text)


def visible_line(text: str) -> str:
    """The same in one line, with `\\n` for a line feed."""
    return visible(text).replace("\n", "\\n")


def visible_log_line(text: str) -> str:
    """A line of a program's log for a terminal: as a terminal shows it, in its colours; nothing else is obeyed."""
    parts = _COLOUR.split(_last_written(text))
    shown = "".join(part if number % 2 else visible(part) for number, part in enumerate(parts))
    return shown + _PLAIN if len(parts) > 1 else shown


def uncoloured_log_line(text: str) -> str:
    """A line of a program's log for a page."""
    return visible(_COLOUR.sub("", _last_written(text)))


def visible_object(value: Any) -> Any:
    """A copy of a JSON value with visible texts."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(name): visible_object(each) for name, each in value.items()}
    return [visible_object(each) for each in value] if isinstance(value, list | tuple) else value


def escaped_json(text: str) -> str:
    """JSON text with the control characters that JSON allows in it escaped: the value is the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _last_written(text: str) -> str:
    """What a carriage return has not overwritten, as for a progress bar."""
    return text.rstrip("\r").rpartition("\r")[2]


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == ord("\r"):
        return "\\r"
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
