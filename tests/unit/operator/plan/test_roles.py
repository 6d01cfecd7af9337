"""Row: roles. Chief, worker, ps, evaluator in any mix; who restarts alone (restartPolicy.scope) and who together; the
servers stop when the chief is done; the evaluator gates nothing and gets its time for the last checkpoint.
"""

import json
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.conftest import until_it_cleans

ALL = ["chief-0", "evaluator-0", "ps-0", "worker-0", "worker-1"]


def servers(job: JobBuilder) -> JobBuilder:
    """A chief, two workers and a parameter server."""
    return job.chief().role("ps")


def everybody(job: JobBuilder) -> JobBuilder:
    return servers(job).role("evaluator")


def running(job: JobBuilder) -> SimulatedCluster:
    cluster = SimulatedCluster(job).run()
    assert cluster.status.phase == "Running"
    cluster.trajectory.clear()
    cluster.events.clear()
    return cluster


def finish(cluster: SimulatedCluster, chief: str = "chief-0") -> None:
    """The chief's program has done its work."""
    if cluster.launched:
        assert cluster.launchers.finish()
    else:
        cluster.exit(chief, code=0)


def uids(cluster: SimulatedCluster) -> dict[str, str]:
    return {name: cluster.api.pods[cluster.name(name)]["metadata"]["uid"] for name in cluster.pods}


def told(cluster: SimulatedCluster) -> list[tuple[str, str]]:
    return [(note.type, note.reason) for note in cluster.events]


def counts(cluster: SimulatedCluster, role: str) -> dict[str, Any]:
    own = cluster.status.replicas[role]
    return {"desired": own.desired, "active": own.active, "ready": own.ready, "failed": own.failed}


BOTH = pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


@BOTH
def test_all_roles_get_their_pods_and_the_gang_is_counted_without_the_evaluator(job: Any) -> None:
    cluster = running(everybody(job()))
    assert (cluster.pods, cluster.status.ready, cluster.status.message) == (ALL, "4/4", "4 replicas training")
    assert set(cluster.status.replicas) == {"chief", "worker", "ps", "evaluator"}
    assert counts(cluster, "ps") == {"desired": 1, "active": 1, "ready": 1, "failed": 0}
    assert counts(cluster, "evaluator")["desired"] == 1


# Every mix that a strategy of TensorFlow accepts: the roles, who is the chief, how many train together.
MIXES: dict[str, tuple[dict[str, int], str, int]] = {
    "one machine": ({"worker": 1}, "worker-0", 1),
    "a chief alone": ({"chief": 1}, "chief-0", 1),
    "a chief and no worker": ({"chief": 1, "worker": 0}, "chief-0", 1),
    "workers": ({"worker": 3}, "worker-0", 3),
    "a chief and workers": ({"chief": 1, "worker": 2}, "chief-0", 3),
    "servers": ({"chief": 1, "worker": 2, "ps": 2}, "chief-0", 5),
    "servers without a chief": ({"worker": 2, "ps": 1}, "worker-0", 3),
    "one machine and an evaluator": ({"worker": 1, "evaluator": 1}, "worker-0", 1),
    "a chief and an evaluator": ({"chief": 1, "evaluator": 1}, "chief-0", 1),
    "workers and an evaluator": ({"worker": 2, "evaluator": 1}, "worker-0", 2),
    "everybody": ({"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}, "chief-0", 5),
}


def mixed(job: JobBuilder, roles: dict[str, int]) -> JobBuilder:
    return job.set("replicaSpecs", {role: {"replicas": count} for role, count in roles.items()}).storage()


def tf_config(cluster: SimulatedCluster, name: str) -> dict[str, Any]:
    (container,) = cluster.api.pods[cluster.name(name)]["spec"]["containers"]
    config: dict[str, Any] = json.loads(next(each["value"] for each in container["env"] if each["name"] == "TF_CONFIG"))
    return config


@BOTH
@pytest.mark.parametrize(("roles", "chief", "gang"), MIXES.values(), ids=MIXES.keys())
def test_any_mix_starts_is_told_of_itself_and_ends_with_its_chief(
    job: Any, roles: dict[str, int], chief: str, gang: int
) -> None:
    cluster = SimulatedCluster(mixed(job(), roles)).run()
    everybody_there = sorted(f"{role}-{index}" for role, count in roles.items() for index in range(count))
    assert (cluster.status.phase, cluster.pods, cluster.status.ready) == ("Running", everybody_there, f"{gang}/{gang}")
    for name in cluster.pods:
        config = tf_config(cluster, name)
        assert "{type}-{index}".format(**config["task"]) == name
        assert {role: len(them) for role, them in config["cluster"].items()} == {
            role: count for role, count in roles.items() if role != "evaluator" and count
        }
    finish(cluster, chief)
    assert until_it_cleans(cluster).status.phase == "Succeeded"
    assert cluster.status.message == f"{chief} (the chief) has succeeded"


@BOTH
@pytest.mark.parametrize(("roles", "chief", "gang"), MIXES.values(), ids=MIXES.keys())
def test_any_mix_survives_the_loss_of_each_of_its_pods(job: Any, roles: dict[str, int], chief: str, gang: int) -> None:
    cluster = running(mixed(job().max_restarts(0), roles))
    for name in cluster.pods:
        cluster.delete(name).run_timers()
        assert (cluster.status.phase, cluster.status.ready) == ("Running", f"{gang}/{gang}"), name
    assert cluster.status.restarts.disruptions == len(cluster.pods)


def test_a_job_of_nothing_but_servers_cannot_be_read() -> None:
    cluster = SimulatedCluster(a_job().without("worker").role("ps")).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "InvalidSpec")


# --- scope Pod


@BOTH
def test_a_lost_worker_is_made_anew_alone_while_the_others_train(job: Any) -> None:
    cluster = running(servers(job()))
    before = uids(cluster)
    cluster.exit("worker-1", code=137).settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Running", "Error")
    assert cluster.status.message is not None and cluster.status.message.endswith(
        "its pod; other members keep training"
    )
    cluster.run()
    after = uids(cluster)
    assert {name for name in after if after[name] != before[name]} == {"worker-1"}
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.ready) == ("Running", 1, "4/4")
    assert (cluster.status.restarts.counted, cluster.status.restarts.recreated) == (1, 1)
    last = cluster.status.last_restart
    assert last is not None and (last.pod, last.alone) == ("mnist-worker-1", True)
    assert last.down_seconds is not None
    assert all(line.startswith("Running") for line in cluster.trajectory)


