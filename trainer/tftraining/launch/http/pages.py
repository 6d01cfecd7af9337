"""The content of /status and /readyz, computed from the launcher's state. Pure.

It must not change while nothing happens, clocks aside: the operator writes each change to the API server.
"""

from __future__ import annotations

from typing import Any

from tftraining.launch import failure_and_restart_messages as messages
from tftraining.launch.config.settings import Settings
from tftraining.launch.failure.exit import bounded, exit_to_status
from tftraining.launch.failure.incident import Incident
from tftraining.launch.gang import backup_summary
from tftraining.launch.gang.aftermath import only_serves
from tftraining.launch.gang.agreed_copy import AgreedCopy
from tftraining.launch.gang.backup_report import MEMORY, STORAGE
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.replica_comparison import ReplicaComparison
from tftraining.launch.progress import (
    Snapshot,
    fit_step,
    is_training,
    lost_seconds,
    lost_steps,
    resumed_step,
    rfc3339,
    to_status,
)
from tftraining.launch.rendezvous.program_control import ProgramControl
from tftraining.launch.roles import is_outside_gang

MOST_NAMES = 16  # of the members in a list that the operator shortens for people
START = "Start"  # the source of a round that has found neither a copy nor a checkpoint


def member_status(control: ProgramControl, settings: Settings) -> dict[str, Any]:
    """The part of /status about this member. `firstStepMonotonic` is this machine's CLOCK_MONOTONIC, for benchmarks."""
    snapshot = control.program.snapshot()
    return {**_member_fields(control, settings, snapshot), "progress": to_status(snapshot)}


def _member_fields(control: ProgramControl, settings: Settings, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": 1,
        "job": dict(settings.job),
        "attempt": settings.attempt,
        "member": settings.gang.me,
        "chief": settings.is_chief,
        "incarnation": control.incarnation,
        "round": control.round,
        "phase": {"running": "Training" if snapshot.first_step_time else "Starting"}.get(control.state, "Waiting"),
        "state": control.state,
        "pid": control.program.pid,
        "mode": control.program.mode,
        "gpus": control.program.gpu_count,
        "firstStepMonotonic": snapshot.first_step_time,
    }


def gang_status(coordinator: Coordinator, now: float) -> dict[str, Any]:
    """The chief's part of /status: the whole gang, a hundred bytes a member. `now` in monotonic seconds."""
    members = {
        name: {
            "state": peer.state,
            "round": peer.round,
            "mode": peer.mode,
            "pid": peer.pid,
            "step": fit_step(peer.progress),
            "silentSeconds": round(max(0.0, now - peer.last_seen_at), 1) if peer.is_connected else None,
        }
        for name, peer in coordinator.membership.peers.items()
    }
    return {**gang_summary(coordinator), "members": members}


def gang_summary(coordinator: Coordinator) -> dict[str, Any]:
    """The chief's part of /status without the members."""
    progress = to_status(coordinator.rounds.progress)
    own = {"progress": progress, "backup": _backup(coordinator), "history": coordinator.history.to_status()}
    return {**_gang_fields(coordinator), **own}


def _backup(coordinator: Coordinator) -> dict[str, Any] | None:
    """The newest backup in memory, or why there is none; null for a job without them."""
    found = coordinator.backups.summarize()
    if found is None:
        return None
    return {
        "step": found.step,
        "time": None if found.time is None else rfc3339(found.time),
        "where": None if found.step is None else MEMORY,
        "bytes": found.bytes,
        "seconds": found.seconds,
        "members": found.members,
        "on": found.on,
        "reason": found.reason,
        "resumesAt": found.resumes_at,
        "resumesAtReason": found.resumes_at_reason,
        "inputNotReproducible": found.input_not_reproducible,
        "violation": found.violation,
        "violations": found.violations,
        "beginsAnew": list(found.begins_anew),
        "lastStep": found.last_step,
        **_replicas(coordinator.replicas, coordinator.agreed),
        "blockedSeconds": found.blocked_seconds,
        "skipping": coordinator.skipping,
    }


