"""What the status and the events say of a gang: why it does not train yet, who trains, what restarts it, what failed.

The condition, the reason and the time from which such words hold are here, too; what the operator does is decided
elsewhere. Nothing but `with_failure` writes status.failure. Launchers, `tftj` and this module share
tftraining/launch/failure_and_restart_messages.py. How a pod ended is worded with the incident (plan/incident.py).
"""

import re
from datetime import datetime, timedelta

import msgspec

from tftraining.launch import failure_and_restart_messages as shared
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure_and_restart_messages import RESTARTING_ALONE, summarize_names
from tftraining_api.model.names import member_of
from tftraining_api.model.status import RESUMED_TRAINING_DIFFERS, LastFailure, LastRestart, Status
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import Report, ReportedFailure, ReportedResult
from tftraining_operator.model.observed import PULL_FAILED, UNSCHEDULABLE, Observed, Pod
from tftraining_operator.plan.gang import SortedPods, finished, is_done
from tftraining_operator.plan.incident import (
    DELETED,
    LEFT_NODE,
    LOST_WITH_NODE,
    NODE_CONDITION,
    RESIZED,
    RESTART_REQUESTED,
    Incident,
)
from tftraining_operator.plan.quota_request import WAITING_FOR_QUOTA
from tftraining_operator.plan.refused_writes import CREATION_REFUSED, EARLIER, in_words
from tftraining_operator.plan.storage_warning import STORAGE_IN_USE

_REASONS = {
    "Grown": "is back",
    "MemberLost": "became unreachable",
    NODE_CONDITION: LEFT_NODE,
    "NodeLost": LOST_WITH_NODE,
    "PodDeleted": DELETED,
    RESUMED_TRAINING_DIFFERS: "found that its resumed training differs from the undisturbed one",
    "Stalled": "stopped making steps",
    "Terminated": "was terminated",
}

IN_PLACE, RECREATING = "restarting in place", "recreating its pod"
_ASKED_FOR = {each.reason: each.message for each in (RESIZED, RESTART_REQUESTED)}
# Claims are bound, volumes and the network of a pod are ready within a few seconds; only later does the status say so.
PATIENCE = timedelta(seconds=20)
# A busy garbage collector removes the objects of a deleted job within this time.
COLLECTION = timedelta(seconds=30)
LATE = "this takes too long: check for finalizers, and that the node still exists"
_MORE = re.compile(r" \(and \d+ more\)$")
# The scheduler's message counts nodes, by what each lacks: the counts and their order change with every node.
_PLACE = re.compile(rf"({UNSCHEDULABLE})(.*?)((?: \(and \d+ more\))?)$", re.DOTALL)
_COUNT = re.compile(r"(?<!\S)\d+(?:/\d+)? ")
# The scheduler's message while a claim is being bound, or is created by the same `kubectl apply` as the job.
_CLAIM = re.compile(rf"{UNSCHEDULABLE}.*(?:persistent ?volume|\bvolume|\bpvc\b|not found)", re.DOTALL | re.IGNORECASE)
# The kubelet's message about a failed image pull changes with each try: a port, the number of a request.
_IMAGE = re.compile(rf"\S+: ((?:init )?container \S+: {PULL_FAILED} \(.*?\))")
# The end of a program, as its pod or its launcher tells it.
Ended = Incident | ReportedFailure | ReportedResult


def with_failure(status: Status, pod: str, ended: Ended, reason: str, log_tail: str | None) -> Status:
    """The status with status.failure, which nothing else writes: how the program in the pod of that name ended."""
    exception = ended.exception or None
    failure = LastFailure(
        pod=pod, exit_code=ended.exit_code, signal=ended.signal, reason=reason, log_tail=log_tail, exception=exception
    )
    return msgspec.structs.replace(status, failure=failure)


def what_happened(job: str, last: LastRestart) -> str:
    """`worker-1 was killed (SIGKILL)`."""
    if last.reason in _ASKED_FOR:
        return _ASKED_FOR[last.reason]
    who, reason, exception = member_of(job, last.pod or "") or "the gang", last.reason or "", last.exception or ""
    if reason in _REASONS:
        return f"{who} {_REASONS[reason]}"
    if last.exit_code is None and last.signal is None:
        return f"{who}: {exception}" if exception else f"{who} was restarted: {reason}"
    return shared.describe(who, Exit(last.exit_code, last.signal, kind=reason, exception=exception))


