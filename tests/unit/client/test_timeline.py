"""What is told of a job, out of one status after another, and the summary."""

from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.failure_and_restart_messages import waits_for_slow
from tftraining_api.model.resumes_at import NOT_REPRODUCIBLE
from tftraining_client.local.display import fraction
from tftraining_client.local.summary import Result, summary
from tftraining_client.local.timeline import Timeline, progress_text, waits_for

RESTART = {
    "time": "2026-01-01T00:00:00Z",
    "member": "worker-1",
    "message": "worker-1 was killed (SIGKILL)",
    "downSeconds": None,
}
RESUMED = {**RESTART, "downSeconds": 1.08, "resumedFromEpoch": 2, "resumedFromStep": 140, "lostSteps": 30}
PROGRESS = {
    "epoch": 3,
    "epochs": 10,
    "step": 145,
    "stepsPerEpoch": 70,
    "stepsPerSecond": 56.14,
    "metrics": {"loss": 0.25, "accuracy": 0.91},
}


def status(phase: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    members = {"worker-0": {"mode": "warm"}, "worker-1": {"mode": "warm"}}
    return {"phase": phase, "round": number, "members": members, "message": f"{phase} {number}", **fields}


def test_a_job_with_a_restart() -> None:
    timeline = Timeline()
    told = [
        timeline.record_status(status("Waiting", 0, missing=["worker-0", "worker-1"], message="waiting for two"), 0.1),
        timeline.record_status(status("Waiting", 0, missing=["worker-1"], message="waiting for one"), 0.2),
        timeline.record_status(status("Waiting", 0, missing=["worker-1"], message="waiting for one"), 0.4),
        timeline.record_status(status("Starting"), 1.0),
        timeline.record_status(status("Training", progress=PROGRESS), 3.04),
        timeline.record_status(status("Training", progress=PROGRESS), 3.2),
        timeline.record_status(status("Restarting", message="worker-1 was killed", lastRestart=RESTART), 5.0),
        timeline.record_status(status("Starting", 2, lastRestart=RESTART), 5.2),
        timeline.record_status(status("Training", 2, reason="Resumed", message="resumed", lastRestart=RESUMED), 6.0),
    ]
    assert [line for lines in told for line in lines] == [
        "waiting for two",
        "waiting for one",
        "Starting 1",
        "training, 3.0 s after the start (warm)",
        "worker-1 was killed",
        "Starting 2",
        "resumed",
    ]
    assert (timeline.started_at, timeline.trained_at) == (1.0, 3.04)
    assert timeline.seconds_lost == 1.08


def test_a_restart_that_was_over_before_anybody_looked_is_told() -> None:
    timeline = Timeline()
    timeline.record_status(status("Training"), 1.0)
    assert timeline.record_status(
        status("Training", 2, reason="Resumed", message="resumed", lastRestart=RESUMED), 2.0
    ) == ["resumed"]


def test_members_that_start_in_different_ways_are_named() -> None:
    members = {"worker-0": {"mode": "warm"}, "worker-1": {"mode": "plain: no tensorflow"}}
    told = Timeline().record_status({**status("Training"), "members": members}, 1.0)
    assert told == ["training, 1.0 s after the start (worker-0: warm, worker-1: plain: no tensorflow)"]


def test_progress_is_told_at_new_epochs_and_now_and_then() -> None:
    timeline = Timeline()
    line = "epoch 3/10, step 145/700, 56.1 steps/s, accuracy 0.9100, loss 0.2500"
    assert timeline.progress_lines(0) == []
    timeline.record_status(status("Training", progress=PROGRESS), 1.0)
    assert timeline.progress_lines(1.0) == [line]
    assert timeline.progress_lines(30.0) == []  # nothing new
    timeline.record_status(status("Training", progress={**PROGRESS, "step": 146}), 31.0)
    assert timeline.progress_lines(31.0) == [line.replace("145", "146")]
    timeline.record_status(status("Training", progress={**PROGRESS, "step": 147}), 32.0)
    assert timeline.progress_lines(32.0) == []  # too soon
    timeline.record_status(status("Training", progress={"epoch": 4}), 33.0)
    assert timeline.progress_lines(33.0) == ["epoch 4"]


def test_after_a_restart_the_epoch_stays_until_a_new_one_is_told() -> None:
    timeline = Timeline()
    timeline.record_status(status("Training", progress=PROGRESS), 1.0)
    restored: dict[str, Any] = {"epoch": None, "step": 80, "metrics": {}}
    for told in (restored, None):
        timeline.record_status(status("Training", 2, progress=told), 20.0)
        known = {name: timeline.progress[name] for name in ("epoch", "epochs", "step", "metrics")}
        assert known == {**{name: PROGRESS[name] for name in ("epoch", "epochs", "metrics")}, "step": 80}
    timeline.record_status(status("Training", 2, progress={**PROGRESS, "epoch": 2}), 40.0)
    assert timeline.progress["epoch"] == 2


def test_the_summary_of_a_success() -> None:
    timeline = Timeline()
    timeline.record_status(status("Training", 2, progress=PROGRESS, lastRestart=RESUMED), 1.0)
    timeline.record_result({"progress": {**PROGRESS, "epoch": 10, "step": 700}})
    result = Result(True, 41.23, cleanup="1 removed", models=(Path("/w/model"),), directory=Path("/w"))
    assert summary("digits", result, timeline) == [
        "digits: Succeeded in 41.2 s",
        "  trained   epoch 10 of 10, step 700",
        "  metrics   accuracy 0.9100, loss 0.2500",
        "  time      97.4 % of 41.2 s trained; restarts in place 1.1 s",
        "  restarts  1, 1.1 s without training\n"
        "            worker-1 was killed (SIGKILL), resumed from epoch 2, 1.1 s without training, 30 steps lost",
        "  cleanup   1 removed",
        "  model     /w/model",
        "  directory /w",
    ]


def test_the_summary_says_where_the_time_went() -> None:
    timeline, early = Timeline(), {**RESUMED, "time": "2026-01-01T00:00:01Z", "downSeconds": 2.0}
    told: list[tuple[float, dict[str, Any]]] = [
        (5.0, {"lastRestart": early, "backup": None}),  # a restart before the first step is a part of the start
        (20.0, {"lastRestart": early, "backup": {"blockedSeconds": 0.5}}),
        (40.0, {"lastRestart": early, "backup": {"blockedSeconds": 1.5}}),
        (41.0, {"lastRestart": {**RESUMED, "lostSeconds": 3.0}, "backup": {"blockedSeconds": None}, "number": 3}),
        (60.0, {"lastRestart": {**RESUMED, "lostSeconds": 3.0}, "backup": {"blockedSeconds": 0.75}, "number": 3}),
    ]
    for at, fields in told:
        timeline.record_status(status("Training", fields.pop("number", 2), **fields), at)
    assert timeline.goodput(100.0) == pytest.approx(
        {"start": 3.0, "inPlace": 3.08, "repeated": 3.0, "copies": 2.25, "trained": 88.67}
    )
    assert Timeline().goodput(100.0) == {}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"resumedFromEpoch": 0, "resumedFromStep": 0}, ["started over: no backup found"]),
        ({"resumedFromEpoch": 0, "resumedFromStep": 7}, ["resumed from step 7"]),
    ],
)
def test_the_summary_says_where_nothing_could_be_resumed(told: dict[str, int | None], words: list[str]) -> None:
    timeline = Timeline()
    timeline.record_status(status("Training", 2, lastRestart={**RESUMED, **told, "lostSteps": 0}), 1.0)
    parts = ["worker-1 was killed (SIGKILL)", *words, "1.1 s without training"]
    assert summary("digits", Result(True, 1.0), timeline)[-1].endswith("\n            " + ", ".join(parts))


