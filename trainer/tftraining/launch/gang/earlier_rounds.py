"""Whether a round that an earlier launcher of the chief began may still run.

Pure. The chief's launcher may be replaced while members live on. The new one knows of the rounds before only what these
members tell it, and a member that it cannot reach may still run one.
"""

from __future__ import annotations

import math

from tftraining.launch.gang.membership import Membership

# How long programs of an earlier chief's launcher may run after the last member has left it, in member timeouts.
AFTER_BYE = 1.0  # it said goodbye to a member: the leases of the others end
AFTER_CLOSE = 1.5  # all others saw their connection end: it drops them after one timeout, and checks six times in one
AFTER_SILENCE = 3.0  # it may have been stopped for almost one timeout, and have granted leases of almost one more


class EarlierRounds:
    """The rounds before this launcher of the chief began, at `now`."""

    def __init__(self, membership: Membership, now: float) -> None:
        self._membership = membership
        self._created_at = now
        self._last_departure_at = -math.inf  # when a member last left an earlier launcher of the chief

    def record_departure(self, at: float) -> None:
        """Note when a member that knows of earlier rounds left its chief's launcher."""
        self._last_departure_at = max(self._last_departure_at, at)

    def may_run(self, number: int, now: float) -> bool:
        """Whether round `number`, the last one, 0 for none, may still run.

        It cannot if all others were in that round and the chief's launcher said goodbye to them. Otherwise enough time
        must pass since the last of them left it: while it hears one of them, it may go on.
        """
        timeout, chief = self._membership.policy.member_timeout_seconds, self._membership.chief
        others = [peer.hello for name, peer in self._membership.gang.items() if name != chief]
        if not number or all(hello.chief_bye_round == number for hello in others):
            return False
        if any(hello.chief_bye_round == number for hello in others):
            return now < self._last_departure_at + AFTER_BYE * timeout
        if all(hello.chief_closed_round == number for hello in others):
            return now < self._last_departure_at + AFTER_CLOSE * timeout
        # If it died, the leases of members that are not here yet still ran for one timeout.
        return now < max(self._last_departure_at + AFTER_SILENCE * timeout, self._created_at + timeout)