@BOTH
def test_a_deleted_worker_costs_nothing(job: Any) -> None:
    cluster = running(servers(job())).delete("worker-1").run()
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (0, 1)
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.ready) == ("Running", 1, "4/4")


@pytest.mark.parametrize("member", ["chief-0", "ps-0"])
def test_without_launchers_a_chief_or_a_server_takes_the_gang_along(member: str) -> None:
    cluster = running(servers(a_job())).exit(member).run()
    assert (cluster.status.attempt, cluster.attempts(), cluster.status.restarts.counted) == (2, {"2"}, 1)


def test_a_worker_and_a_server_that_fail_together_are_one_incident_of_the_gang() -> None:
    cluster = running(servers(a_job())).exit("worker-1").wait(2).exit("ps-0").run()
    assert (cluster.status.attempt, cluster.status.restarts.counted) == (2, 1)


def test_with_launchers_the_others_wait_for_a_server() -> None:
    cluster = running(servers(a_launched_job())).delete("ps-0").settle()
    assert cluster.status.phase == "Restarting"
    assert cluster.status.message is not None and cluster.status.message.endswith("other members are waiting")
    assert cluster.run().status.attempt == 1


def test_scope_job_is_kept_where_it_is_asked_for() -> None:
    cluster = running(servers(a_job()).set("restartPolicy.scope", "Job")).exit("worker-1").run()
    assert cluster.status.attempt == 2


def test_scope_pod_without_servers_spares_the_others_too() -> None:
    cluster = running(a_job().workers(3).set("restartPolicy.scope", "Pod"))
    assert cluster.exit("worker-2").run().status.attempt == 1
    assert cluster.exit("worker-0").run().status.attempt == 2


def test_a_lone_restart_in_place_changes_neither_the_phase_nor_any_pod() -> None:
    cluster = running(servers(a_launched_job()))
    before = uids(cluster)
    assert cluster.launchers.crash("worker-1")
    cluster.run()
    assert (cluster.status.phase, uids(cluster)) == ("Running", before)
    assert (
        cluster.status.message
        == "worker-1 was killed (SIGKILL); restarted alone after 1.1 s; other members kept training"
    )
    assert (cluster.status.restarts.counted, cluster.status.restarts.in_place) == (1, 1)
    assert cluster.status.last_restart is not None and cluster.status.last_restart.alone