def test_the_summary_says_that_a_program_without_reports_began_again() -> None:
    silent = {"resumedFromEpoch": None, "resumedFromStep": None, "lostSteps": None, "downSeconds": 0.0}
    timeline = Timeline()
    timeline.record_status(status("Training", 2, lastRestart={**RESUMED, **silent}), 1.0)
    line = summary("digits", Result(True, 1.0), timeline)[-1]
    first = "  restarts  1\n            worker-1 was killed (SIGKILL)"
    assert line == f"{first}, began again: the program reports no steps"


def test_a_backup_that_was_made_is_told_though_the_training_has_ended() -> None:
    timeline = Timeline()
    for told in ({"step": 90, "bytes": 4_000_000, "reason": ""}, {"step": None, "reason": "the training has ended"}):
        timeline.record_status(status("Training", backup=told), 1.0)
    told_last = summary("digits", Result(True, 1.0), timeline)[-1]
    assert told_last == "  backups   in memory, last seen at step 90, 4.0 MB in each member"


@pytest.mark.parametrize("missed", [False, True])
def test_the_last_backup_is_told_which_polls_may_have_missed(missed: bool) -> None:
    timeline, ended = Timeline(), {"step": 40, "lastStep": 208, "reason": "the training has ended"}
    for told in ({"step": 90, "bytes": 4_000_000, "reason": ""}, *(() if missed else (ended,))):
        timeline.record_status(status("Training", backup=told), 1.0)
    timeline.record_result({"verdict": "Succeeded", **({"lastBackup": 208} if missed else {})})
    told_last = summary("digits", Result(True, 1.0), timeline)[-1]
    assert told_last == "  backups   in memory, the last at step 208, 4.0 MB in each member"


