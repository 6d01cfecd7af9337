"""What the program tells its launcher about backups in memory: `report.json` in their directory, replaced by rename."""

from __future__ import annotations

import json
import os
from typing import Any

NAME = "report.json"


class Report:
    """The report of one training of this process. Writing it never fails: the next one may succeed."""

    def __init__(self, directory: str, number: int) -> None:
        self._directory = directory
        self._fields: dict[str, Any] = {
            "round": number,
            "on": False,
            "reason": "",
            "resumed": None,
            "epochResumed": "",
        }
        self._written = ""

    def tell(self, **fields: Any) -> None:
        """Change these fields, and write the report if it is another one now."""
        self._fields.update(fields)
        self._write()

    def tell_end(self, reason: str) -> None:
        """Say that there are no copies any more."""
        for name in ("step", "time", "bytes"):
            self._fields.pop(name, None)
        self.tell(on=False, reason=reason)

    def _write(self) -> None:
        text = json.dumps(self._fields)
        if text == self._written:
            return
        new = os.path.join(self._directory, f"{NAME}.new")
        try:
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(new, os.path.join(self._directory, NAME))
            self._written = text
        except OSError:
            pass