@BOTH
@pytest.mark.parametrize("scope", ["Job", "Pod"])
def test_the_evaluator_restarts_alone_whatever_the_scope(job: Any, scope: str) -> None:
    cluster = running(everybody(job()).set("restartPolicy.scope", scope)).wait(100)
    before = uids(cluster)
    cluster.exit("evaluator-0").run()
    assert {name for name, uid in uids(cluster).items() if uid != before[name]} == {"evaluator-0"}
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.restarts.counted) == ("Running", 1, 0)


def test_lone_restarts_wait_longer_and_longer_and_use_up_the_budget() -> None:
    cluster = running(servers(a_job()).max_restarts(4))
    waits = []
    for _ in range(4):
        began = cluster.now
        cluster.exit("worker-1").run_timers()
        waits.append((cluster.now - began).total_seconds())
    assert waits == [0, 1, 2, 4]
    assert cluster.exit("worker-1").run_timers().status.reason == "MaxRestartsExceeded"


def test_a_worker_that_cannot_come_back_is_named_while_the_others_train() -> None:
    cluster = running(servers(a_launched_job()).set("runPolicy.startDeadlineSeconds", 30)).delete("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    why = "0/3 nodes are available: insufficient memory"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    cluster.kubelet.condition("mnist-worker-1", condition)
    cluster.settle().wait(100).settle()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "3/4")
    assert cluster.status.message == f"3/4 replicas training; worker-1: cannot be scheduled: {why}"


# --- the end


@BOTH
def test_servers_and_workers_stop_when_the_chief_is_done(job: Any) -> None:
    cluster = running(servers(job()))
    finish(cluster)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.completion_time is not None) == ("Succeeded", True)
    # What has ended by itself stays for its logs; what still ran is gone.
    assert cluster.pods == (["chief-0", "ps-0", "worker-0", "worker-1"] if cluster.launched else ["chief-0"])


def test_all_workers_are_chiefs_and_workers() -> None:
    cluster = running(servers(a_job()).set("successPolicy", "AllWorkers"))
    cluster.exit("worker-0", "worker-1", code=0).settle()
    assert cluster.status.phase == "Running"
    cluster.exit("chief-0", code=0).run_timers()
    assert (cluster.status.phase, cluster.pods) == ("Succeeded", ["chief-0", "worker-0", "worker-1"])


@BOTH
@pytest.mark.parametrize(("policy", "kept"), [("All", 0), ("None", 5)])
def test_clean_pod_policy_knows_all_roles(job: Any, policy: str, kept: int) -> None:
    cluster = running(everybody(job()).set("runPolicy.cleanPodPolicy", policy))
    cluster.exit("chief-0", code=0).run_timers()
    assert len(cluster.pods) == kept


@BOTH
def test_suspending_takes_all_roles_away_and_resuming_brings_them_back(job: Any) -> None:
    cluster = running(everybody(job()))
    cluster.api.edit("runPolicy.suspend", True)
    assert (cluster.run_timers().pods, cluster.status.phase, cluster.status.ready) == ([], "Suspended", "0/4")
    cluster.api.edit("runPolicy.suspend", False)
    assert (cluster.run_timers().pods, cluster.status.phase, cluster.status.attempt) == (ALL, "Running", 2)


# --- the evaluator


@BOTH
def test_an_evaluator_that_fails_is_made_anew_alone_a_minute_after_it_was_made(job: Any) -> None:
    cluster = running(everybody(job()))
    before = uids(cluster)
    cluster.wait(20).exit("evaluator-0").settle()
    assert (uids(cluster), cluster.status.ready) == (before, "4/4")
    began = cluster.now
    cluster.run_timers()
    assert (cluster.now - began).total_seconds() == 40
    after = uids(cluster)
    assert {name for name in after if after[name] != before[name]} == {"evaluator-0"}
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 1)
    assert (cluster.status.restarts.counted, cluster.status.restarts.recreated) == (0, 1)
    assert (cluster.status.last_restart, cluster.status.failure) == (None, None)
    assert told(cluster) == [("Warning", "EvaluatorReplaced")]


def test_what_befell_an_evaluator_is_told_as_of_any_pod() -> None:
    cluster = running(everybody(a_job())).wait(100).exit("evaluator-0", message="ValueError: boom\n").run()
    cluster.wait(100).exit("evaluator-0", code=137, reason="OOMKilled").run().delete("evaluator-0").run()
    assert [note.message for note in cluster.events] == [
        "evaluator-0: ValueError: boom; recreating its pod",
        "evaluator-0 failed: exit code 137 (SIGKILL, OOMKilled); recreating its pod",
        "evaluator-0 was deleted; recreating its pod",
    ]


