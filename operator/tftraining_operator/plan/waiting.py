"""Which changes of the status may be written a second later, with what is known by then.

A write of the status costs the API server as much as four pods: it evaluates every rule of the schema.
"""

import msgspec

from tftraining_operator.model.status import Status


def can_wait(old: Status, new: Status) -> bool:
    """Whether nothing is lost if the new status is not written now.

    A new job has no past that a crash could lose: it gets its children first, and is described after them.
    """
    if new.reason == "PodsNotReady" != old.reason:
        return False  # somebody waits for a training, and this says why it does not start
    return (old.phase, new.phase) == ("Pending", "Starting") or _only_counts(old, new)


def _only_counts(old: Status, new: Status) -> bool:
    """Whether nothing but numbers changed: those may wait, so that 200 pods do not cost 200 writes."""
    waiting = ("replicas", "ready", "message", "reason", "progress", "accepted_templates")
    numbers = {name: getattr(old, name) for name in waiting}
    values = [(each.type, each.status) for each in old.conditions]
    return values == [(each.type, each.status) for each in new.conditions] and (
        msgspec.structs.replace(new, **numbers, conditions=old.conditions) == old
    )
