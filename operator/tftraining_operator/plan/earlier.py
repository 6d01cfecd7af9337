"""A job that goes on from the backup of an earlier run says so, once: nobody may take it for a training from the start.

Deleting a job cleans no storage, so a job that is made again in the same directory resumes there. The programs tell
where they began; it is an earlier run's work as long as this job has never been restarted nor suspended. The condition
Resumed remembers that it was told.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.report import Report
from tftraining_operator.model.status import Status
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.types import Note, Plan

REASON = "EarlierRun"


def announce(before: Status, step: Plan, said: Report | None, now: datetime) -> Plan:
    """The step, with the event and the condition where the training began with what an earlier run had left."""
    where = _began(said) if said is not None and _is_first(before, step.status, said) else ""
    if not where:
        return step
    message = f"the training goes on from {where} of an earlier run in the same directory"
    status = with_condition(step.status, "Resumed", "True", (REASON, message), now)
    return msgspec.structs.replace(step, status=status, notes=(*step.notes, Note("Normal", REASON, message)))


def _is_first(before: Status, after: Status, said: Report) -> bool:
    """Whether what trains is the first that this job has ever started."""
    restarted = after.last_restart is not None or said.last_restart is not None or after.attempt > 1
    return after.phase == "Running" and not restarted and before.condition("Resumed") is None


def _began(said: Report) -> str:
    """`epoch 3` if three are done already; empty if it began at the beginning, or does not say."""
    began = said.progress
    if said.phase != "Training" or began is None:
        return ""
    if began.first_epoch:
        return f"epoch {began.first_epoch}"
    return f"step {began.first_step}" if began.first_step else ""