@BOTH
def test_an_evaluator_that_lived_long_or_was_disrupted_is_made_anew_at_once(job: Any) -> None:
    cluster = running(everybody(job())).wait(100).exit("evaluator-0").run()
    assert cluster.status.restarts.recreated == 1
    cluster.delete("evaluator-0").run()
    assert (cluster.pods, cluster.status.restarts.recreated, cluster.status.restarts.disruptions) == (ALL, 2, 1)
    assert told(cluster) == [("Warning", "EvaluatorReplaced"), ("Normal", "EvaluatorReplaced")]
    assert not cluster.step()


def test_an_evaluator_never_uses_up_the_budget() -> None:
    cluster = running(everybody(a_job()).max_restarts(0))
    for _ in range(5):
        cluster.wait(61).exit("evaluator-0").run()
    assert (cluster.status.phase, cluster.status.restarts.budget_used) == ("Running", 0)


def test_an_evaluator_outlives_an_attempt_where_nobody_but_its_pod_knows_of_it() -> None:
    cluster = running(everybody(a_job()))
    before = uids(cluster)["evaluator-0"]
    cluster.exit("ps-0").run()
    assert (cluster.status.attempt, uids(cluster)["evaluator-0"]) == (2, before)
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run()
    assert (cluster.status.attempt, uids(cluster)["evaluator-0"] != before) == (3, True)


def test_an_evaluator_on_its_way_out_is_no_disruption_when_the_size_is_changed_back() -> None:
    cluster = running(everybody(a_job()))
    for size in (3, 2):
        cluster.api.edit("replicaSpecs.worker.replicas", size)
        cluster.settle()  # its pod is told to go, and still there
    cluster.run()
    assert (cluster.pods, cluster.status.restarts.disruptions) == (ALL, 0)
    assert told(cluster) == [("Normal", "Resized"), ("Normal", "Training")]


def test_an_evaluator_that_does_not_go_holds_nobody_up() -> None:
    cluster = running(everybody(a_launched_job()))
    cluster.api.edit("replicaSpecs.worker.replicas", 1)
    cluster.api.edit("launcher", {"terminationGraceSeconds": 6})  # what pods are made from, so all are recreated
    cluster.settle()
    for name in list(cluster.api.pods):
        if "evaluator" not in name:
            cluster.kubelet.force_delete(name)
    cluster.settle()
    assert cluster.pods == ["chief-0", "evaluator-0", "ps-0", "worker-0"]
    assert cluster.attempts() == {"2"}


def test_a_quota_that_has_no_room_for_the_evaluator_is_told_and_holds_nobody_up() -> None:
    cluster = SimulatedCluster(everybody(a_job()))
    cluster.api.refusals["pod/mnist-evaluator-0"] = (403, "exceeded quota")
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "4/4")
    assert cluster.status.message == "4 replicas training; pod/mnist-evaluator-0: exceeded quota"
    cluster.exit("worker-1").run()
    assert cluster.status.ready == "4/4"
    del cluster.api.refusals["pod/mnist-evaluator-0"]
    assert cluster.run_timers().pods == ALL
    assert cluster.status.message is not None and "quota" not in cluster.status.message


def test_an_evaluator_comes_after_a_gang_that_is_refused() -> None:
    cluster = SimulatedCluster(a_job().role("evaluator"))
    cluster.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota")
    cluster.run()
    assert cluster.pods == ["worker-0"]
    assert (cluster.status.reason, cluster.status.restarts.disruptions) == ("CreationRefused", 0)
    del cluster.api.refusals["pod/mnist-worker-1"]
    assert cluster.run_timers().pods == ["evaluator-0", "worker-0", "worker-1"]
    assert cluster.status.restarts.disruptions == 0


def test_two_refusals_make_no_hot_loop() -> None:
    cluster = SimulatedCluster(a_job().role("evaluator"))
    for name in ("worker-1", "evaluator-0"):
        cluster.api.refusals[f"pod/mnist-{name}"] = (403, "exceeded quota")
    cluster.run()
    assert cluster.pods == ["worker-0"]
    assert not cluster.step()


def test_an_evaluator_of_an_older_attempt_keeps_its_log_at_the_end() -> None:
    cluster = running(everybody(a_job())).exit("ps-0").run()
    cluster.exit("chief-0", code=0).run().exit("evaluator-0", code=0).run_timers()
    assert (cluster.status.attempt, cluster.pods) == (2, ["chief-0", "evaluator-0"])


