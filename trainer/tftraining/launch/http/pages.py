"""The content of /status, /readyz and /metrics, computed from the launcher's state. Pure.

It must not change while nothing happens, clocks aside: the operator writes each change to the API server.
"""

from __future__ import annotations

from typing import Any

from tftraining.launch.config.settings import Settings, role_of
from tftraining.launch.failure.incident import Incident, bounded
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import some
from tftraining.launch.gang.restart_scope import serves
from tftraining.launch.progress import Snapshot, rfc3339, to_status, trains
from tftraining.launch.rendezvous.client import Member


def of_member(member: Member, settings: Settings) -> dict[str, Any]:
    """The part of /status about this member. `firstStepMonotonic` is this machine's CLOCK_MONOTONIC, for benchmarks."""
    snapshot = member.program.snapshot()
    return {**_of_consequence(member, settings, snapshot), "progress": to_status(snapshot)}


def _of_consequence(member: Member, settings: Settings, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": 1,
        "job": dict(settings.job),
        "attempt": settings.attempt,
        "member": settings.gang.me,
        "chief": settings.is_chief,
        "incarnation": member.incarnation,
        "round": member.round,
        "phase": {"running": "Training" if snapshot.first_step_time else "Starting"}.get(member.state, "Waiting"),
        "state": member.state,
        "pid": member.program.pid,
        "mode": member.program.mode,
        "gpus": member.program.gpus,
        "firstStepMonotonic": snapshot.first_step_time,
    }


def of_gang(coordinator: Coordinator, now: float) -> dict[str, Any]:
    """The chief's part of /status: the whole gang, a hundred bytes a member. `now` in monotonic seconds."""
    members = {
        name: {
            "state": peer.state,
            "round": peer.round,
            "mode": peer.mode,
            "pid": peer.pid,
            "step": peer.progress.step,
            "silentSeconds": round(max(0.0, now - peer.heard), 1) if peer.connected else None,
        }
        for name, peer in coordinator.roster.peers.items()
    }
    return {**of_gang_as_one(coordinator), "members": members}


def of_gang_as_one(coordinator: Coordinator) -> dict[str, Any]:
    """The chief's part of /status without the members."""
    return {**_gang_of_consequence(coordinator), "progress": to_status(coordinator.rounds.progress)}


def of_consequence(member: Member, settings: Settings, coordinator: Coordinator | None) -> dict[str, Any]:
    """The fields whose change answers a waiting client: the chief's state of the gang, another member's state of its
    program. Progress changes all the time and is left out."""
    if coordinator is not None:
        return _gang_of_consequence(coordinator)
    return _of_consequence(member, settings, member.program.snapshot())


def _gang_of_consequence(coordinator: Coordinator) -> dict[str, Any]:
    phase, reason, message = _phase(coordinator)
    failure = coordinator.judge.failure
    return {
        "round": coordinator.rounds.number,
        "phase": phase,
        "reason": reason,
        "message": message,
        "missing": coordinator.rounds.missing if coordinator.judge.verdict is None else [],
        "gang": {"size": len(coordinator.roster.trainers), "full": coordinator.roster.size},
        "finished": _finished(coordinator),
        "noGpu": [peer.name for peer in coordinator.roster.peers.values() if peer.no_gpu and peer.connected],
        "ledger": coordinator.judge.ledger.to_json(),
        "lastRestart": _last_restart(coordinator),
        "failure": None if failure is None else {**_exit(failure), "reason": failure.reason, "logTail": _tail(failure)},
    }


def why_not_training(member: Member, settings: Settings, now: float) -> str:
    """Why this member does not train now; "" if it does. `now` in monotonic seconds."""
    if member.state == "done":
        return ""
    if member.state != "running":
        return "waiting for the gang to start"
    me, told = settings.gang.me, member.program.snapshot()
    passive = role_of(me) == "evaluator" or serves(me, settings.gang, told)
    if passive or trains(told, member.started, now):
        return ""
    return "the program has not made a step yet"


def _phase(coordinator: Coordinator) -> tuple[str, str, str]:
    if coordinator.judge.verdict is not None:
        return coordinator.judge.verdict.verdict, coordinator.judge.verdict.reason, coordinator.judge.verdict.message
    incident = coordinator.incident
    if not coordinator.rounds.running:
        missing = coordinator.rounds.missing
        waiting = f"waiting for {some(missing)}" if missing else "starting the programs"
        if incident is None:
            return "Waiting", "WaitingForMembers", waiting
        return "Restarting", incident.reason, f"{incident.message}; {waiting}"
    if coordinator.rounds.trained is None:
        told = f"round {coordinator.rounds.number} has started; no step yet"
        told = told if incident is None or incident.alone else f"{incident.message}; {told}"
        return "Starting", "ProgramsStarted", told + _who_has_finished(coordinator)
    reason, message = _training(coordinator)
    return "Training", reason, message + _who_has_finished(coordinator)


