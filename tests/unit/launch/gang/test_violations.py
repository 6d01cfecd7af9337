"""A resumed training that is found to differ ends the backups of its job, and costs one uncharged restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.simulated_gang.copies import fail, make_steps, report, restart, sent_starts, start_gang_with_copies
from tests.support.simulated_gang.simulation import exited, hello, make_coordinator
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.gang import backup_report
from tftraining.launch.gang.backup_summary import Summary
from tftraining.launch.gang.coordinator import Coordinator

HELD = [[1, 32], [1, 48]]
WHY = "epoch 3 ends after 60 batches instead of 70"
DIFFERS = f"_tftraining.memory_backup.self_check.ResumedTrainingDiffers: {WHY}"
LOST_PEER = "tensorflow.python.framework.errors_impl.UnavailableError: Connection reset by peer"


def violating_gang(**policy: Any) -> Coordinator:
    chief = start_gang_with_copies(held=HELD, **{"max_restarts": 0, **policy})
    make_steps(chief, 5.0, 60, report(resumed=48, on=False, violation=WHY), first_step=48)
    return chief


def summary_of(chief: Coordinator) -> Summary:
    found = chief.backups.summarize()
    assert found is not None
    return found


@pytest.mark.parametrize("exception", [DIFFERS, LOST_PEER])
def test_its_restart_is_not_charged_and_restores_no_copy(exception: str) -> None:
    chief = violating_gang()
    fail(chief, "worker-1", 6.0, exception)
    incident = chief.last_incident
    assert incident is not None and chief.verdict.result is None
    assert (incident.reason, incident.charged) == ("ResumedTrainingDiffers", False)
    assert incident.message == f"worker-1: the resumed training differs from the undisturbed one: {WHY}"
    assert set(restart(chief, 7.0, *HELD).values()) == {None}
    told = summary_of(chief)
    assert (told.on, told.reason) == (False, f"the resumed training differed: {WHY}")
    assert (told.violation, told.violations) == (WHY, 1)


def test_one_restart_a_job_is_not_charged() -> None:
    """A program may say so again in spite of it, and a new launcher of the chief has the count from the others."""
    chief = violating_gang()
    fail(chief, "worker-1", 6.0, DIFFERS)
    restart(chief, 7.0, *HELD)
    make_steps(chief, 8.0, 60, report(resumed=48, violation=WHY))
    fail(chief, "worker-1", 9.0, DIFFERS)
    assert chief.verdict.result is not None and chief.verdict.result.reason == "MaxRestartsExceeded"


def test_the_backups_stay_off_under_a_new_launcher_of_the_chief() -> None:
    chief = violating_gang()
    fail(chief, "worker-1", 6.0, DIFFERS)
    known = json.loads(json.dumps(chief.verdict.ledger.to_json()))
    later = make_coordinator()
    for name in later.membership.gang:
        later.handle_hello(hello(name, copiesHeld=HELD, copyPort=7, copyHost=name, ledger=known), 0.0)
    assert set(sent_starts(later).values()) == {None}
    told = summary_of(later)
    assert (told.on, told.reason) == (False, "a resumed training differed from the undisturbed one")
    assert told.violations == 1


@pytest.mark.parametrize("killed", [True, False])
def test_a_training_without_a_storage_that_goes_on_is_charged_for_what_comes_later(killed: bool) -> None:
    chief = violating_gang(max_restarts=5)
    assert (summary_of(chief).on, summary_of(chief).violation, summary_of(chief).violations) == (False, WHY, 1)
    if killed:
        chief.handle_frame("worker-1", exited(chief.rounds.number, number_of_signal=9), 6.0)
    else:
        fail(chief, "worker-1", 6.0, "ValueError: another fault")
    assert chief.last_incident is not None and chief.last_incident.charged
    assert set(restart(chief, 7.0, *HELD).values()) == {None}
    assert (summary_of(chief).violation, summary_of(chief).violations) == (WHY, 1)


def test_the_exception_alone_is_a_failure_like_any_other() -> None:
    """The program's word is not trusted more than its report."""
    chief = start_gang_with_copies(held=HELD, max_restarts=0)
    make_steps(chief, 5.0, 60, report(resumed=48), first_step=48)
    fail(chief, "worker-1", 6.0, DIFFERS)
    assert chief.verdict.result is not None and chief.verdict.result.reason == "MaxRestartsExceeded"


# The report.


def test_the_summary_says_where_a_restart_resumes() -> None:
    chief = start_gang_with_copies()
    told = report(48, resumesAt="StepDrawnAnew", resumesAtReason="shuffle has no seed", beginsAnew=["Timer"])
    make_steps(chief, 5.0, 60, told)
    found = summary_of(chief)
    assert (found.resumes_at, found.resumes_at_reason) == ("StepDrawnAnew", "shuffle has no seed")
    assert (found.begins_anew, found.input_not_reproducible, found.violations) == (("Timer",), False, 0)
    worse = report(48, resumesAt="Epoch", resumesAtReason="a generator", inputNotReproducible=True)
    peer = chief.membership.members[1]
    peer.backup = backup_report.from_frame(worse)
    found = summary_of(chief)
    assert (found.resumes_at, found.resumes_at_reason, found.input_not_reproducible) == ("Epoch", "a generator", True)


@pytest.mark.parametrize("harm", [None, 5, [], {}, "Everywhere", [["Step"]], "x" * 100_000, True, [None] * 1000])
def test_nothing_in_the_report_is_trusted(harm: object) -> None:
    fields = ("resumesAt", "resumesAtReason", "violation", "beginsAnew", "inputNotReproducible")
    found = backup_report.from_frame(dict.fromkeys(fields, harm))
    assert found is not None
    assert found.resumes_at == ""
    assert len(found.resumes_at_reason) <= 200 and len(found.violation) <= 200
    assert found.input_not_reproducible is (harm is True)
    assert len(found.begins_anew) <= 8 and all(len(each) <= 64 for each in found.begins_anew)


def test_the_names_of_the_report_are_bounded() -> None:
    found = backup_report.from_frame({"beginsAnew": ["a\nb", 5, "", "x" * 100, *"cdefghij"]})
    assert found is not None and found.begins_anew == ("a b", "x" * 64, "c", "d", "e", "f")


def test_a_ledger_of_before_has_no_violation() -> None:
    assert Ledger.from_json({}).violations == 0 and "violations" not in Ledger().to_json()
