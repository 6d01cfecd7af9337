"""kopf's storage of the last handled state of each object, which this operator does not use.

kopf builds that state for each event, whether a handler needs it or not: two deep copies of the job."""

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Neither builds nor stores a state. Only for operators without kopf's creation and update handlers."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """The empty state."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """No object has a stored state."""

    def store(self, **_: Any) -> None:
        """Store nothing."""
