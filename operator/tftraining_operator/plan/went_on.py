"""Where the training went on after the operator had made the whole gang anew: for a change of the spec, after a
suspension, when every pod was lost. Such launchers know of no restart, only of what was done before they began.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.report import Report, Reported
from tftraining_operator.model.status import LastRestart, Status
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.words import resumed, resumption


def with_place(status: Status, said: Report | None, now: datetime) -> Status:
    """The status of a gang that trains, with where it went on if its launchers say so and nobody has told of it."""
    began = said.progress if said is not None and said.phase == "Training" else None
    if said is None or said.last_restart is not None or began is None or _says_nothing(began):
        return status
    last = status.latest_restart
    if last is not None and (last.resumed_from_epoch, last.resumed_from_step) == (None, None) and not last.alone:
        last = _at(last, began)
        return _told(msgspec.structs.replace(status, last_restart=last), last, "", now)
    if last is None and status.attempt > 1:
        return _told(status, _at(LastRestart(time=now), began), ", after the suspension", now)
    return status


def _says_nothing(began: Reported) -> bool:
    return began.first_epoch is None and began.first_step is None


def _at(last: LastRestart, began: Reported) -> LastRestart:
    return msgspec.structs.replace(last, resumed_from_epoch=began.first_epoch, resumed_from_step=began.first_step)


def _told(status: Status, last: LastRestart, after: str, now: datetime) -> Status:
    kept = resumed(last)
    why = ("Resumed" if kept else "StartedOver", f"{resumption(last)}{after}")
    return with_condition(status, "Resumed", "True" if kept else "False", why, now)