@pytest.mark.parametrize(("fit", "words"), [(4, "fit 4, "), (1, ""), (None, "")])
def test_progress_and_summary_say_which_fit_of_several_it_is(fit: int | None, words: str) -> None:
    timeline = Timeline()
    timeline.record_result({"progress": {"epoch": 2, "epochs": 2, "step": 40, "fit": fit}})
    assert f"  trained   {words}epoch 2 of 2, step 40" in summary("digits", Result(True, 1.0), timeline)
    assert progress_text(timeline.progress) == f"{words}epoch 2/2, step 40"


@pytest.mark.parametrize(("epoch", "words"), [(25, ": the program ended the training early"), (60, "")])
def test_the_summary_says_that_a_program_stopped_early(epoch: int, words: str) -> None:
    timeline = Timeline()
    timeline.record_result({"progress": {"epoch": epoch, "epochs": 60}})
    assert f"  trained   epoch {epoch} of 60{words}" in summary("digits", Result(True, 1.0), timeline)
    assert f"  trained   epoch {epoch} of 60" in summary("digits", Result(False, 1.0), timeline), "a failure ended it"


@pytest.mark.parametrize(
    ("step", "epoch", "succeeded", "done"),
    [(693, 10, True, 1.0), (693, 10, False, 0.99), (693, 9, True, 0.99), (233, 1, False, 0.0)],
)
def test_a_success_is_complete_and_the_steps_of_another_fit_are_no_fraction(
    step: int, epoch: int, succeeded: bool, done: float
) -> None:
    steps = 70 if step == 693 else 4
    progress = {"epoch": epoch, "epochs": 10, "stepsPerEpoch": steps, "step": step}
    assert fraction(progress, succeeded) == done
    assert (f"{step}/{steps * 10}" in progress_text(progress)) is (step == 693)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"resumedFrom": "Memory", "lostSteps": 1, "lostSeconds": 0.12},
            "resumed from memory at step 140, 1.1 s without training, 1 step lost (0.1 s of training)",
        ),
        (
            {"resumedFrom": "Peer", "lostSteps": 0, "lostSeconds": 0.0},
            "resumed from the memory of another member at step 140, 1.1 s without training",
        ),
        (
            {"resumedFrom": "Storage", "lostSeconds": None, "backupSkipped": "no copy at step 9"},
            "resumed from epoch 2, 1.1 s without training, 30 steps lost, no backup before it: no copy at step 9",
        ),
    ],
)
def test_the_summary_says_whose_memory_a_restart_resumed_from_and_what_it_lost(
    told: dict[str, Any], words: str
) -> None:
    timeline = Timeline()
    timeline.record_status(status("Training", 2, lastRestart={**RESUMED, **told}), 1.0)
    assert summary("digits", Result(True, 1.0), timeline)[-1].endswith(f"\n            {RESTART['message']}, {words}")


def test_where_a_restart_resumes_and_what_is_not_the_same_then_is_told_once() -> None:
    timeline, generator = Timeline(), "the input is a generator"
    reports: list[dict[str, Any] | None] = [
        {"step": None, "resumesAt": "Epoch", "resumesAtReason": generator, "beginsAnew": ["MyStop"]},
        {"step": 50, "resumesAt": "Epoch", "resumesAtReason": generator, "reason": generator},
        {"step": 50, "resumesAt": ""},  # the programs start again
        {"step": 90, "resumesAt": "Step", "inputNotReproducible": True},
        {"step": 90, "resumesAt": "Storage", "resumesAtReason": "it differs", "violation": "152 steps of 300"},
        {"step": 90, "resumesAt": "Storage", "resumesAtReason": "it differs", "violation": "152 steps of 300"},
    ]
    timeline.record_status(status("Training"), 1.0)
    told = [timeline.record_status(status("Training", backup=each), 1.0) for each in reports]
    assert told == [
        [f"a restart resumes at the beginning of an epoch: {generator}", "MyStop begins anew at a restart"],
        ["backups in memory: the first at step 50"],
        [],
        ["a restart resumes at the step of the newest backup", NOT_REPRODUCIBLE],
        [
            "a restart resumes from the storage only: it differs",
            "the resumed training differs from the undisturbed one: 152 steps of 300",
        ],
        [],
    ]
    (row,) = (each for each in summary("digits", Result(True, 1.0), timeline) if "in memory" in each)
    lines = [line for lines in told for line in lines if not line.startswith("backups in memory")]
    assert row.splitlines() == ["  backups   in memory, last seen at step 90", *(f"{'':12}{line}" for line in lines)]


