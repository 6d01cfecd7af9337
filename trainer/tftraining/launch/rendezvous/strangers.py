"""Connections whose peers have not proved yet that they belong to the job. Their number is bounded, and the places are
shared by address: a peer that floods a server takes places from itself, and keeps no other one out.

Pure: it must never touch a connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Strangers(Generic[_T]):
    """The connections of one server in the handshake."""

    def __init__(self) -> None:
        self._addresses: dict[_T, str] = {}
        self._by_address: dict[str, dict[_T, None]] = {}  # of each address the oldest first

    def __iter__(self) -> Iterator[_T]:
        return iter(self._addresses)

    def add(self, connection: _T, peer: tuple[object, ...] | None, limit: int) -> _T | None:
        """Add the connection of a peer (address and port). If there are more than `limit` then: the one to close, the
        oldest of the address that has the most."""
        address = self._addresses[connection] = str(peer[0]) if peer else ""
        self._by_address.setdefault(address, {})[connection] = None
        if len(self._addresses) <= limit:
            return None
        oldest = next(iter(self._by_address[max(self._by_address, key=lambda each: len(self._by_address[each]))]))
        self.remove(oldest)
        return oldest

    def remove(self, connection: _T) -> None:
        """Remove a connection: its peer is a member, or it is closed. Call it once or more."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            del self._by_address[address][connection]
            if not self._by_address[address]:
                del self._by_address[address]
