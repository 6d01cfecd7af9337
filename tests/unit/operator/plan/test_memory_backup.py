"""Backups in memory: what the status, the events and the metrics tell of them, and their end after an OOMKilled."""

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.status import Backup, LastRestart, Status
from tftraining_operator.cluster.metrics import Counted, Metrics
from tftraining_operator.model.launcher_report import parse_report

TIME = "2026-03-01T12:00:05Z"
NONE = dict.fromkeys(["step", "time", "where", "bytes", "seconds"])  # as a launcher reports that it has none
NEWEST = {
    "step": 170,
    "time": TIME,
    "where": "Memory",
    "bytes": 76_000_000,
    "seconds": 0.01834,
    "members": 2,
    "on": True,
}
FULL = "the state of 76 MB does not fit twice"


def job(**container: Any) -> JobBuilder:
    return a_launched_job().container(resources={"limits": {"memory": "2Gi"}}, **container)


def training(made: JobBuilder | None = None, **backup: Any) -> SimulatedCluster:
    """A gang that has made a backup in memory, with its events so far forgotten."""
    cluster = SimulatedCluster(made or job()).run()
    cluster.launchers.advance(3, 180)
    cluster.launchers.in_memory = {**NEWEST, **backup}
    cluster.run()
    return cluster


def told(cluster: SimulatedCluster, member: str) -> dict[str, Any]:
    """The setting for backups in the pod of that member."""
    env = {
        each["name"]: each.get("value") for each in cluster.api.pods[f"mnist-{member}"]["spec"]["containers"][0]["env"]
    }
    found: dict[str, Any] = json.loads(str(env["TFTRAINING_LAUNCHER"]))["memoryBackup"]
    return found


def has_volume(cluster: SimulatedCluster, member: str) -> bool:
    volumes = cluster.api.pods[f"mnist-{member}"]["spec"]["volumes"]
    return any(each["name"] == "tftraining-memory-backup" for each in volumes)


def forget_condition(cluster: SimulatedCluster) -> None:
    """The status is one of the operator before the condition."""
    status = cluster.api.job["status"]
    status["conditions"] = [each for each in status["conditions"] if each["type"] != "MemoryBackup"]


def pass_with_an_older_definition(cluster: SimulatedCluster, passes: int = 1) -> None:
    """Passes of the operator whose writes lose the fields that an older definition of the resource lacks."""
    for _ in range(passes):
        cluster.wait(20).step()
        status = cluster.api.job["status"]
        status.pop("memoryBackupOff", None)
        for name in ("backup", "backupReason"):
            status["progress"].pop(name, None)


def told_condition(cluster: SimulatedCluster) -> tuple[str, str, str] | None:
    found = cluster.status.condition("MemoryBackup")
    return None if found is None else (found.status, found.reason, found.message)


def notes(cluster: SimulatedCluster) -> list[tuple[str, str, str]]:
    return [(each.type, each.reason, each.message) for each in cluster.events if "MemoryBackup" in each.reason]


# --- the newest backup


def test_the_status_has_the_newest_backup_and_one_event_tells_of_the_first() -> None:
    cluster = training()
    progress = cluster.status.progress
    assert progress is not None and progress.backup_reason is None
    time = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
    assert progress.backup == Backup(step=170, time=time, where="Memory", bytes=76_000_000, seconds=0.0183)
    cluster.launchers.in_memory = {**NEWEST, "step": 180}
    cluster.wait(20).run()
    assert cluster.status.progress is not None and cluster.status.progress.backup is not None
    assert cluster.status.progress.backup.step == 180
    assert notes(cluster) == [
        ("Normal", "MemoryBackupOn", "backups in memory: the first at step 170, 76.0 MB a member")
    ]
    assert not cluster.step(), "nothing to do while nothing happens"


def test_a_gang_without_backups_tells_why_and_no_event_does() -> None:
    cluster = training(**NONE, members=0, on=False, reason=FULL)
    progress = cluster.status.progress
    assert progress is not None and (progress.backup, progress.backup_reason) == (None, FULL)
    assert notes(cluster) == []


@pytest.mark.parametrize("why", ["waits for the end of an epoch, or 1000 steps", "the training has ended"])
def test_a_pause_and_the_end_of_the_training_are_no_end_of_the_backups(why: str) -> None:
    cluster = training()
    cluster.launchers.in_memory = {**NONE, "members": 0, "on": False, "reason": why}
    cluster.wait(20).run()
    assert notes(cluster)[1:] == []
    assert told_condition(cluster) == ("True", "MemoryBackupOn", "the first at step 170, 76.0 MB a member")