def _training(coordinator: Coordinator) -> tuple[str, str]:
    incident = coordinator.incident
    if incident is None:
        return "Training", f"{_who(coordinator)} training"
    if incident.alone and coordinator.back is None:
        return incident.reason, f"{incident.message}; restarting it alone; other members keep training"
    return "Resumed", _resumed(coordinator, incident)


def _who_has_finished(coordinator: Coordinator) -> str:
    """A clause that names the members whose programs have finished before the others; "" for none."""
    names = _finished(coordinator)
    return f"; {some(names)} {'has' if len(names) == 1 else 'have'} finished" if names else ""


def _finished(coordinator: Coordinator) -> list[str]:
    return [peer.name for peer in coordinator.roster.trainers if peer.finished]


def _resumed(coordinator: Coordinator, incident: Incident) -> str:
    restart = _last_restart(coordinator) or {}
    if incident.alone:
        return f"{incident.message}; restarted alone after {restart.get('downSeconds')} s; other members kept training"
    fewer = f", with {_who(coordinator)}" if coordinator.rounds.missing else ""
    return f"{incident.message}; {_went_on(restart)} after {restart.get('downSeconds')} s{fewer}"


def _went_on(restart: dict[str, Any]) -> str:
    """The start of the round, such as `resumed from epoch 2`; "started over" only if the program reports progress."""
    epoch, step = restart.get("resumedFromEpoch"), restart.get("resumedFromStep")
    if epoch or step:
        return f"resumed from epoch {epoch}" if epoch else f"resumed from step {step}"
    return "resumed" if (epoch, step) == (None, None) else "started over: no backup found,"


def _who(coordinator: Coordinator) -> str:
    """How many members train, in words."""
    if not coordinator.rounds.missing:
        return "all members"
    return f"{len(coordinator.roster.trainers)} of {coordinator.roster.size} members"


def _last_restart(coordinator: Coordinator) -> dict[str, Any] | None:
    """The last incident and where the round after it resumed; the fields on resumption are null until it trains."""
    incident = coordinator.incident
    if incident is None:
        return None
    trained = coordinator.back if incident.alone else coordinator.rounds.trained
    told = [] if incident.alone or not trained else coordinator.roster.trainers
    first = [peer.progress for peer in told if peer.progress.first_step is not None]
    resumed = first[0].first_step if first else None
    lost = max(0, incident.step - resumed) if incident.step is not None and resumed is not None else None
    return {
        **_exit(incident),
        "time": rfc3339(incident.time),
        "reason": incident.reason,
        "message": incident.message,
        "alone": incident.alone,
        "downSeconds": None if trained is None else round(trained - incident.at, 2),
        "resumedFromEpoch": first[0].first_epoch if first else None,
        "resumedFromStep": resumed,
        "lostSteps": lost,
    }


def _exit(incident: Incident) -> dict[str, Any]:
    ended = incident.exit
    return {
        "member": incident.member,
        "exitCode": None if ended is None else ended.code,
        "signal": None if ended is None else ended.signal,
        "exception": "" if ended is None else ended.exception,
    }


def _tail(incident: Incident) -> str:
    return "" if incident.exit is None else "\n".join(bounded(incident.exit.lines))


def metrics(settings: Settings, status: dict[str, Any]) -> str:
    """The chief's numbers in the text format of Prometheus."""
    numbers = {
        "tftraining_round": status.get("round"),
        "tftraining_training": int(status.get("phase") == "Training"),
        "tftraining_members_missing": len(status.get("missing", ())),
    }
    counts = {name: n for name, n in status.get("ledger", {}).items() if isinstance(n, int)}
    numbers |= {f"tftraining_restarts_{_snake(name)}": n for name, n in counts.items()}
    progress = status.get("progress") or {}
    numbers |= {
        f"tftraining_progress_{_snake(name)}": progress.get(name) for name in ("epoch", "step", "stepsPerSecond")
    }
    # Prometheus adds its own labels `job` and `namespace`, and would rename ours if they clashed.
    name, namespace = settings.job["name"], settings.job["namespace"]
    labels = f'job_name="{name}",job_namespace="{namespace}",member="{settings.gang.me}"'
    lines = [f"# TYPE {each} gauge\n{each}{{{labels}}} {n}\n" for each, n in numbers.items() if n is not None]
    return "".join(lines)


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
