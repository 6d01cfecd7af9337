"""What the launcher tells the program about backups in memory, in the variable TFTRAINING_MEMORY_BACKUP."""

from __future__ import annotations

import json
from collections.abc import Mapping

from . import call_site


class Settings:
    """Where to copy to, at which cost, and which copy all members hold."""

    def __init__(self, told: str, environment: Mapping[str, str]) -> None:
        settings = json.loads(told)
        self.directory = str(settings["directory"])
        self.share = float(settings["percent"]) / 100
        restore = settings.get("restore")
        self.restore = (int(restore[0]), int(restore[1])) if restore else None
        self.round = int(environment["TFTRAINING_ROUND"])
        self.variables = call_site.environment_fingerprint(environment)
