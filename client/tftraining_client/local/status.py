"""What the launchers say of themselves: GET /status, over HTTP on this machine, and their last words in a file.

An answer that does not come, or is none, is no answer: the reader asks again.
"""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from tftraining_client.local.ports import HOST

SECONDS = 1.0
ANSWER_BYTES = 1 << 20
FIRST_LINE = "tftraining/1 "
Status = dict[str, Any]


async def ask(port: int) -> Status | None:
    """The /status of the launcher at this port, None if there is none just now."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _ask(port)
    except (OSError, ValueError, TimeoutError):
        return None


async def _ask(port: int) -> Status | None:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read(ANSWER_BYTES)).partition(b"\r\n\r\n")
        while chunk := await reader.read(ANSWER_BYTES):
            body += chunk
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    answer = json.loads(body) if b" 200 " in head.split(b"\r\n", 1)[0] else None
    return answer if isinstance(answer, dict) else None


def last_words(path: Path) -> Status:
    """The verdict that a launcher has left at its end; {} if it has left none."""
    try:
        line = path.read_text("utf-8", "replace").split("\n", 1)[0]
        found = json.loads(line.removeprefix(FIRST_LINE)) if line.startswith(FIRST_LINE) else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("verdict") else {}
