"""The operator understands what the launcher's own code says: the two are shipped together, and agree."""

import json
from dataclasses import replace

import msgspec

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining.launch.config.policy import Gang, Policy
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.result import Verdict, termination_message
from tftraining.launch.failure.same_failure import SameFailure
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import Job
from tftraining.launch.http.pages import of_gang
from tftraining.launch.progress import Snapshot
from tftraining_api.manifests.launcher import ledger
from tftraining_api.model.status import LastRestart, Status
from tftraining_operator.model.observed import Heard
from tftraining_operator.model.report import Report, Resumption, parse_report, split_verdict

KINDS = {"status": LastRestart, "report": Resumption}
WALL = 1_772_366_400.0  # 2026-03-01T12:00:00Z, the simulation's beginning
KILLED = Exit(None, 9, ("epoch 3", "loss 0.5"), "")
INCIDENT = Incident("worker-1", "Killed", "worker-1 was killed (SIGKILL)", True, 10.0, WALL, KILLED, step=170)
PROGRESS = Snapshot(
    epoch=3,
    epochs=10,
    step=170,
    steps_per_epoch=70,
    steps_per_second=9.5,
    metrics={"loss": float("nan"), "accuracy": 0.5},
    updated=WALL,
    first_step_time=11.0,
    first_epoch=2,
    first_step=140,
)


def coordinator() -> Coordinator:
    gang = Gang(("worker-0", "worker-1"), "worker-0")
    return Coordinator(Job("uid", 1, gang, Policy()), Ledger(), lambda: WALL, 0.0)


def restarted() -> Coordinator:
    """A gang that trains again after an incident."""
    made = coordinator()
    made.judge.ledger = Ledger(in_place=1, process_failures=1, without_progress=1)
    made.incident = made.judge.failure = INCIDENT
    made.rounds.number, made.rounds.running, made.rounds.trained = 2, True, 11.1
    for peer in made.roster.gang.values():
        peer.state, peer.progress = "running", PROGRESS
    return made


def report(made: Coordinator) -> Report:
    return parse_report(json.dumps({"version": 1, **of_gang(made, 12.0)}).encode())


def status_after(said: Report) -> Status:
    """What becomes of a job that trains when its launcher says that."""
    world = World(a_launched_job()).run()
    world.heard = Heard(world.api.pods["mnist-worker-0"]["metadata"]["uid"], said)
    return world.settle().status


def test_a_gang_that_waits() -> None:
    said = report(coordinator())
    assert (said.phase, said.missing) == ("Waiting", ("worker-0", "worker-1"))


def test_a_gang_that_restarts() -> None:
    made = restarted()
    made.rounds.running, made.rounds.trained = False, None
    status = status_after(report(made))
    assert (status.phase, status.reason) == ("Restarting", "Killed")


def test_a_gang_that_trains_again() -> None:
    status = status_after(report(restarted()))
    assert status.message == "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s"
    last = status.last_restart
    assert last is not None and (last.signal, last.resumed_from_step, last.lost_steps) == (9, 140, 30)
    assert status.progress is not None and status.progress.display == "epoch 3/10"
    assert status.progress.metrics == {"accuracy": 0.5}
    assert status.failure is not None and status.failure.log_tail == "epoch 3\nloss 0.5"
    assert (status.restarts.counted, status.restarts.in_place) == (1, 1)


def test_a_failure_by_an_exception_and_how_often_it_was() -> None:
    made = restarted()
    boom = Exit(1, None, ("ValueError: boom",), "", "ValueError: boom")
    made.incident = made.judge.failure = replace(INCIDENT, reason="Error", message="worker-1: boom", exit=boom)
    row = SameFailure("0123456789abcdef", 2, int(WALL) - 50)
    made.judge.ledger = replace(made.judge.ledger, same=row)
    status = status_after(report(made))
    assert status.message == "worker-1: ValueError: boom; resumed from epoch 2 after 1.1 s"
    assert status.last_restart is not None and status.last_restart.exception == "ValueError: boom"
    assert status.failure is not None and status.failure.exception == "ValueError: boom"
    assert Ledger.from_json(ledger(status.restarts)).same == row, "the next launcher is told what this one knew"
    verdict = Verdict("Failed", "SameFailure", "worker-1: boom", "worker-1", boom)
    found, _ = split_verdict(termination_message(verdict, made.judge.ledger, {}))
    assert found is not None and found.exception == "ValueError: boom"
    assert found.ledger.same_failure is not None and found.ledger.same_failure.count == 2


def test_every_phase_and_reason_is_known() -> None:
    for reason in ("Error", "Killed", "Stalled", "MemberLost", "Terminated"):
        made = restarted()
        made.incident = replace(INCIDENT, reason=reason)
        said = report(made)
        assert said.last_restart is not None and said.last_restart.reason == reason
    for verdict in ("Succeeded", "Failed"):
        made = restarted()
        made.judge.verdict = Verdict(verdict, "MaxRestartsExceeded", "all are used up", "worker-1", KILLED)
        assert report(made).phase == verdict


def test_a_launcher_reports_every_field_of_a_restart_that_the_status_has() -> None:
    last = of_gang(restarted(), 12.0)["lastRestart"]
    names = {name: msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"] for name, kind in KINDS.items()}
    assert set(names["status"]) - {"pod"} == set(names["report"]) - {"member"} <= set(last)