def test_the_first_backup_in_memory_and_a_reason_for_none_are_told_once() -> None:
    timeline, none = Timeline(), dict.fromkeys(["step", "bytes"])
    reports: list[dict[str, Any] | None] = [
        None,
        {**none, "reason": ""},
        {"step": 50, "bytes": 4_000_000, "reason": ""},
        None,
        {"step": 60, "bytes": 4_000_000, "reason": ""},
        {"step": 60, "bytes": 4_000_000, "reason": "memory is short"},
        {"step": 60, "bytes": 4_000_000, "reason": "memory is short"},
    ]
    told = [timeline.record_status(status("Training", backup=each), 1.0) for each in reports]
    lines = [line for lines in told for line in lines if "backups" in line]
    assert lines == ["backups in memory: the first at step 50", "backups in memory: memory is short"]
    assert summary("digits", Result(True, 1.0), timeline)[-1] == (
        "  backups   in memory, last seen at step 60, 4.0 MB in each member"
    )


def test_the_summary_says_why_there_were_no_backups_in_memory() -> None:
    timeline = Timeline()
    timeline.record_status(status("Training", backup={"step": None, "reason": "Keras 3"}), 1.0)
    assert summary("digits", Result(True, 1.0), timeline)[-1] == "  backups   none in memory: Keras 3"


def test_the_summary_of_a_failure_before_any_step() -> None:
    result = Result(False, 3.0, reason="ImportError", message="worker-0: No module named 'nonsense'")
    assert summary("digits", result, Timeline()) == [
        "digits: Failed after 3.0 s: ImportError: worker-0: No module named 'nonsense'",
        "  restarts  none",
    ]


FATAL = {**RESTART, "time": "2026-01-01T00:01:00Z", "message": "worker-1: ValueError: boom"}
BUDGET = "worker-1: ValueError: boom; no restarts left: spec.restartPolicy.maxRestarts is 1"


@pytest.mark.parametrize("seen", ["status", "last words", "both"])
def test_the_failure_that_ends_the_job_is_no_restart(seen: str) -> None:
    timeline, ledger = Timeline(), {"inPlace": 1}
    timeline.record_status(status("Training", 2, lastRestart=RESUMED, ledger=ledger), 1.0)
    if seen != "last words":
        timeline.record_status(status("Failed", 2, message=BUDGET, lastRestart=FATAL, ledger=ledger), 2.0)
    if seen != "status":
        words = {"verdict": "Failed", "message": BUDGET, "lastRestart": FATAL, "ledger": ledger}
        timeline.record_result(words)
    told = summary("digits", Result(False, 2.0, "MaxRestartsExceeded", BUDGET), timeline)
    assert told[2] == (
        "  restarts  1, 1.1 s without training\n"
        "            worker-1 was killed (SIGKILL), resumed from epoch 2, 1.1 s without training, 30 steps lost"
    )


def test_a_job_that_fails_while_it_waits_for_a_restart_tells_of_that() -> None:
    timeline = Timeline()
    message = "worker-1 did not connect within 5 s (spec.runPolicy.startDeadlineSeconds)"
    timeline.record_status(status("Failed", 1, message=message, lastRestart=RESTART), 9.0)
    assert summary("digits", Result(False, 9.0), timeline)[1].startswith("  restarts  1\n")


def test_restarts_that_nobody_saw_are_counted() -> None:
    timeline = Timeline()
    timeline.record_status(status("Training", 9, lastRestart=RESUMED, ledger={"inPlace": 8}), 1.0)
    assert summary("digits", Result(True, 1.0), timeline)[2].startswith("  restarts  8, ")
    timeline.record_result({"verdict": "Failed", "ledger": {"inPlace": 9}})
    assert summary("digits", Result(False, 1.0), timeline)[2].startswith("  restarts  9, ")


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        ({"firstEpoch": 3, "firstStep": 210}, ["epoch 3"]),
        ({"firstEpoch": 0, "firstStep": 40}, ["step 40"]),
        ({"firstEpoch": 0, "firstStep": 0}, []),
        ({}, []),
    ],
)
def test_a_training_that_goes_on_from_an_earlier_run_says_so_once(progress: dict[str, int], told: list[str]) -> None:
    timeline = Timeline()
    lines = [line for at in (1.0, 2.0) for line in timeline.record_status(status("Training", progress=progress), at)]
    found = [line for line in lines if "earlier run" in line]
    assert found == [f"resumed from {where} of an earlier run in the same directory" for where in told]


