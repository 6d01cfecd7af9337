"""The operator understands what the launcher's own code says: the two are shipped together, and agree."""

import json
from dataclasses import replace

import msgspec

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import Result, termination_message
from tftraining.launch.failure.same_failure import SameFailure
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import JobContext
from tftraining.launch.http.pages import gang_status
from tftraining.launch.progress import Snapshot, lost_steps
from tftraining_api.model.status import LastRestart, Status
from tftraining_operator.model.launcher_report import Report, ReportedRestart, parse_report, split_result
from tftraining_operator.model.observed import LauncherReport

KINDS = {"status": LastRestart, "report": ReportedRestart}
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
    return Coordinator(JobContext("uid", 1, gang, Policy()), Ledger(), lambda: WALL, 0.0)


def restarted() -> Coordinator:
    """A gang that trains again after an incident."""
    made = coordinator()
    made.verdict.ledger = Ledger(in_place=1, process_failures=1, without_progress=1)
    made.last_incident = made.verdict.last_failure = INCIDENT
    made.rounds.number, made.rounds.running, made.rounds.training_since = 2, True, 11.1
    for peer in made.membership.gang.values():
        peer.state, peer.progress = "running", PROGRESS
    return made


def report(made: Coordinator) -> Report:
    return parse_report(json.dumps({"version": 1, **gang_status(made, 12.0)}).encode())


def status_after(launcher_report: Report) -> Status:
    """What becomes of a job that trains when its launcher says that."""
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launcher_report = LauncherReport(cluster.api.pods["mnist-worker-0"]["metadata"]["uid"], launcher_report)
    return cluster.settle().status


def test_a_gang_that_waits() -> None:
    launcher_report = report(coordinator())
    assert (launcher_report.phase, launcher_report.missing) == ("Waiting", ("worker-0", "worker-1"))


def test_a_gang_that_restarts() -> None:
    made = restarted()
    made.rounds.running, made.rounds.training_since = False, None
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


def test_both_count_the_steps_lost_alike_in_a_second_fit() -> None:
    """The first fit has 100 steps, the second was at its step 70. It resumes at 40, the first one trained again."""
    resumed = replace(PROGRESS, step=145, fit_start=100, first_step=140, first_fit_start=100, made_before=100)
    made = restarted()
    for peer in made.membership.gang.values():
        peer.progress = resumed
    reported = report(made).progress
    assert reported is not None and (reported.step, reported.total_steps, reported.first_step) == (45, 145, 40)
    assert lost_steps(170, 100, reported.first()) == lost_steps(170, 100, resumed) == 130


def test_a_failure_by_an_exception_and_how_often_it_was() -> None:
    made = restarted()
    boom = Exit(1, None, ("ValueError: boom",), "", "ValueError: boom")
    made.last_incident = made.verdict.last_failure = replace(
        INCIDENT, reason="Error", message="worker-1: boom", exit=boom
    )
    row = SameFailure("0123456789abcdef", 2, int(WALL) - 50)
    made.verdict.ledger = replace(made.verdict.ledger, same=row)
    status = status_after(report(made))
    assert status.message == "worker-1: ValueError: boom; resumed from epoch 2 after 1.1 s"
    assert status.last_restart is not None and status.last_restart.exception == "ValueError: boom"
    assert status.failure is not None and status.failure.exception == "ValueError: boom"
    assert status.restarts.ledger.same == row, "the next launcher is told what this one knew"
    verdict = Result("Failed", "SameFailure", "worker-1: boom", "worker-1", boom)
    found, _ = split_result(termination_message(verdict, made.verdict.ledger, {}))
    assert found is not None and found.exception == "ValueError: boom"
    assert found.ledger.same_failure is not None and found.ledger.same_failure.count == 2


def test_every_phase_and_reason_is_known() -> None:
    for reason in ("Error", "Killed", "Stalled", "MemberLost", "Terminated"):
        made = restarted()
        made.last_incident = replace(INCIDENT, reason=reason)
        launcher_report = report(made)
        assert launcher_report.last_restart is not None and launcher_report.last_restart.reason == reason
    for verdict in ("Succeeded", "Failed"):
        made = restarted()
        made.verdict.result = Result(verdict, "MaxRestartsExceeded", "all are used up", "worker-1", KILLED)
        assert report(made).phase == verdict


def test_a_launcher_reports_every_field_of_a_restart_that_the_status_has() -> None:
    last = gang_status(restarted(), 12.0)["lastRestart"]
    names = {name: msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"] for name, kind in KINDS.items()}
    assert set(names["status"]) - {"pod"} == set(names["report"]) - {"member"} <= set(last)