def resumption(last: LastRestart) -> str:
    """`resumed from epoch 2 after 1.1 s`; the epoch or step counts the completed ones."""
    where = shared.resumption(last.resumed_from, last.resumed_from_epoch, last.resumed_from_step)
    return shared.went_on(where, last.alone, None if last.down_seconds is None else f"{last.down_seconds:g}")


def lost_work(last: LastRestart) -> str:
    """`; 30 steps lost (2.1 s of training)`; empty if none or unknown."""
    return f"; {shared.lost_work(last.lost_steps, last.lost_seconds)}" if last.lost_steps else ""


def resumed(last: LastRestart) -> bool:
    """Whether the training resumed from a backup."""
    return bool(last.resumed_from_epoch or last.resumed_from_step)


def with_resumed(status: Status, last: LastRestart, now: datetime, after: str = "") -> Status:
    """The status with the condition Resumed, for programs that have told where they resumed."""
    kept = resumed(last)
    why = ("Resumed" if kept else "StartedOver", f"{resumption(last)}{after}{lost_work(last)}")
    return with_condition(status, "Resumed", "True" if kept else "False", why, now)


def account(job: str, last: LastRestart) -> str:
    """What happened, and what the launchers do or have done about it."""
    what = what_happened(job, last)
    if last.down_seconds is not None:
        return f"{what}; {resumption(last)}{lost_work(last)}"
    return f"{what}; {RESTARTING_ALONE if last.alone else IN_PLACE}"


def restarting_gang(attempt: int, wait: timedelta) -> str:
    """`restarting the gang in 4 s as attempt 2`."""
    return f"restarting the gang{_in(wait)} as attempt {attempt}"


def recreating_pod(others_train: bool, wait: timedelta = timedelta()) -> str:
    """`recreating its pod in 4 s; other members keep training`."""
    return f"{RECREATING}{_in(wait)}; other members {'keep training' if others_train else 'are waiting'}"


def _in(wait: timedelta) -> str:
    return f" in {wait.total_seconds():.0f} s" if wait else ""


def what_runs(report: Report | None) -> str:
    """What the members do that run, as far as their programs tell."""
    silent = report is not None and report.phase == "Training" and report.reason == shared.NO_STEP_YET
    return shared.NO_STEP_REPORTED if silent else "training"


def why_skipping(report: Report | None) -> str:
    """The input that the programs skip to where they resume, as an addition to the message of a gang that trains."""
    return f"; {shared.skipping_input(report.skipping)}" if report is not None and report.skipping else ""


def who_trains(gang: SortedPods, report: Report | None) -> str:
    """`3 replicas training`, and the members that have finished before the others, also those of which only a thread
    still runs."""
    told = frozenset(report.finished if report is not None else ())
    done = [str(each) for each in gang.wanted if is_done(gang, each) or str(each) in told]
    size = len(gang.wanted) - len(done)
    lingering = report.lingering if report is not None else ()
    return f"{size} replica{'s' * (size != 1)} {what_runs(report)}" + shared.done_before(done, lingering)


def training_begins(status: Status, report: Report | None) -> str:
    """`2/2 replicas training, 1.1 s after Killed`."""
    last = status.latest_restart
    again = f", {last.down_seconds:g} s after {last.reason}" if last and last.down_seconds is not None else ""
    return f"{status.ready} replicas {what_runs(report)}{again}"


def training_without(ready: str | None, why: str) -> str:
    """`2/3 replicas training; worker-1: image pull failed`."""
    return f"{ready} replicas training; {why}"


def training_with_fewer(size: int, wanted: int, why: str) -> str:
    """`training with 2 of 3 workers; waiting for worker-2 to start`; `why` is what keeps the others."""
    return f"training with {size} of {wanted} workers; {why}"


def why_incomplete(gang: SortedPods, observed: Observed, now: datetime) -> tuple[str, str]:
    """Reason (CamelCase) and message of a gang that does not train yet."""
    if observed.leftovers or (observed.refusal is not None and observed.refusal.message == EARLIER):
        return "Stopping", _left_over(observed, now)
    if (reason := _why_held(gang, observed)) is not None:
        return reason
    if gang.stale:
        late = [pod for pod in gang.stale if (due := _stop_due(pod)) is not None and now >= due]
        text = f"waiting for {summarize_names([_stopping(pod) for pod in late or gang.stale])} to stop"
        return "Stopping", f"{text}; {LATE}" if late else text
    waiting = [pod for pod in gang.pods if not pod.ready and not finished(pod)]
    held = [(pod.label, why) for pod in waiting if (why := why_not_started(pod, now))]
    if held:
        more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
        return "PodsNotReady", f"{held[0][0]}: {held[0][1]}{more}"
    if waiting:
        return "PodsStarting", f"waiting for {summarize_names([pod.label for pod in waiting])} to start"
    return "CreatingPods", "creating the pods"


