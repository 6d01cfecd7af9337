"""Where a restart resumes, and whether the training then is the undisturbed one: what status and events tell of it."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.test_memory_backup import NEWEST, NONE, has_volume, training
from tests.unit.operator.plan.test_memory_backup import told as settings
from tftraining.launch.failure import incident
from tftraining.launch.gang import backup_report
from tftraining_api.model import resumes_at
from tftraining_api.model.job import dump_status
from tftraining_api.model.status import RESUMED_TRAINING_DIFFERS, Backup, Condition, Progress, Status
from tftraining_operator.cluster.metrics import Counted, Metrics
from tftraining_operator.model.launcher_report import LONGEST_LISTS, parse_report
from tftraining_operator.plan.status_writes import dropped_fields, is_written

FIRST = "the first at step 170, 76.0 MB a member"
AT_STEP = "a restart resumes at the step of the newest backup"
AT_EPOCH = "a restart resumes at the beginning of an epoch"
GENERATOR, NO_SEED = "the input is a generator", "the shuffle has no seed"
OTHER_LENGTH = "epoch 3 has 152 steps of 300"
DIFFERS = "ResumedTrainingDiffers"


def condition(cluster: SimulatedCluster, kind: str = "MemoryBackup") -> tuple[str, str, str] | None:
    found = cluster.status.condition(kind)
    return None if found is None else (found.status, found.reason, found.message)


def report(cluster: SimulatedCluster, **backup: Any) -> SimulatedCluster:
    cluster.launchers.in_memory = {**NEWEST, **backup}
    return cluster.wait(20).run()


def told(cluster: SimulatedCluster, reason: str) -> list[tuple[str, str]]:
    return [(each.type, each.message) for each in cluster.events if each.reason == reason]


def test_the_words_are_those_of_the_launchers() -> None:
    assert (RESUMED_TRAINING_DIFFERS, tuple(resumes_at.RESUMES_AT)) == (incident.DIFFERS, backup_report.RESUMES_AT)


# --- where a restart resumes


@pytest.mark.parametrize(
    ("resumes_at", "why", "words"),
    [
        ("Step", "", AT_STEP),
        ("StepDrawnAnew", NO_SEED, f"{AT_STEP}, and draws the rest of the epoch anew: {NO_SEED}"),
        ("Epoch", GENERATOR, f"{AT_EPOCH}: {GENERATOR}"),
        ("Storage", GENERATOR, f"a restart resumes from the storage only: {GENERATOR}"),
    ],
)  # fmt: skip
def test_the_condition_and_the_progress_say_where_a_restart_resumes(resumes_at: str, why: str, words: str) -> None:
    cluster = training(resumesAt=resumes_at, resumesAtReason=why)
    assert condition(cluster) == ("True", "MemoryBackupOn", f"{FIRST}; {words}")
    progress = cluster.status.progress
    assert progress is not None and progress.backup is not None
    assert (progress.backup.resumes_at, progress.backup_reason) == (resumes_at, why or None)
    assert not cluster.step(), "nothing to do while nothing happens"


def test_it_is_told_before_the_first_backup() -> None:
    cluster = training(**NONE, resumesAt="Epoch", resumesAtReason=GENERATOR)
    assert condition(cluster) == ("Unknown", "NoBackupYet", f"no backup yet; {AT_EPOCH}: {GENERATOR}")
    assert told(cluster, "MemoryBackupOn") == []
    report(cluster, resumesAt="Epoch", resumesAtReason=GENERATOR)
    assert condition(cluster) == ("True", "MemoryBackupOn", f"{FIRST}; {AT_EPOCH}: {GENERATOR}")
    assert len(told(cluster, "MemoryBackupOn")) == 1


def test_a_later_fit_resumes_elsewhere_and_the_first_backup_stays_in_the_message() -> None:
    cluster = training(resumesAt="Epoch", resumesAtReason=GENERATOR)
    since = cluster.status.condition("MemoryBackup")
    report(cluster, step=400, resumesAt="Step")
    assert condition(cluster) == ("True", "MemoryBackupOn", f"{FIRST}; {AT_STEP}")
    now = cluster.status.condition("MemoryBackup")
    assert since is not None and now is not None and now.last_transition_time == since.last_transition_time
    assert len(told(cluster, "MemoryBackupOn")) == 1


def test_programs_that_start_again_have_not_told_yet_and_change_nothing() -> None:
    cluster = training(resumesAt="Step")
    before = condition(cluster)
    report(cluster, on=False, resumesAt="")
    report(cluster, on=False, resumesAt="Epoch", resumesAtReason=GENERATOR)
    report(cluster, on=True, resumesAt="")
    assert condition(cluster) == before


def test_a_job_without_backups_says_why_it_resumes_from_the_storage() -> None:
    cluster = training(**NONE, on=False, reason=GENERATOR, resumesAt="Storage")
    words = f"a restart resumes from the storage only: {GENERATOR}"
    assert condition(cluster) == ("False", "MemoryBackupOff", words)
    assert told(cluster, "MemoryBackupOff") == [], "no backups have ended"


def test_what_begins_anew_is_named() -> None:
    cluster = training(resumesAt="Step", beginsAnew=["EarlyStopping of the class MyStop"])
    words = "EarlyStopping of the class MyStop begins anew at a restart"
    assert condition(cluster) == ("True", "MemoryBackupOn", f"{FIRST}; {AT_STEP}; {words}")
    report(cluster, resumesAt="Step", beginsAnew=["MyStop", "MySchedule"])
    assert condition(cluster) == (
        "True",
        "MemoryBackupOn",
        f"{FIRST}; {AT_STEP}; MyStop, MySchedule begin anew at a restart",
    )


def test_a_definition_without_the_place_causes_no_repeated_write() -> None:
    told, dropped = (Status(progress=Progress(step=9, backup=Backup(9, resumes_at=each))) for each in ("Step", None))
    known = frozenset(dropped_fields(dump_status(told), dump_status(dropped)))
    assert known == {("progress", "backup", "resumesAt")}
    assert not is_written(dropped, told) and is_written(dropped, told, known)
    assert not is_written(dropped, Status(progress=Progress(step=9, backup=Backup(10, resumes_at="Step"))), known)


def test_a_launcher_of_the_version_before_tells_as_before() -> None:
    cluster = training()
    assert condition(cluster) == ("True", "MemoryBackupOn", FIRST)
    report(cluster, resumesAt="Step")  # the launchers' image is the new one from the next pods on
    assert condition(cluster) == ("True", "MemoryBackupOn", f"{FIRST}; {AT_STEP}")
    assert len(told(cluster, "MemoryBackupOn")) == 1


# --- an input that is not known to be reproducible


def test_the_condition_is_true_while_backups_are_made_inside_such_an_epoch() -> None:
    cluster = training(resumesAt="Epoch", resumesAtReason=GENERATOR)
    assert condition(cluster, "InputNotReproducible") is None
    report(cluster, resumesAt="Step", inputNotReproducible=True)
    found = condition(cluster, "InputNotReproducible")
    assert found is not None and found[:2] == ("True", "InputNotReproducible")
    assert found[2].endswith("spec.launcher.memoryBackup.exactness: Required forbids it")
    report(cluster, resumesAt="Epoch", resumesAtReason=GENERATOR)
    found = condition(cluster, "InputNotReproducible")
    assert found is not None and found[:2] == ("False", "Training")
    assert not cluster.step()


# --- a resumed training that differs


def test_a_violation_is_a_condition_and_one_event() -> None:
    cluster = training(resumesAt="Step", violation=OTHER_LENGTH)
    words = f"the resumed training differs from the undisturbed one: {OTHER_LENGTH}"
    assert condition(cluster, DIFFERS) == ("True", DIFFERS, words)
    report(cluster, on=False, reason=OTHER_LENGTH, violation="")
    assert condition(cluster, DIFFERS) == ("True", DIFFERS, words), "for the life of the job"
    assert told(cluster, DIFFERS) == [("Warning", f"{words}; no more backups in memory")]
    assert condition(cluster) == ("False", DIFFERS, words)
    assert not cluster.step()


def test_pods_that_come_after_a_violation_make_no_backups() -> None:
    cluster = training(violation=OTHER_LENGTH)
    assert has_volume(cluster, "worker-1")
    report(cluster, on=False)
    cluster.delete("worker-1").run()
    assert not has_volume(cluster, "worker-1")
    assert OTHER_LENGTH in settings(cluster, "worker-1")["off"]


def test_a_violation_that_no_poll_saw_is_known_by_its_restart() -> None:
    cluster = training()
    cluster.launchers.crash("worker-1")
    assert cluster.launchers.last is not None
    cluster.launchers.last |= {"reason": DIFFERS, "exception": f"{DIFFERS}: {OTHER_LENGTH}"}
    cluster.run()
    found = condition(cluster, DIFFERS)
    assert found is not None and found[2].endswith(OTHER_LENGTH)
    warned = [message for kind, message in told(cluster, DIFFERS) if kind == "Warning"]
    assert warned == [f"{found[2]}; no more backups in memory"]
    assert cluster.status.message is not None
    assert cluster.status.message.startswith(
        "worker-1 found that its resumed training differs from the undisturbed one"
    )


def test_a_violation_at_the_end_of_the_job_is_told_too() -> None:
    cluster = training()
    cluster.launchers.in_memory = {**NEWEST, "violation": OTHER_LENGTH}
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.launchers.finish()
    cluster.settle()
    assert (cluster.status.phase, cluster.status.is_true(DIFFERS)) == ("Succeeded", True)
    assert len(told(cluster, DIFFERS)) == 1


def test_a_violation_is_counted_once_a_job() -> None:
    metrics, time = Metrics(list, Counter()), datetime(2026, 3, 1, tzinfo=UTC)
    found = Status(conditions=(Condition(DIFFERS, "True", time, DIFFERS),))
    for old, new in ((Status(), Status()), (Status(), found), (found, found)):
        metrics.observe(old, new, Counted.since(time), time)
    assert metrics.registry.get_sample_value("tftraining_resumed_training_differs_total") == 1


# --- replicas that differ

ODD = "at step 48 worker-2 holds other values than the rest: dense/kernel"
ROUNDED = "at step 48 the values of worker-0, worker-1 differ in their last bits only"
SINCE = "the copies of all replicas have compared equal since"


def test_replicas_that_differ_are_a_condition_and_one_event() -> None:
    cluster = training(replicasCompared=9)
    assert condition(cluster, "ReplicasDiffer") is None
    report(cluster, replicasCompared=9, replicas=ODD, replicasDiffer=True)
    assert condition(cluster, "ReplicasDiffer") == ("True", "ReplicasDiffer", ODD)
    assert not cluster.step()
    later = ODD.replace("48", "96")
    report(cluster, replicas=later, replicasDiffer=True)
    assert condition(cluster, "ReplicasDiffer") == ("True", "ReplicasDiffer", later)
    assert told(cluster, "ReplicasDiffer") == [("Warning", ODD)]
    assert condition(cluster) == ("True", "MemoryBackupOn", FIRST), "the copies go on"


def test_it_is_over_where_later_copies_have_compared_equal() -> None:
    cluster = training(replicas=ODD, replicasDiffer=True)
    report(cluster, replicasCompared=0)
    assert condition(cluster, "ReplicasDiffer") == ("True", "ReplicasDiffer", ODD), "a new launcher knows nothing yet"
    report(cluster, replicasCompared=1)
    assert condition(cluster, "ReplicasDiffer") == ("False", "Training", SINCE)
    report(cluster, replicasCompared=20)
    assert not cluster.step()
    report(cluster, replicasCompared=20, replicas=ODD, replicasDiffer=True)
    assert told(cluster, "ReplicasDiffer") == [("Warning", ODD)] * 2


def test_differences_of_rounding_are_told_without_an_event() -> None:
    cluster = training(replicas=ROUNDED, replicasCompared=1)
    assert condition(cluster, "ReplicasDiffer") == ("False", "Training", ROUNDED)
    assert told(cluster, "ReplicasDiffer") == []
    assert not cluster.step()


def test_replicas_that_differ_are_counted_each_time_they_begin_to() -> None:
    metrics, time = Metrics(list, Counter()), datetime(2026, 3, 1, tzinfo=UTC)
    found, over = (Status(conditions=(Condition("ReplicasDiffer", each, time, "x"),)) for each in ("True", "False"))
    for old, new in ((Status(), found), (found, found), (found, over), (over, found)):
        metrics.observe(old, new, Counted.since(time), time)
    assert metrics.registry.get_sample_value("tftraining_replicas_differ_total") == 2


# --- the report


def test_a_reports_words_are_bounded_and_known() -> None:
    long = {
        "resumesAt": "Moon",
        "resumesAtReason": "x" * 2000,
        "violation": "v" * 2000,
        "replicas": "r" * 2000,
        "beginsAnew": ["y" * 2000] * 99,
    }
    backup = parse_report(json.dumps({"phase": "Training", "backup": long}).encode()).backup
    assert backup is not None and backup.resumes_at == ""
    assert (len(backup.resumes_at_reason), len(backup.violation), len(backup.replicas)) == (300, 300, 300)
    assert (len(backup.begins_anew), len(backup.begins_anew[0])) == (8, 128)


def test_a_long_list_of_what_begins_anew_is_refused_before_it_is_built() -> None:
    long = {"phase": "Training", "backup": {"beginsAnew": [""] * (LONGEST_LISTS // 2)}}
    with pytest.raises(ValueError, match="its lists and metrics have"):
        parse_report(json.dumps(long).encode())
