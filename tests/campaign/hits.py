"""The faults that have struck so far, as several threads note and read them."""

import threading

from tests.campaign.oracle import Hit


class Hits:
    """The newest state of each fault, by its number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits: dict[str, Hit] = {}

    def note(self, hit: Hit) -> None:
        """A fault that begins, or what is known of it at its end."""
        with self._lock:
            self._hits[hit.number] = hit

    def all(self) -> list[Hit]:
        """All faults, in the order in which they began."""
        with self._lock:
            return list(self._hits.values())
