"""spec.restartPolicy.sameMemberLimit: counts the failures in a row of one member while the others are well. After so
many its next pod should be on another node: the last rung, after a restart in place and a new pod (first_step.py).

Pure; the operator uses it too (its plan/restart_policy.py). It must never count what another node would not cure: the
repeated exception of same_failure.py, the end of the memory, what a rule decides. Progress ends the row, for a restart
in place then costs less than a new pod; so does a failure of another member. Words of broken hardware in the end of the
member that failed first need no row: on that node a restart in place would fail again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tftraining.launch.failure.exit import OOM_KILLED, Exit, hardware_in
from tftraining.launch.failure.first_step import UNCLEAN

SUSPECTED = "NodeSuspected"  # the reason of a new pod that should be on another node
NEW_POD = (UNCLEAN, SUSPECTED)  # the reasons of a launcher that leaves for a new pod


@dataclass(frozen=True)
class SameMember:
    """The member that failed last, and how often in a row."""

    member: str = ""
    count: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SameMember:
        """The row from its JSON between launcher and operator; ValueError or TypeError if that is invalid."""
        return cls(str(raw.get("member", "")), int(raw.get("count", 0)))

    def to_json(self) -> dict[str, Any]:
        """The row as JSON between launcher and operator."""
        return {"member": self.member, "count": self.count}

    def with_failure(self, member: str, ended: Exit | None, limit: int, spoilt: bool = False) -> tuple[SameMember, str]:
        """The row after a failure that counts, and why the member should leave its node, in words; "" if it may stay.
        The row begins anew then. `ended` is None for a stall; a limit of 0 is off. A member whose container is `spoilt`
        gets a new pod first."""
        if not limit:
            return NO_ROW, ""
        if words := hardware_in(ended):
            return NO_ROW, f"{member} failed by its hardware: {words}"
        count = self.count + 1 if member == self.member else 1
        if count < limit or spoilt:
            return SameMember(member, count), ""
        times = f"{count} times in a row" if count > 1 else "once"
        return NO_ROW, f"{member} failed {times}, and no other member"


NO_ROW = SameMember()


def is_curable(ended: Exit | None) -> bool:
    """Whether another node may cure such a failure; None for a stall."""
    return ended is None or not (ended.success or ended.kind == OOM_KILLED)
