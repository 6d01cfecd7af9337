"""Sets and removes single conditions, and keeps the time of the last change of a condition's status."""

from datetime import datetime

import msgspec

from tftraining_api.model.status import Condition, ConditionStatus, Status


def with_condition(status: Status, kind: str, value: ConditionStatus, why: tuple[str, str], now: datetime) -> Status:
    """The status with the condition set; `why` is its reason (CamelCase) and its message."""
    old = status.condition(kind)
    since = old.last_transition_time if old and old.status == value else now.replace(microsecond=0)
    new = Condition(type=kind, status=value, last_transition_time=since, reason=why[0], message=why[1])
    if old is None:
        return msgspec.structs.replace(status, conditions=(*status.conditions, new))
    kept = tuple(new if each.type == kind else each for each in status.conditions)
    return msgspec.structs.replace(status, conditions=kept)


def without_condition(status: Status, kind: str) -> Status:
    """The status without the condition, for a state that is unknown or not applicable."""
    return msgspec.structs.replace(status, conditions=tuple(each for each in status.conditions if each.type != kind))
