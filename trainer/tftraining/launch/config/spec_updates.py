"""Updates of the job's spec since this launcher was started: a file that the operator keeps up to date.

In a cluster the kubelet writes the file from an annotation of the pod, which only the operator may change. An update
must never end a training: an invalid one is logged once, and the spec so far stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tftraining.launch.config.json_text import parse
from tftraining.launch.config.settings import Settings
from tftraining.launch.config.settings_and_defaults import Gang, Policy, decode_updates

BYTES = 64 * 1024
SECONDS = 0.5  # between two reads of the file


class SpecUpdates:
    """The file of updates, read again and again. `say` logs an invalid file."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._path = settings.spec_updates_file
        self._settings = settings
        self._say = say
        self._seen = ""

    def poll(self) -> tuple[Gang, Policy] | None:
        """The present gang and policy, if the file has changed since the last call; else None."""
        text = _read(self._path)
        if not text or text == self._seen:
            return None
        self._seen = text
        try:
            return apply_update(self._settings, parse(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._say(f"tftraining: ignoring invalid spec update {self._path}: {error}")
            return None


def apply_update(settings: Settings, update: dict[str, Any]) -> tuple[Gang, Policy]:
    """The gang and the policy after the update; ValueError, TypeError or KeyError if the update is invalid."""
    policy, workers = decode_updates(update, settings.policy), int(update["workers"])
    gang = settings.gang.resized(workers)
    if settings.gang.chief not in gang.members:
        raise ValueError(f"a gang of {workers} workers lacks its chief")
    return gang, policy


def _read(path: Path | None) -> str:
    """The file's text, "" if it cannot be read."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            return file.read(BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