def _replicas(known: ReplicaComparison, agreed: AgreedCopy) -> dict[str, Any]:
    """What the comparison of the replicas has found, to which step the training would go back for it, or why it does
    not."""
    found = known.found
    told = {"replicasCompared": known.compared, "replicasDiffer": found is not None and found.differs}
    words = "" if found is None else "; ".join(filter(None, (found.words, agreed.why_not)))
    return {**told, "replicas": words, "agreedStep": None if agreed.copy is None else agreed.copy[1]}


def watched_fields(control: ProgramControl, settings: Settings, coordinator: Coordinator | None) -> dict[str, Any]:
    """The fields whose change answers a waiting client: the chief's state of the gang, another member's state of its
    program. Progress changes all the time and is left out."""
    if coordinator is not None:
        return _gang_fields(coordinator)
    return _member_fields(control, settings, control.program.snapshot())


def _gang_fields(coordinator: Coordinator) -> dict[str, Any]:
    phase, reason, message = _phase(coordinator)
    failure, peers = coordinator.verdict.last_failure, coordinator.membership.peers.values()
    return {
        "round": coordinator.rounds.number,
        "phase": phase,
        "reason": reason,
        "message": message,
        "missing": coordinator.rounds.missing if coordinator.verdict.result is None else [],
        "gang": {"size": len(coordinator.membership.trainers), "full": coordinator.membership.full_size},
        "finished": _finished(coordinator),
        "lingering": _lingering(coordinator),
        "trainsAlone": _alone(coordinator),
        "slowMember": _slow_member(coordinator),
        "noGpu": [each.name for each in peers if each.sees_no_gpu and each.is_connected],
        "ledger": coordinator.verdict.ledger.to_json(),
        "lastRestart": _last_restart(coordinator),
        "failure": None if failure is None else _failure(failure),
    }


def why_not_training(control: ProgramControl, settings: Settings, now: float) -> str:
    """Why this member does not train now; "" if it does. `now` in monotonic seconds."""
    if control.state == "done":
        return ""
    if control.state != "running":
        return "waiting for the gang to start"
    me, snapshot = settings.gang.me, control.program.snapshot()
    passive = is_outside_gang(me) or only_serves(me, settings.gang, snapshot)
    if passive or is_training(snapshot, control.started_at, now):
        return ""
    return "the program has not made a step yet"


def _phase(coordinator: Coordinator) -> tuple[str, str, str]:
    if (result := coordinator.verdict.result) is not None:
        return result.verdict, result.reason, result.message
    incident = coordinator.last_incident
    if not coordinator.rounds.running:
        missing = messages.summarize_names(coordinator.rounds.missing)
        pause = f" after a wait of {coordinator.rounds.wait:.0f} s" if coordinator.rounds.wait else ""
        waiting = f"waiting for {missing}" if missing else f"starting the programs{pause}"
        if incident is None:
            return "Waiting", "WaitingForMembers", waiting
        return "Restarting", incident.reason, f"{incident.message}; {waiting}"
    if coordinator.rounds.training_since is None:
        doing = messages.skipping_input(coordinator.skipping) if coordinator.skipping else "no step yet"
        message = f"round {coordinator.rounds.number} has started; {doing}"
        message = message if incident is None or incident.alone else f"{incident.message}; {message}"
        if coordinator.late_start:
            return "Starting", messages.SLOW_START, coordinator.late_start
        if early := [peer.name for peer in coordinator.membership.members if peer.has_succeeded]:
            message = f"{message}; {messages.exited_early(early)}"
        return "Starting", "ProgramsStarted", message
    reason, message = _training_reason(coordinator)
    message += f"; {messages.skipping_input(coordinator.skipping)}" if coordinator.skipping else ""
    return "Training", reason, message + messages.done_before(_finished(coordinator), _lingering(coordinator))