def test_backups_that_end_are_an_event_with_the_reason() -> None:
    cluster = training()
    cluster.launchers.in_memory = {**NEWEST, "on": False, "reason": FULL}
    cluster.wait(20).run()
    assert notes(cluster)[1:] == [("Warning", "MemoryBackupOff", f"no more backups in memory: {FULL}")]
    progress = cluster.status.progress
    assert progress is not None and progress.backup is not None and progress.backup_reason == FULL


def test_backups_that_keep_no_position_in_the_epoch_are_on_all_the_same() -> None:
    why = "the input has no order of its own"
    cluster = training(reason=why)
    assert [each[:2] for each in notes(cluster)] == [("Normal", "MemoryBackupOn")]
    progress = cluster.status.progress
    assert progress is not None and progress.backup is not None and progress.backup_reason == why


def test_without_progress_there_is_no_backup_either() -> None:
    """status.progress tells the operator that the job has made a step."""
    cluster = SimulatedCluster(job()).run()
    cluster.launchers.in_memory = {"on": False, "reason": FULL}
    cluster.run()
    assert cluster.status.progress is None


@pytest.mark.parametrize("before", ["a launcher of the version before", "no backup"])
def test_a_gang_that_trains_and_reports_none_has_none(before: str) -> None:
    cluster = training()
    cluster.launchers.in_memory = None if before.startswith("a launcher") else {"on": True}
    cluster.wait(20).run()
    assert cluster.status.progress is not None and cluster.status.progress.backup is None


def test_programs_that_restart_do_not_take_the_backups_away() -> None:
    cluster = training()
    cluster.launchers.crash("worker-1")
    cluster.launchers.in_memory = None
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert (cluster.status.phase, cluster.status.progress and cluster.status.progress.backup) == (
        "Restarting",
        Backup(
            step=170, time=datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC), where="Memory", bytes=76_000_000, seconds=0.0183
        ),
    )


def test_the_end_of_the_pods_is_the_end_of_their_memory() -> None:
    suspended, ended, recreated = training(), training(), training()
    suspended.api.edit("runPolicy.suspend", True)
    ended.launchers.finish()
    recreated.exit("worker-0", "worker-1").api.edit("replicaSpecs.ps", {"replicas": 1})
    for cluster, phase in ((suspended.settle(), "Suspended"), (ended.settle(), "Succeeded"), (recreated, "Restarting")):
        cluster.step()
        assert cluster.status.progress is not None and cluster.status.phase == phase
        assert cluster.status.progress.backup is None, phase


def test_the_condition_tells_what_the_events_told() -> None:
    cluster = training()
    assert told_condition(cluster) == ("True", "MemoryBackupOn", "the first at step 170, 76.0 MB a member")
    cluster.launchers.in_memory = {**NEWEST, "on": False, "reason": FULL}
    cluster.wait(20).run()
    assert told_condition(cluster) == ("False", "MemoryBackupOff", FULL)
    cluster.launchers.in_memory = {**NEWEST, "step": 400}
    cluster.wait(20).run()
    assert [each[1] for each in notes(cluster)] == ["MemoryBackupOn", "MemoryBackupOff", "MemoryBackupOn"]
    cluster.api.edit("runPolicy.suspend", True)
    assert told_condition(cluster.run()) is None


def test_an_older_definition_of_the_resource_repeats_no_event() -> None:
    cluster = training()
    pass_with_an_older_definition(cluster, 3)
    cluster.launchers.in_memory = {**NEWEST, "on": False, "reason": FULL}
    cluster.wait(20).run()
    pass_with_an_older_definition(cluster, 3)
    cluster.exit("worker-1", code=137, reason="OOMKilled").wait(20)
    pass_with_an_older_definition(cluster, 3)
    reason = "worker-1 was OOMKilled"
    assert notes(cluster)[1:] == [
        ("Warning", "MemoryBackupOff", f"no more backups in memory: {FULL}"),
        ("Warning", "MemoryBackupOff", f"{reason}: new pods make no backups in memory"),
    ]
    cluster.run()
    assert (has_volume(cluster, "worker-1"), told(cluster, "worker-1")["off"]) == (False, reason)
    assert told_condition(cluster) == ("False", "OOMKilled", reason)


# --- restarts


