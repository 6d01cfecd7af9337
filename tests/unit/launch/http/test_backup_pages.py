"""/status and /metrics on backups in memory: the newest copy, and what a restart has lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated_gang.copies import make_steps, report, restart, start_gang_with_copies
from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http.pages import gang_status, gang_summary
from tftraining.launch.in_user_process.memory_backup.copy_report import CopyReport
from tftraining.launch.in_user_process.shared.copy_reasons import ENDED

UNTOLD: dict[str, Any] = {
    "resumesAt": "",
    "resumesAtReason": "",
    "inputNotReproducible": False,
    "violation": "",
    "violations": 0,
    "beginsAnew": [],
    "lastStep": None,
    "blockedSeconds": None,
    "skipping": 0,
}
UNCOMPARED = {"replicasCompared": 0, "replicasDiffer": False, "replicas": "", "agreedStep": None}
UNTOLD |= UNCOMPARED
NOTHING = {"step": None, "time": None, "where": None, "bytes": None, "seconds": None, "members": 0, **UNTOLD}


def backup(chief: Coordinator) -> Any:
    return gang_summary(chief)["backup"]


def last(chief: Coordinator, *fields: str) -> tuple[Any, ...]:
    restart = gang_status(chief, 99.0)["lastRestart"]
    return tuple(restart[field] for field in fields)


# The newest copy.


def test_the_newest_copy_that_all_members_hold_is_reported() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 100, report(96))
    newer = {**report(112), "blockedSeconds": 0.25}
    chief.handle_frame("worker-0", {**heartbeat(1, 9.1, step=112), "backup": newer}, 9.1)
    assert backup(chief) == {
        "step": 96,
        "time": "1970-01-01T00:18:16.000Z",
        "where": "Memory",
        "bytes": 4_000_000,
        "seconds": 0.002,
        "members": 2,
        "on": True,
        "reason": "",
        **UNTOLD,
        "blockedSeconds": 0.25,
    }


def test_where_a_restart_resumes_is_reported_with_all_that_is_not_the_same_then() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    told = {"resumesAt": "Epoch", "resumesAtReason": "a generator", "inputNotReproducible": True}
    for name, violation in (("worker-0", ""), ("worker-1", "152 steps of 300")):
        own = {**report(), **told, "violation": violation, "beginsAnew": ["MyStop"]}
        chief.handle_frame(name, {**heartbeat(1, 9.0), "backup": own}, 9.0)
    found = {
        name: backup(chief)[name]
        for name in UNTOLD.keys() - UNCOMPARED.keys() - {"lastStep", "blockedSeconds", "skipping"}
    }
    assert found == {**told, "violation": "152 steps of 300", "violations": 1, "beginsAnew": ["MyStop"]}


def test_the_last_copy_is_reported_after_the_training(tmp_path: Path) -> None:
    """The step of the older one, if that of a member is older; not that from which the training resumed."""
    chief = start_gang_with_copies("worker-0", "worker-1")
    own = CopyReport(str(tmp_path), 1)
    for name, step in (("worker-0", 208), ("worker-1", 200)):
        own.tell(on=True, step=step, time=9.0, bytes=4_000_000, resumed={"from": "Memory", "step": 140})
        own.tell_end(ENDED)
        told = json.loads((tmp_path / "report.json").read_text())
        assert (told["lastStep"], "step" in told) == (step, False)
        chief.handle_frame(name, {**heartbeat(1, 9.1, step=210), "backup": told}, 9.1)
    assert backup(chief)["lastStep"] == 200


def test_members_without_a_copy_are_not_counted() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 100, report())
    chief.handle_frame("worker-0", {**heartbeat(1, 9.1, step=112), "backup": report(112)}, 9.1)
    assert (backup(chief)["step"], backup(chief)["members"]) == (112, 1)


@pytest.mark.parametrize(
    ("one", "other", "on", "reason"),
    [
        ({"on": False, "reason": "no room"}, {"on": False, "reason": ""}, False, "no room"),
        ({"on": False, "reason": ""}, {"on": False, "reason": "another member cannot"}, False, "another member cannot"),
        ({"on": False, "reason": "another member cannot"}, {"on": False, "reason": "short"}, False, "short"),
        ({"on": True}, {"on": False, "reason": "no room"}, False, "no room"),
        ({"on": True}, None, False, ""),
        ({"on": True, "epochResumed": "the input is shuffled"}, {"on": True}, True, "the input is shuffled"),
        ({"on": 1, "reason": ["no"]}, {"reason": "no\nroom " + 1000 * "x"}, False, f"no room {192 * 'x'}"),
    ],
)
def test_the_reason_for_no_copies_is_reported(one: Any, other: Any, on: bool, reason: str) -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    for name, told in (("worker-0", one), ("worker-1", other)):
        chief.handle_frame(name, {**heartbeat(1, 9.0), "backup": told}, 9.0)
    assert backup(chief) == {**NOTHING, "on": on, "reason": reason}


def test_a_job_without_backups_reports_none() -> None:
    chief = make_coordinator()
    for name in chief.membership.gang:
        chief.handle_hello(hello(name), 0.0)
    assert backup(chief) is None


def test_a_member_without_a_place_for_copies_is_named() -> None:
    chief = make_coordinator()
    chief.handle_hello(hello("worker-0", copiesHeld=[]), 0.0)
    chief.handle_hello(hello("worker-1"), 0.0)
    assert backup(chief) == {**NOTHING, "on": False, "reason": "no place for backups in worker-1"}


def test_a_member_that_has_not_joined_is_no_reason() -> None:
    chief = make_coordinator()
    chief.handle_hello(hello("worker-0", copiesHeld=[]), 0.0)
    assert backup(chief) == {**NOTHING, "on": False, "reason": ""}


def test_the_setting_says_why_there_are_none() -> None:
    chief = make_coordinator(backups_off="worker-1 was OOMKilled")
    assert backup(chief) == {**NOTHING, "on": False, "reason": "worker-1 was OOMKilled"}


def test_a_copy_stays_known_until_the_next_round_has_a_newer_one_or_cannot_restore_it() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 100, report(96))
    before = backup(chief)
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 9.5)
    assert backup(chief) == before
    restart(chief, 10.0, [1, 88], [1, 96])
    assert backup(chief) == {**before, "on": False}
    chief.handle_frame("worker-1", exited(2, number_of_signal=9), 10.5)
    restart(chief, 20.0, [1, 88])
    assert backup(chief) == {**NOTHING, "on": False, "reason": "", "step": 88, "where": "Memory", "members": 2}
    chief.handle_frame("worker-1", exited(3, number_of_signal=9), 20.5)
    restart(chief, 30.0)
    assert backup(chief) == {**NOTHING, "on": False, "reason": ""}


@pytest.mark.parametrize(
    "told",
    [
        "on",
        7,
        [],
        {"step": -1, "time": float("nan"), "bytes": "many", "seconds": True, "resumed": []},
        {"step": 2**60, "time": float("inf"), "bytes": None, "seconds": [], "resumed": {"from": "Space"}},
        {"step": float("nan"), "time": {}, "bytes": -0.5, "resumed": {"from": ["Memory"], "step": "x"}},
    ],
)
def test_a_report_of_something_else_ends_no_connection(told: Any) -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 100, told)
    assert backup(chief) == {**NOTHING, "on": False, "reason": ""}


# The last restart.


def kill(chief: Coordinator, *copies: list[int]) -> Coordinator:
    """Kill the programs of a gang at step 100; they start again."""
    for name in chief.membership.gang:
        told = {"step": 100, "first_step_time": 5.0, "updated": 1.0, "steps_per_second": 10.0}
        chief.handle_frame(name, {**heartbeat(1, 9.0, **told), "backup": report(96)}, 9.0)
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, step=101, updated=1.0), 10.0)
    restart(chief, 10.5, *copies)
    return chief


def resume(
    chief: Coordinator, *copies: list[int], reports: tuple[Any, Any] = (None, None), **progress: int
) -> Coordinator:
    """Kill the programs of a gang at step 100; they train again with these reports."""
    kill(chief, *copies)
    for name, told_now in zip(chief.membership.gang, reports, strict=True):
        frame = heartbeat(2, 11.0, first_step_time=0.0, **({"updated": 1.0, **progress} if progress else {}))
        chief.handle_frame(name, {**frame, "backup": told_now}, 11.0)
    assert chief.rounds.training_since is not None or not progress
    return chief


@pytest.mark.parametrize(
    ("reports", "progress", "expected", "words"),
    [
        (
            (report(resumed=96), report(resumed=96)),
            {"first_step": 96, "step": 97},
            ("Memory", 5, 0.5),
            "resumed from memory at step 96 (5 steps lost) after 1.0 s",
        ),
        (
            (report(resumed=100), report(resumed=100, source="Peer")),
            {"first_step": 100, "step": 101},
            ("Peer", 1, 0.1),
            "resumed from the memory of another member at step 100 (1 step lost) after 1.0 s",
        ),
        (
            (report(resumed=96, source="Peer"), report(resumed=96, source="Storage")),
            {"first_step": 96, "step": 97},
            ("Storage", 5, 0.5),
            "resumed from step 96 after 1.0 s",
        ),
        (
            (report(), report()),
            {"first_step": 70, "step": 71, "first_epoch": 1, "epoch": 2},
            ("Storage", 31, 3.1),
            "resumed from epoch 1 after 1.0 s",
        ),
        (
            (None, None),
            {"first_step": 0, "step": 1, "first_epoch": 0, "epoch": 1},
            ("Start", 101, 10.1),
            "started over: no backup found, after 1.0 s",
        ),
    ],
)
def test_the_source_and_the_cost_of_a_restart_are_reported(
    reports: Any, progress: dict[str, int], expected: tuple[Any, ...], words: str
) -> None:
    chief = resume(start_gang_with_copies("worker-0", "worker-1"), [1, 96], reports=reports, **progress)
    assert last(chief, "resumedFrom", "lostSteps", "lostSeconds") == expected
    assert gang_status(chief, 11.0)["message"] == f"worker-1 was killed (SIGKILL); {words}"


def test_nothing_is_known_until_the_gang_trains_or_reports() -> None:
    chief = resume(start_gang_with_copies("worker-0", "worker-1"), [1, 96])
    chief.tick(60.0)
    assert last(chief, "resumedFrom", "lostSteps", "lostSeconds", "backupSkipped") == (None, None, None, "")


def skip(chief: Coordinator, until: float) -> None:
    """The programs of the round skip 5,000 batches of their input, up to this time."""
    for now in range(20, int(until) + 1, 5):
        for peer in chief.membership.members:
            frame = {**heartbeat(2, float(now), updated=1.0), "backup": report(resumed=96, skipping=5000)}
            chief.handle_frame(peer.name, frame, float(now))
        chief.tick(float(now))


def test_a_gang_that_skips_its_input_says_so_and_is_late_once_it_takes_longer_than_training_did() -> None:
    chief = kill(start_gang_with_copies("worker-0", "worker-1", start_deadline_seconds=600.0), [1, 96])
    killed, words = "worker-1 was killed (SIGKILL); round 2 has started", "skipping 5000 batches of input"
    assert gang_summary(chief)["message"] == f"{killed}; no step yet", "one that takes seconds is not told"
    skip(chief, 1100.0)  # 10 steps/s: training has taken 500 s for it
    told = gang_summary(chief)
    assert (told["reason"], told["message"]) == ("ProgramsStarted", f"{killed}; {words}")
    assert told["backup"]["skipping"] == 5000
    skip(chief, 1150.0)
    told = gang_summary(chief)
    limit = "no step within 600 s (spec.runPolicy.startDeadlineSeconds)"
    assert (told["reason"], told["message"]) == ("SlowStart", f"worker-0, worker-1: {limit}; {words}")
    make_steps(chief, 1151.0, 97, report(resumed=96, skipping=0), first_step=96, last_step_time=0.0)
    chief.tick(1151.0)
    assert (gang_summary(chief)["reason"], gang_summary(chief)["backup"]["skipping"]) == ("Resumed", 0)


def test_a_later_fit_that_skips_its_input_is_told_and_makes_no_step_for_as_long() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 20.0, 100, report(96))
    for skipping, end in ((700, "; skipping 700 batches of input"), (1, "; skipping 1 batch of input"), (0, "")):
        make_steps(chief, 30.0, 100, report(96, skipping=skipping), first_step_time=20.0)
        chief.tick(30.0)
        assert gang_summary(chief)["message"] == f"all members training{end}"


@pytest.mark.parametrize("told", [-1, 2**60, "many", True, None, [5], float("nan")])
def test_a_number_of_skipped_batches_that_is_none_is_nothing(told: Any) -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 20.0, 100, report(96, skipping=told))
    chief.tick(20.0)
    assert backup(chief)["skipping"] == 0


def test_no_lost_step_has_taken_no_time() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, step=50, updated=1.0), 10.0)
    restart(chief, 10.5, [1, 50])
    make_steps(chief, 11.0, 51, report(resumed=50), first_step=50, first_step_time=0.0)
    assert last(chief, "resumedFrom", "lostSteps", "lostSeconds") == ("Memory", 0, 0.0)
    chief.handle_frame("worker-1", exited(2, number_of_signal=9, step=60, updated=1.0), 12.0)
    restart(chief, 22.5, [1, 50])
    make_steps(chief, 23.0, 51, report(resumed=50), first_step=50, first_step_time=0.0)
    assert last(chief, "lostSteps", "lostSeconds") == (10, None), "its speed is unknown"


@pytest.mark.parametrize(
    ("began", "expected"),
    [
        ({"step": 161, "first_step": 160, "fit_start": 120, "first_fit_start": 120}, (40, 15)),
        ({"step": 121, "first_step": 120, "fit_start": 120, "first_fit_start": 120}, (0, 55)),
        ({"step": 101, "first_step": 100, "fit_start": 0, "first_fit_start": 0}, (100, 75)),
        ({"step": 41, "first_step": 40, "fit_start": 0, "first_fit_start": 0}, (40, 15)),
    ],
    ids=["in the second", "at its begin", "in the first", "in the second, which the program calls first now"],
)
def test_a_second_fit_counts_its_steps_from_0(began: dict[str, int], expected: tuple[int, int]) -> None:
    """The first one has made 120 steps, and the second 55 of its own, when a member is killed."""
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 175, report(160), fit_start=120)
    assert gang_summary(chief)["progress"]["step"] == 55
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 9.5)
    restart(chief, 10.0, [1, 160])
    step = began.pop("step")
    make_steps(chief, 11.0, step, report(resumed=160), first_step_time=0.0, **began)
    assert last(chief, "resumedFromStep", "lostSteps") == expected


def test_steps_that_are_reported_after_the_end_of_the_round_are_lost_as_well() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 100, report(96))
    chief.handle_disconnect("worker-1", 9.5)
    chief.handle_frame("worker-0", {**heartbeat(1, 9.6, step=104), "backup": report(96)}, 9.6)
    back = hello("worker-1", 9.7, round=1, known=1, step=105, copiesHeld=[[1, 96]])
    assert chief.handle_hello(back, 9.7) == ""
    restart(chief, 10.0, [1, 96])
    make_steps(chief, 11.0, 97, report(resumed=96), first_step=96, first_step_time=0.0)
    assert last(chief, "lostSteps") == (9,)


def test_steps_of_a_round_long_ago_are_not_lost_again() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    make_steps(chief, 9.0, 100, report(96))
    chief.handle_frame("worker-0", exited(1, number_of_signal=9), 9.5)
    restart(chief, 10.0, [1, 32])
    make_steps(chief, 11.0, 40, report(resumed=32), first_step=32)
    chief.handle_disconnect("worker-1", 11.5)
    assert chief.handle_hello(hello("worker-1", 11.7, round=1, known=2, step=100, copiesHeld=[[1, 32]]), 11.7) == ""
    restart(chief, 22.0, [1, 32])
    make_steps(chief, 23.0, 33, report(resumed=32), first_step=32)
    assert last(chief, "lostSteps") == (8,)
