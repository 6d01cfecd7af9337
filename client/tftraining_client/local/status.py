"""Reads the state of the launchers: GET /status over HTTP, and the termination message in a file.

A missing or malformed answer counts as no answer: the caller asks again.
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


async def fetch_status(port: int) -> Status | None:
    """The /status of the launcher at this port; None without a valid answer within SECONDS."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _fetch_status(port)
    except (OSError, ValueError, TimeoutError):
        return None


async def _fetch_status(port: int) -> Status | None:
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


def read_result(path: Path) -> Status:
    """What a launcher left in its termination message: the verdict, or why it left without one; {} if nothing."""
    try:
        line = path.read_text("utf-8", "replace").split("\n", 1)[0]
        found = json.loads(line.removeprefix(FIRST_LINE)) if line.startswith(FIRST_LINE) else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