def resumed(source: str, lost_steps: int, seconds: float | None = 0.1, **more: Any) -> SimulatedCluster:
    cluster = training()
    cluster.launchers.crash("worker-1")
    cluster.launchers.tick()
    assert cluster.launchers.last is not None
    record = {"resumedFrom": source, "resumedFromStep": 170, "lostSteps": lost_steps, "lostSeconds": seconds, **more}
    cluster.launchers.last |= record
    cluster.events.clear()
    return cluster.run()


def test_a_restart_tells_where_it_resumed_and_what_it_lost() -> None:
    cluster = resumed("Memory", 1)
    last, condition = cluster.status.last_restart, cluster.status.condition("Resumed")
    assert last is not None and (last.resumed_from, last.lost_steps, last.lost_seconds) == ("Memory", 1, 0.1)
    words = "resumed from memory at step 170 after 1.1 s"
    assert cluster.status.message == f"worker-1 was killed (SIGKILL); {words}"
    assert condition is not None and condition.message == f"{words}; 1 step lost (0.1 s of training)"
    assert [each.message for each in cluster.events if each.reason == "Killed"] == [
        f"worker-1 was killed (SIGKILL); {words}; 1 step lost (0.1 s of training)"
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("Peer", "resumed from the memory of another member at step 170 after 1.1 s"),
        ("Storage", "resumed from epoch 2 after 1.1 s"),
        ("Elsewhere", "resumed from epoch 2 after 1.1 s"),
    ],
)
def test_the_source_is_told(source: str, words: str) -> None:
    cluster = resumed(source, 0, None)
    assert cluster.status.message == f"worker-1 was killed (SIGKILL); {words}"
    assert cluster.status.last_restart is not None
    assert cluster.status.last_restart.resumed_from == (None if source == "Elsewhere" else source)


def test_an_announced_stop_without_a_backup_tells_why() -> None:
    last = resumed("Memory", 3, backupSkipped="no common step within 5 s").status.last_restart
    assert last is not None and last.backup_skipped == "no common step within 5 s"


@pytest.mark.parametrize(("began", "source"), [((2, 140), "Storage"), ((0, 0), "Start")])
def test_a_gang_of_new_pods_resumes_from_storage_or_from_the_start(began: tuple[int, int], source: str) -> None:
    cluster = training()
    cluster.launchers.backup = began
    cluster.api.edit("launcher.warmStart", False)
    cluster.launchers.in_memory = None
    cluster.run_timers()
    cluster.launchers.advance(began[0] + 1, began[1] + 5)
    cluster.run()
    last = cluster.status.last_restart
    assert last is not None and (last.resumed_from_step, last.resumed_from) == (began[1], source)


@pytest.mark.parametrize("total", [True, False], ids=["all steps are known", "launchers of an older version"])
def test_a_later_fit_of_new_pods_resumes_behind_those_that_began_again(total: bool) -> None:
    """The first fit has made 150 steps, the second 190, when all pods are replaced. The first one trains again, the
    second resumes at its step 140: 200 steps were lost."""
    cluster = training()
    cluster.launchers.earlier_steps = 150 if total else None
    cluster.launchers.advance(3, 190)
    cluster.run()
    cluster.launchers.backup, cluster.launchers.in_memory = (0, 0), None
    cluster.api.edit("launcher.warmStart", False)
    cluster.run_timers()
    cluster.launchers.earlier_steps = 0 if total else None
    cluster.launchers.advance(1, 5)
    assert (told := cluster.run().status.condition("Resumed")) is not None and told.reason == "StartedOver"
    cluster.launchers.began = (2, 140)
    if total:
        cluster.launchers.earlier_steps = cluster.launchers.made_before = 150
    cluster.launchers.advance(3, 145)
    last = cluster.wait(20).run().status.last_restart
    assert last is not None and (last.resumed_from_step, last.resumed_from) == (140, "Storage")
    assert (last.lost_steps, last.lost_seconds) == ((200, 16.19) if total else (None, None))
    assert (told := cluster.status.condition("Resumed")) is not None and told.message.startswith("resumed from epoch 2")