def test_an_evaluator_whose_image_is_missing_is_told_and_holds_nobody_up() -> None:
    cluster = SimulatedCluster(everybody(a_job())).settle()
    cluster.kubelet.set_waiting("mnist-evaluator-0", "ErrImagePull", "no such image")
    cluster.run()
    assert cluster.status.phase == "Running"
    assert (
        cluster.status.message
        == "4 replicas training; evaluator-0: container tensorflow: image pull failed (trainer:1): no such image"
    )


def test_an_evaluator_that_has_finished_never_runs_again() -> None:
    cluster = running(everybody(a_job())).exit("evaluator-0", code=0).run()
    cluster.delete("evaluator-0").run()
    assert "evaluator-0" not in cluster.pods
    assert cluster.status.replicas["evaluator"].completed_indexes == "0"


def test_the_evaluator_gets_its_time_after_the_success_and_then_it_is_stopped() -> None:
    cluster = running(everybody(a_job()).storage().set("runPolicy.evaluatorGraceSeconds", 90))
    cluster.exit("chief-0", code=0).run()
    assert (cluster.status.phase, cluster.pods) == ("Succeeded", ["chief-0", "evaluator-0"])
    cleaned = cluster.status.condition("Cleaned")
    assert cleaned is not None and cleaned.message == "waiting for evaluator-0 to stop"
    cluster.wait(89).run()
    assert "evaluator-0" in cluster.pods
    cluster.wait(2).run()
    assert cluster.pods == ["chief-0", "cleanup"]


def test_behind_a_launcher_it_gets_the_time_to_end_by_itself() -> None:
    cluster = running(everybody(a_launched_job()).set("runPolicy.evaluatorGraceSeconds", 90))
    cluster.launchers.finish()
    cluster.run().wait(92).run()
    assert "evaluator-0" in cluster.pods
    cluster.exit("evaluator-0", code=0).run_timers()
    assert (cluster.pods, cluster.status.replicas["evaluator"].active) == (ALL, 0)


def test_an_evaluator_of_a_failed_job_has_nothing_to_evaluate() -> None:
    cluster = running(everybody(a_job()).max_restarts(0))
    cluster.exit("chief-0").run()
    assert (cluster.status.phase, cluster.pods) == ("Failed", ["chief-0"])


def test_an_hour_of_grace_does_not_cost_the_cleanup() -> None:
    cluster = running(everybody(a_job()).storage().set("runPolicy.evaluatorGraceSeconds", 3600))
    cluster.exit("chief-0", code=0).run().wait(3500).run().exit("evaluator-0", code=0).run()
    assert "cleanup" in cluster.pods


@BOTH
@pytest.mark.parametrize("stage", ["start", "restart", "success"])
def test_an_evaluator_that_never_runs_gates_nothing(job: Any, stage: str) -> None:
    cluster = SimulatedCluster(everybody(job())).settle()
    cluster.kubelet.set_waiting("mnist-evaluator-0", "ErrImagePull", "no such image")
    assert cluster.run().status.ready == "4/4"
    if stage == "restart":
        cluster.delete("chief-0").run_timers()
    if stage == "success":
        finish(cluster)
    cluster.run_timers()
    assert cluster.status.phase == ("Succeeded" if stage == "success" else "Running")


@BOTH
@pytest.mark.parametrize("path", ["runPolicy.suspend", "runPolicy.evaluatorGraceSeconds"])
def test_nothing_but_less_time_takes_its_last_checkpoint_from_an_evaluator(job: Any, path: str) -> None:
    cluster = running(everybody(job()))
    finish(cluster)
    cluster.run()
    cluster.api.edit(path, {"runPolicy.suspend": True}.get(path, 1))
    cluster.run().wait(30).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.condition("Suspended") is None
    assert ("evaluator-0" in cluster.pods) == (path == "runPolicy.suspend")
    if path == "runPolicy.suspend":
        cluster.exit("evaluator-0", code=0)
    cluster.run_timers()
    assert cluster.status.replicas["evaluator"].active == 0


@BOTH
def test_its_time_is_right_for_an_operator_that_was_down_past_it(job: Any) -> None:
    cluster = running(everybody(job()))
    finish(cluster)
    cluster.run().forget()
    cluster.wait(3600).run()
    assert "evaluator-0" not in cluster.pods