def _why_held(gang: SortedPods, observed: Observed) -> tuple[str, str] | None:
    """Why the gang's pods may not be created; None if they may. Another job's use of the storage comes first."""
    if observed.storage.held and not gang.stale:
        return STORAGE_IN_USE, observed.storage.held
    if observed.quota is not None and not gang.stale:
        return WAITING_FOR_QUOTA, observed.quota.message
    refusal = observed.refusal
    return (CREATION_REFUSED, in_words(refusal)) if refusal is not None else None


def cause(message: str | None) -> str:
    """The part of the message that is news when it changes: without the number of other pods, the details of one try
    to pull an image, and the scheduler's counts of nodes."""
    message = message or ""
    if image := _IMAGE.match(message):
        return image[1]
    if place := _PLACE.search(message):
        return f"{place[1]}{_reasons(place[2])}"
    return _MORE.sub("", message)


def same_but_for_node_counts(old: str | None, new: str | None) -> bool:
    """Whether the messages differ in nothing but the scheduler's counts of nodes."""
    return _uncounted(old) == _uncounted(new)


def _uncounted(message: str | None) -> str:
    return _PLACE.sub(lambda found: f"{found[1]}{_reasons(found[2])}{found[3]}", message or "")


def _reasons(words: str) -> str:
    """The scheduler's reasons against nodes, without the counts."""
    return "; ".join(sorted({_COUNT.sub("", each) for each in re.split(r"[,:.] ", f"{words} ") if each}))


def why_no_evaluator(gang: SortedPods, observed: Observed) -> str:
    """What keeps the evaluator from starting, as an addition to the message of a gang that trains; "" if nothing
    does."""
    if gang.missing_evaluators and observed.refusal is not None:
        return f"; {in_words(observed.refusal)}"
    return next((f"; {pod.label}: {pod.waiting}" for pod in gang.evaluators if pod.waiting), "")


def is_late(message: str | None) -> bool:
    """Whether the message says that objects of an earlier job or attempt should have been removed by now."""
    return (message or "").endswith(LATE)


def look_again(gang: SortedPods, observed: Observed, now: datetime) -> datetime | None:
    """When the status has to name a pod that is being prepared, or an object of an earlier job or attempt."""
    due = [pod.created + PATIENCE for pod in gang.pods if pod.preparing or _CLAIM.match(pod.waiting)]
    due += [each.since + COLLECTION for each in observed.leftovers]
    due += [each for pod in gang.stale if (each := _stop_due(pod)) is not None]
    return min((each for each in due if each > now), default=None)


def why_not_started(pod: Pod, now: datetime) -> str:
    """What keeps the pod from starting; "" if nothing is known."""
    early = now < pod.created + PATIENCE
    if pod.waiting or not pod.preparing or early:
        return "" if early and _CLAIM.match(pod.waiting) else pod.waiting
    return f"volumes or network not ready{_unprepared(pod)}"


def _unprepared(pod: Pod) -> str:
    return f": {pod.unprepared}" if pod.unprepared else " (see kubectl describe pod)"


def _left_over(observed: Observed, now: datetime) -> str:
    late = [each.child for each in observed.leftovers if now >= each.since + COLLECTION]
    # The operator does not watch an object without its label: only the refusal of the API server names that object.
    known = [each.child for each in observed.leftovers] or ([observed.refusal.child] if observed.refusal else [])
    waiting = f"waiting for the deletion of objects of an earlier job of this name: {summarize_names(late or known)}"
    trouble = next((f"; {pod.waiting}" for pod in observed.earlier if pod.node_not_ready), "")
    return f"{waiting}{trouble}; {LATE}" if late else f"{waiting}{trouble}"


def _stop_due(pod: Pod) -> datetime | None:
    """When the pod should be gone; None if nobody has told it to go. One on a lost node is removed by force."""
    return None if pod.deletion_deadline is None or pod.node_lost else pod.deletion_deadline + COLLECTION


def _stopping(pod: Pod) -> str:
    where = f" on {pod.node}" if pod.node else ""
    return f"{pod.label} of attempt {pod.attempt}{where}"