def test_its_own_restart_is_no_earlier_run() -> None:
    timeline = Timeline()
    restart = {"time": "2026-01-01T00:00:00Z", "member": "worker-1"}
    lines = timeline.record_status(status("Training", lastRestart=restart, progress={"firstEpoch": 3}), 9.0)
    assert not [line for line in lines if "earlier run" in line]


def test_a_worker_that_restarted_alone_cost_the_others_nothing() -> None:
    alone = {**RESTART, "downSeconds": 0.52, "alone": True, "message": "worker-1 was killed (SIGKILL)"}
    timeline = Timeline()
    timeline.record_status(status("Training", lastRestart=alone, ledger={"inPlace": 1}), 3.0)
    lines = "\n".join(summary("job", Result(succeeded=True, seconds=9.0), timeline))
    assert "1, 0.0 s without training" in lines
    assert "worker-1 was killed (SIGKILL), other members kept training, 0.5 s away" in lines


def test_members_that_train_alone_are_told_once_and_in_the_summary() -> None:
    timeline = Timeline()
    told = [timeline.record_status({"phase": "Training", "trainsAlone": ["worker-1"]}, at) for at in (1.0, 2.0)]
    words = "worker-1: trained without the other members, each a model of its own"
    assert [line for lines in told for line in lines if words in line] == [
        f"{words}: build the strategy from TF_CONFIG (TrainsAlone)"
    ]
    timeline.record_status({"phase": "Succeeded", "trainsAlone": []}, 3.0)
    assert f"  warning   {words}" in summary("job", Result(True, 3.0), timeline)


def test_a_slow_member_is_told_when_it_begins_and_when_it_ends() -> None:
    timeline = Timeline()
    slow = {"member": "worker-1", "factor": 1.52, "cause": "WaitsForInput"}
    none = {"member": None, "factor": 1.0, "cause": ""}
    told = [
        timeline.record_status({"phase": "Training", "slowMember": each}, float(at))
        for at, each in enumerate((none, slow, slow, None, {**slow, "factor": 2.0}, none, none))
    ]
    assert told[1:] == [
        [f"{waits_for_slow('worker-1', None, 1.52, 'WaitsForInput')} (SlowMember)"],
        [], [], [],
        ["no member is slow any more"],
        [],
    ]  # fmt: skip


def test_programs_that_report_nothing_are_not_said_to_train() -> None:
    timeline = Timeline()
    (line,) = timeline.record_status({"phase": "Training", "reason": "NoStepYet", "members": {}}, 31.0)
    assert line.startswith("running; no step reported yet, 31.0 s after the start")


def test_a_run_that_waits_says_for_what_and_less_often_each_time() -> None:
    timeline = Timeline()
    silence = [line for at in range(75) for line in timeline.progress_lines(float(at))]
    assert silence == [f"{at} s after the start: waiting for the launchers to start" for at in (10, 30, 70)]
    failed = {
        "phase": "Restarting",
        "message": "worker-1: ValueError: boom; starting after a wait of 16 s",
    }
    timeline.record_status(failed, 80.0)
    assert (timeline.progress_lines(89.0), timeline.progress_lines(90.0)) == (
        [],
        [f"90 s after the start: {failed['message']}"],
    )
    timeline.record_status(status("Training", progress=PROGRESS), 91.0)
    assert not [line for line in timeline.progress_lines(300.0) if "after the start" in line]


def test_what_is_waited_for_names_the_members_that_are_late() -> None:
    members = {"worker-0": {"state": "running", "step": 3}, "worker-1": {"state": "running", "step": None}}
    assert waits_for({"phase": "Starting", "message": "no step yet", "members": members}) == "no step yet: worker-1"
    assert waits_for({"phase": "Starting", "message": "no step yet", "members": {}}) == "no step yet"
    done = {"chief-0": {"state": "done"}, "evaluator-0": {"state": "running"}}
    assert waits_for({"phase": "Succeeded", "members": done}) == "waiting for the end of evaluator-0"