@pytest.mark.parametrize(
    ("began", "lost"),
    [((0, 40), 15), ((0, 55), 0), ((3, 0), 55)],
    ids=["inside it", "at its last step", "at the end of the first"],
)
def test_a_restart_in_a_second_fit_loses_what_that_fit_has_made(began: tuple[int, int], lost: int) -> None:
    """Each fit counts its steps from 0: the first one has made 120, the second 55, when all pods are replaced."""
    cluster = training()
    cluster.launchers.advance(3, 120)
    cluster.run()
    cluster.launchers.advance(1, 55)
    cluster.wait(20).run()
    progress = cluster.status.progress
    assert progress is not None and (progress.epoch, progress.step, cluster.status.last_restart) == (1, 55, None)
    cluster.launchers.earlier_steps = None  # the new pods have a launcher that does not tell
    cluster.launchers.backup = began
    cluster.launchers.in_memory = None
    cluster.api.edit("launcher.warmStart", False)
    cluster.run_timers()
    cluster.launchers.advance(1, began[1] + 5)
    cluster.run()
    last = cluster.status.last_restart
    assert last is not None and (last.resumed_from_step, last.lost_steps) == (began[1], lost)


@pytest.mark.parametrize(
    ("earlier", "made", "lost"),
    [(120, 120, 135), (0, 0, 15), (120, 0, 15)],
    ids=["the first trained again", "the program skipped the first", "the first was restored"],
)
def test_new_pods_lose_the_earlier_fits_that_they_train_again(earlier: int, made: int, lost: int) -> None:
    """The first fit has made 120 steps, the second 55, when all pods are replaced; the second resumes at step 40."""
    cluster = training()
    cluster.launchers.earlier_steps = 120
    cluster.launchers.advance(1, 55)
    cluster.wait(20).run()
    cluster.launchers.backup = (0, 40)
    cluster.launchers.in_memory = None
    cluster.api.edit("launcher.warmStart", False)
    cluster.run_timers()
    cluster.launchers.earlier_steps, cluster.launchers.made_before = earlier, made
    cluster.launchers.advance(1, 45)
    last = cluster.run().status.last_restart
    assert last is not None and (last.resumed_from_step, last.lost_steps) == (40, lost)


# --- the end after an OOMKilled


def test_a_pod_that_is_oom_killed_comes_back_without_the_volume() -> None:
    cluster = training()
    assert has_volume(cluster, "worker-1")
    cluster.events.clear()
    cluster.exit("worker-1", code=137, reason="OOMKilled").run()
    reason = "worker-1 was OOMKilled"
    assert cluster.status.memory_backup_off == reason
    assert (has_volume(cluster, "worker-1"), told(cluster, "worker-1")["off"]) == (False, reason)
    assert has_volume(cluster, "worker-0"), "a pod that runs stays as it is"
    assert notes(cluster) == [("Warning", "MemoryBackupOff", f"{reason}: new pods make no backups in memory")]
    assert cluster.status.progress is not None and cluster.status.progress.backup_reason == reason
    assert not cluster.step()


def test_an_oom_kill_inside_a_pod_counts_too() -> None:
    cluster = training()
    cluster.launchers.crash("worker-1")
    assert cluster.launchers.last is not None
    cluster.launchers.last["reason"] = "OOMKilled"
    cluster.run().delete("worker-0").run_timers()
    assert cluster.status.memory_backup_off == "worker-1 was OOMKilled"
    assert not has_volume(cluster, "worker-0")


def test_it_is_kept_by_an_operator_that_starts_anew_and_after_later_restarts() -> None:
    cluster = training()
    cluster.exit("worker-1", code=137, reason="OOMKilled").run()
    cluster.forget()
    cluster.run_timers().delete("worker-1").run_timers().exit("worker-0", code=137, reason="OOMKilled").run_timers()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run().api.edit("runPolicy.suspend", False)
    cluster.run_timers()
    assert cluster.status.memory_backup_off == "worker-1 was OOMKilled"
    assert not has_volume(cluster, "worker-0") and not has_volume(cluster, "worker-1")
    assert len([each for each in cluster.events if each.reason == "MemoryBackupOff"]) == 1


@pytest.mark.parametrize(
    "made",
    [
        a_launched_job(),
        job().set("launcher.memoryBackup", {"mode": "Off"}),
    ],
    ids=["no limit", "off"],
)
def test_a_job_without_the_volume_loses_nothing(made: JobBuilder) -> None:
    cluster = training(made).exit("worker-1", code=137, reason="OOMKilled").run()
    assert cluster.status.memory_backup_off is None


def test_the_memory_of_a_parameter_server_is_its_own() -> None:
    cluster = training(job().role("ps", replicas=1)).exit("ps-0", code=137, reason="OOMKilled").run()
    assert (cluster.status.phase, cluster.status.memory_backup_off) == ("Running", None)


