"""JSON that comes from somebody else: a peer, a file, a program. Pure.

At some thousand opening brackets Python's parser gives up with a RecursionError, which no caller expects of a parser.
"""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """The value; ValueError for what is no JSON, and for what is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