def _training_reason(coordinator: Coordinator) -> tuple[str, str]:
    incident = coordinator.last_incident
    if coordinator.no_step:
        return messages.NO_STEP, coordinator.no_step
    if all(peer.progress.first_step_time is None for peer in coordinator.membership.trainers):
        before = "" if incident is None else f"{incident.message}; "
        return messages.NO_STEP_YET, f"{before}{_training_members(coordinator)} {messages.NO_STEP_REPORTED}"
    if incident is None:
        return "Training", f"{_training_members(coordinator)} training"
    if incident.alone and coordinator.member_back_at is None:
        return incident.reason, f"{incident.message}; {messages.RESTARTING_ALONE}"
    return "Resumed", _resumed_message(coordinator, incident)


def _lingering(coordinator: Coordinator) -> list[str]:
    running = [peer for peer in coordinator.membership.members if peer.state == "running"]
    return [peer.name for peer in running if peer.lingers and peer.progress.main_exit == 0][:MOST_NAMES]


def _alone(coordinator: Coordinator) -> list[str]:
    running = [peer for peer in coordinator.membership.trainers if peer.is_connected]
    return [peer.name for peer in running if peer.progress.alone][:MOST_NAMES]


def _slow_member(coordinator: Coordinator) -> dict[str, Any] | None:
    """The slow member, null if none is slow; None if that is unknown."""
    found = coordinator.slow_members.found
    return None if found is None else {"member": found.member or None, "factor": found.factor, "cause": found.cause}


def _finished(coordinator: Coordinator) -> list[str]:
    return [peer.name for peer in coordinator.membership.trainers if peer.has_succeeded]


def _resumed_message(coordinator: Coordinator, incident: Incident) -> str:
    restart = _last_restart(coordinator) or {}
    where, lost = messages.reported_resumption(restart), restart.get("lostSteps")
    if restart.get("resumedFrom") in messages.MEMORIES and lost is not None:
        where += f" ({messages.lost_work(lost)})"
    fewer = f", with {_training_members(coordinator)}" if coordinator.rounds.missing and not incident.alone else ""
    return f"{incident.message}; {messages.went_on(where, incident.alone, restart.get('downSeconds'))}{fewer}"


def _training_members(coordinator: Coordinator) -> str:
    """How many members train, in words."""
    if not coordinator.rounds.missing:
        return "all members"
    return f"{len(coordinator.membership.trainers)} of {coordinator.membership.full_size} members"


def _last_restart(coordinator: Coordinator) -> dict[str, Any] | None:
    """The last incident and where the round after it resumed; the fields on resumption are null until it trains."""
    incident = coordinator.last_incident
    if incident is None:
        return None
    trained = coordinator.member_back_at if incident.alone else coordinator.rounds.training_since
    trainers = [] if incident.alone or not trained else coordinator.membership.trainers
    began = next((peer.progress for peer in trainers if peer.progress.first_step is not None), Snapshot())
    first_epoch, resumed = began.first_epoch, resumed_step(began)
    start = began.first_fit_start if incident.fit_start is None else incident.fit_start
    lost = lost_steps(incident.step, start, began)
    return {
        "member": incident.member,
        **exit_to_status(incident.exit),
        "time": rfc3339(incident.time),
        "reason": incident.reason,
        "message": incident.message,
        "alone": incident.alone,
        "downSeconds": None if trained is None else round(trained - incident.at, 2),
        "resumedFrom": backup_summary.resumption(trainers) or _source_in_storage(first_epoch, resumed),
        "resumedFromEpoch": first_epoch,
        "resumedFromStep": resumed,
        "lostSteps": lost,
        "lostSeconds": lost_seconds(lost, incident.steps_per_second),
        "backupSkipped": incident.backup_skipped,
    }


def _failure(incident: Incident) -> dict[str, Any]:
    tail = "" if incident.exit is None else "\n".join(bounded(incident.exit.lines))
    ended = exit_to_status(incident.exit)
    return {"member": incident.member, **ended, "reason": incident.reason, "logTail": tail}


def _source_in_storage(epoch: int | None, step: int | None) -> str | None:
    """From where a round without a copy has resumed; None if its programs report nothing."""
    if (epoch, step) == (None, None):
        return None
    return STORAGE if epoch or step else START