def test_an_oom_kill_of_the_version_before_is_no_news() -> None:
    """An upgrade of the operator writes nothing: only an OOMKilled from then on counts."""
    cluster = training().exit("worker-1", code=137, reason="OOMKilled").run()
    del cluster.api.job["status"]["memoryBackupOff"]
    forget_condition(cluster)
    cluster.launchers.in_memory = None
    cluster.run().wait(20).run()
    assert cluster.status.memory_backup_off is None


# --- the report and the metrics


def test_a_reports_words_are_bounded() -> None:
    raw = {"phase": "Training", "backup": {"step": 3, "where": "Moon", "reason": "x" * 2000}}
    raw["lastRestart"] = {"resumedFrom": "Moon", "backupSkipped": "y" * 2000}
    report = parse_report(json.dumps(raw).encode())
    assert report.backup is not None and (report.backup.where, len(report.backup.reason)) == ("", 300)
    assert report.last_restart is not None and len(report.last_restart.backup_skipped) == 300
    assert report.last_restart.resumed_from == ""


def counted_losses(*statuses: Status) -> dict[str, float]:
    """The steps counted by where the training resumed, over the statuses of a job."""
    metrics, time = Metrics(list, Counter()), datetime(2026, 3, 1, tzinfo=UTC)
    for old, new in pairwise((Status(), *statuses)):
        metrics.observe(old, new, Counted.since(time), time.replace(hour=2))
    found = [each for family in metrics.registry.collect() for each in family.samples]
    return {each.labels["resumed_from"]: each.value for each in found if each.name == "tftraining_job_lost_steps_total"}


def test_steps_that_a_later_fit_may_still_resume_are_counted_when_that_is_over() -> None:
    """A counter cannot fall as the record does."""
    time = datetime(2026, 3, 1, tzinfo=UTC)
    begun = LastRestart(time=time, resumed_from="Start", lost_steps=320)
    again, resumed = replace(begun, lost_steps=330), replace(begun, resumed_from="Storage", lost_steps=200)
    later = LastRestart(time=time.replace(hour=1), resumed_from="Peer", lost_steps=4)
    up, up_again, back, next_up = (Status(last_restart=each) for each in (begun, again, resumed, later))
    assert counted_losses(up, up_again) == {}
    assert counted_losses(up, back, back) == {"Storage": 200}
    assert counted_losses(up, up_again, next_up, next_up) == {"Start": 330, "Peer": 4}
    assert counted_losses(up, back, next_up) == {"Storage": 200, "Peer": 4}
    for phase in ("Succeeded", "Failed"):
        ended = replace(up, phase=phase)
        assert counted_losses(up, ended, ended) == counted_losses(ended) == {"Start": 320}
    assert counted_losses(up, Status(last_restart=LastRestart(time=later.time)), next_up) == {"Start": 320, "Peer": 4}


def test_lost_work_is_counted_once_when_it_is_known() -> None:
    metrics, time = Metrics(list, Counter()), datetime(2026, 3, 1, tzinfo=UTC)
    down = Status(last_restart=LastRestart(time=time))
    up = Status(last_restart=LastRestart(time=time, resumed_from="Peer", lost_steps=4, lost_seconds=0.5))
    again = Status(last_restart=LastRestart(time=time.replace(hour=1), lost_steps=2))
    for old, new in ((Status(), down), (down, up), (up, up), (up, again)):
        metrics.observe(old, new, Counted.since(time), time.replace(hour=2))
    values = {
        (each.name, *each.labels.values()): each.value
        for family in metrics.registry.collect()
        for each in family.samples
    }
    assert (values["tftraining_job_lost_steps_total", "Peer"], values["tftraining_job_lost_seconds_total", "Peer"]) == (
        4,
        0.5,
    )
    assert (
        values["tftraining_job_lost_steps_total", "Other"],
        values["tftraining_job_lost_seconds_total", "Other"],
    ) == (2, 0)


def test_jobs_with_a_backup_are_counted() -> None:
    jobs: list[dict[str, Any]] = [
        {},
        {"status": {"progress": {"backup": {"step": 3}}}},
        {"status": {"progress": {"step": 3}}},
    ]
    samples = [each for family in Metrics(lambda: jobs, Counter()).registry.collect() for each in family.samples]
    assert [each.value for each in samples if each.name == "tftraining_memory_backup_jobs"] == [1]
