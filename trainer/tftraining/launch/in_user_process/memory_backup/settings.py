"""What the launcher tells the program about backups in memory, in the variable TFTRAINING_MEMORY_BACKUP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .room import Limits

SOURCE = "Memory"


class CopySettings:
    """Where to copy to, at which cost, and which copy to restore. Only `directory` and `percent` are always there."""

    def __init__(self, told: str, environment: Mapping[str, str]) -> None:
        settings: dict[str, Any] = json.loads(told)
        self.directory = str(settings["directory"])
        self.share = float(settings["percent"]) / 100
        restore = settings.get("restore")
        self.restore = (int(restore[0]), int(restore[1])) if restore else None  # round and step of a copy that all hold
        self.source = str(settings.get("source") or SOURCE)  # where this member has the copy to restore from
        self.fetching = bool(settings.get("fetching"))  # the launcher may still be fetching the file of that copy
        self.limits = _limits(settings)
        self.required = settings.get("exactness") == "Required"
        self.uid = str(settings.get("uid") or "")
        self.wait_steps = int(settings.get("waitSteps") or 0)  # the first copy comes after so many steps, or one epoch
        self.round = int(environment["TFTRAINING_ROUND"])
        self.sets_aside = settings.get("setsAside") is True  # spec.restartPolicy.onDivergence: Restore
        self._doubted = settings.get("doubted") or (0, 0)

    def doubts(self, step: int) -> bool:
        """Whether a backup of this step in the storage may have the difference of replicas for which the training went
        back: a copy in memory that is older is then better."""
        went_back_to, went_back_from = self._doubted
        return bool(went_back_to < step <= went_back_from)


def _limits(settings: Mapping[str, Any]) -> Limits | None:
    """The limits; None if the launcher knows of none, so that the memory is not judged."""
    if "memoryLimit" not in settings and "sizeLimit" not in settings:
        return None
    memory, size = settings.get("memoryLimit"), settings.get("sizeLimit")
    return Limits(None if memory is None else int(memory), None if size is None else int(size))
