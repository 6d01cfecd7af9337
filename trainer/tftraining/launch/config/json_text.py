"""Parses untrusted JSON: from a peer, a file, a program. Pure.

Python's parser raises RecursionError at some thousand opening brackets, which callers do not expect.
"""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """The parsed value; ValueError for invalid JSON, and for JSON that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
