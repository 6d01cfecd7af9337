"""What the chief's launcher says, taken into the status: restarts in place, their cost, progress.

The launchers restart by themselves; here is only told of it. A restart is news when the count of restarts in place has
risen, whatever the clocks of the pods say. A pod is not trusted: what it says changes the status of its own job only.
"""

from datetime import datetime, timedelta

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import pod_name
from tftraining_operator.model.report import LOST, Ledger, Report, Reported, Resumption
from tftraining_operator.model.status import Failure, LastRestart, Progress, Restarts, Status
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.no_progress import with_watchdog
from tftraining_operator.plan.words import resumed, resumption, what_happened

# How far the launcher's word on a lost pod and our own may be apart: a node that is lost is given up late.
SAME_INCIDENT = timedelta(minutes=10)
# The same where we name different ones of several that were lost together.
TOGETHER = timedelta(seconds=5)
# A clock that is ahead by more than this is no clock: the back-off goes by these times.
CREDIBLE = timedelta(minutes=5)


def take(job: Job, said: Report, now: datetime) -> Status:
    """The job's status with the launcher's account of its restarts in it."""
    status, last = job.status, said.last_restart
    news = said.ledger.in_place > status.restarts.in_place
    status = msgspec.structs.replace(status, restarts=merged(status.restarts, said.ledger))
    told = record_of(job, last) if last else None
    status = with_watchdog(status, said, told, now)
    if told is None or told.time > now + CREDIBLE:
        return status
    record = _merged_record(status.last_restart, told, news)
    if record is None:
        return status
    status = msgspec.structs.replace(status, last_restart=record)
    if news:
        status = _failed(job, status, said)
    if news and told.down_seconds is None and not told.alone and status.phase in ("Starting", "Running"):
        message = f"{what_happened(job.key.name, told)}; restarting in place"
        status = msgspec.structs.replace(status, phase="Restarting", reason=told.reason, message=message)
    return _resumed(status, record, now)


def record_of(job: Job, last: Resumption) -> LastRestart | None:
    """The launcher's account of a restart as the status has it; None if it does not say when that was."""
    if last.time is None:
        return None
    return LastRestart(
        time=last.time,
        pod=pod_name(job.key.name, last.member) if last.member else None,
        exit_code=last.exit_code,
        signal=last.signal,
        reason=last.reason or "Error",
        exception=last.exception or None,
        down_seconds=None if last.down_seconds is None else round(last.down_seconds, 2),
        resumed_from_epoch=last.resumed_from_epoch,
        resumed_from_step=last.resumed_from_step,
        lost_steps=last.lost_steps,
        alone=last.alone,
    )


def merged(restarts: Restarts, ledger: Ledger) -> Restarts:
    """The restarts as both know them: all counts only rise, but for those in a row, which the later account tells."""
    pods = max(restarts.pod_failures, ledger.pod_failures)
    counted = pods + max(restarts.counted - restarts.pod_failures, ledger.process_failures)
    refilled = max(restarts.counted - restarts.budget_used, ledger.refilled_at)
    account = ledger.in_place + ledger.process_failures + ledger.pod_failures, ledger.without_progress
    later = account > (restarts.in_place + restarts.counted, restarts.without_progress)
    told = ledger.process_failures >= restarts.counted - restarts.pod_failures  # only those can come in a row
    row = ledger.same_failure.same_failure() if ledger.same_failure else None
    return msgspec.structs.replace(
        restarts,
        counted=counted,
        in_place=max(restarts.in_place, ledger.in_place),
        budget_used=max(0, counted - refilled),
        without_progress=ledger.without_progress if later else restarts.without_progress,
        pod_failures=pods,
        same_failure=row if told else restarts.same_failure,
    )


def with_progress(old: Status, new: Status, said: Report | None) -> Status:
    """The new status with the progress of the report, unless a decision has set it. When it is written is not decided
    here (see plan/waiting.py)."""
    return new if new.progress != old.progress else with_latest(new, said)


def with_latest(status: Status, said: Report | None) -> Status:
    """The status with the progress of the report, whenever that is written."""
    if said is None or said.progress is None:
        return status
    return with_told(status, said.progress)


def with_told(status: Status, told: Reported) -> Status:
    """The status with that progress. Before a program that was started again is in an epoch it tells its steps only,
    and metrics it tells at the end of one: until then what is known stays, the newest checkpoint too."""
    old, new = status.progress or Progress(), told.progress()
    if new.epoch is None and old.epoch is not None:
        new = msgspec.structs.replace(new, epoch=old.epoch, epochs=new.epochs or old.epochs, display=old.display)
    saved = old.checkpoint if new.checkpoint is None else new.checkpoint
    new = msgspec.structs.replace(new, metrics=new.metrics or old.metrics, checkpoint=saved)
    return msgspec.structs.replace(status, progress=new)


def _merged_record(old: LastRestart | None, told: LastRestart, news: bool) -> LastRestart | None:
    """The record of the last restart with what the launcher says of it; None if it speaks of an earlier one."""
    if old is not None and told.reason in LOST and told.reason != old.reason and _is_same(old, told):
        # The pod that was given up: its end is known better here, and what came of it there.
        down = old.down_seconds if told.down_seconds is None else told.down_seconds
        cause = {each: getattr(old, each) for each in ("time", "pod", "exit_code", "signal", "reason", "exception")}
        return msgspec.structs.replace(told, **cause, down_seconds=down)
    return told if news or (old is not None and old.time == told.time) else None


def _is_same(old: LastRestart, told: LastRestart) -> bool:
    """Whether the loss that the launchers tell of is the one that is recorded."""
    return abs(old.time - told.time) < (SAME_INCIDENT if old.pod == told.pod else TOGETHER)


def _failed(job: Job, status: Status, said: Report) -> Status:
    """The failure behind a restart in place, kept for people."""
    culprit, last = said.failure, said.last_restart
    if culprit is None or last is None or culprit.member is None or culprit.member != last.member:
        return status
    failure = Failure(
        pod=pod_name(job.key.name, culprit.member),
        exit_code=culprit.exit_code,
        signal=culprit.signal,
        reason=culprit.reason or last.reason,
        exception=culprit.exception or None,
        log_tail=culprit.log_tail,
    )
    return msgspec.structs.replace(status, failure=failure)


def _resumed(status: Status, record: LastRestart, now: datetime) -> Status:
    """The condition Resumed, and from where progress counts from now on."""
    if record.resumed_from_epoch is None and record.resumed_from_step is None:
        return status
    restarts = status.restarts
    if record.resumed_from_epoch is not None:
        epoch = max(restarts.epoch or 0, record.resumed_from_epoch + 1)
        restarts = msgspec.structs.replace(restarts, epoch=epoch)
    if record.resumed_from_step:
        checkpoint = max(restarts.checkpoint or 0, record.resumed_from_step)
        restarts = msgspec.structs.replace(restarts, checkpoint=checkpoint)
    status = msgspec.structs.replace(status, restarts=restarts)
    kept = resumed(record)
    lost = f", {record.lost_steps} steps had to be done again" if record.lost_steps else ""
    why = ("Resumed" if kept else "StartedOver", f"{resumption(record)}{lost}")
    return with_condition(status, "Resumed", "True" if kept else "False", why, now)
