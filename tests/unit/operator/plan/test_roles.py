"""Row: roles. Chief, worker, ps, evaluator in any mix; who restarts alone (restartPolicy.scope) and who together; the
servers stop when the chief is done; the evaluator gates nothing and gets its time for the last checkpoint.
"""

import json
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tests.unit.operator.plan.conftest import until_it_cleans

ALL = ["chief-0", "evaluator-0", "ps-0", "worker-0", "worker-1"]


def servers(job: JobBuilder) -> JobBuilder:
    """A chief, two workers and a parameter server."""
    return job.chief().role("ps")


def everybody(job: JobBuilder) -> JobBuilder:
    return servers(job).role("evaluator")


def running(job: JobBuilder) -> World:
    world = World(job).run()
    assert world.status.phase == "Running"
    world.trajectory.clear()
    world.events.clear()
    return world


def finish(world: World, chief: str = "chief-0") -> None:
    """The chief's program has done its work."""
    if world.launched:
        assert world.launchers.finish()
    else:
        world.exit(chief, code=0)


def uids(world: World) -> dict[str, str]:
    return {name: world.api.pods[world.name(name)]["metadata"]["uid"] for name in world.pods}


def told(world: World) -> list[tuple[str, str]]:
    return [(note.type, note.reason) for note in world.events]


def counts(world: World, role: str) -> dict[str, Any]:
    own = world.status.replicas[role]
    return {"desired": own.desired, "active": own.active, "ready": own.ready, "failed": own.failed}


BOTH = pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


@BOTH
def test_all_roles_get_their_pods_and_the_gang_is_counted_without_the_evaluator(job: Any) -> None:
    world = running(everybody(job()))
    assert (world.pods, world.status.ready, world.status.message) == (ALL, "4/4", "4 replicas train")
    assert set(world.status.replicas) == {"chief", "worker", "ps", "evaluator"}
    assert counts(world, "ps") == {"desired": 1, "active": 1, "ready": 1, "failed": 0}
    assert counts(world, "evaluator")["desired"] == 1


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


def tf_config(world: World, name: str) -> dict[str, Any]:
    (container,) = world.api.pods[world.name(name)]["spec"]["containers"]
    config: dict[str, Any] = json.loads(next(each["value"] for each in container["env"] if each["name"] == "TF_CONFIG"))
    return config


@BOTH
@pytest.mark.parametrize(("roles", "chief", "gang"), MIXES.values(), ids=MIXES.keys())
def test_any_mix_starts_is_told_of_itself_and_ends_with_its_chief(
    job: Any, roles: dict[str, int], chief: str, gang: int
) -> None:
    world = World(mixed(job(), roles)).run()
    everybody_there = sorted(f"{role}-{index}" for role, count in roles.items() for index in range(count))
    assert (world.status.phase, world.pods, world.status.ready) == ("Running", everybody_there, f"{gang}/{gang}")
    for name in world.pods:
        config = tf_config(world, name)
        assert "{type}-{index}".format(**config["task"]) == name
        assert {role: len(them) for role, them in config["cluster"].items()} == {
            role: count for role, count in roles.items() if role != "evaluator" and count
        }
    finish(world, chief)
    assert until_it_cleans(world).status.phase == "Succeeded"
    assert world.status.message == f"{chief} (the chief) has finished"


@BOTH
@pytest.mark.parametrize(("roles", "chief", "gang"), MIXES.values(), ids=MIXES.keys())
def test_any_mix_survives_the_loss_of_each_of_its_pods(job: Any, roles: dict[str, int], chief: str, gang: int) -> None:
    world = running(mixed(job().max_restarts(0), roles))
    for name in world.pods:
        world.delete(name).run_timers()
        assert (world.status.phase, world.status.ready) == ("Running", f"{gang}/{gang}"), name
    assert world.status.restarts.disruptions == len(world.pods)


def test_a_job_of_nothing_but_servers_cannot_be_read() -> None:
    world = World(a_job().without("worker").role("ps")).run()
    assert (world.status.phase, world.status.reason) == ("Failed", "InvalidSpec")


# --- scope Pod


@BOTH
def test_a_lost_worker_is_made_anew_alone_while_the_others_train(job: Any) -> None:
    world = running(servers(job()))
    before = uids(world)
    world.exit("worker-1", code=137).settle()
    assert (world.status.phase, world.status.reason) == ("Running", "Error")
    assert world.status.message is not None and world.status.message.endswith("its pod anew, the others train on")
    world.run()
    after = uids(world)
    assert {name for name in after if after[name] != before[name]} == {"worker-1"}
    assert (world.status.phase, world.status.attempt, world.status.ready) == ("Running", 1, "4/4")
    assert (world.status.restarts.counted, world.status.restarts.recreated) == (1, 1)
    last = world.status.last_restart
    assert last is not None and (last.pod, last.alone) == ("mnist-worker-1", True)
    assert last.down_seconds is not None
    assert all(line.startswith("Running") for line in world.trajectory)


@BOTH
def test_a_deleted_worker_costs_nothing(job: Any) -> None:
    world = running(servers(job())).delete("worker-1").run()
    assert (world.status.restarts.counted, world.status.restarts.disruptions) == (0, 1)
    assert (world.status.phase, world.status.attempt, world.status.ready) == ("Running", 1, "4/4")


@pytest.mark.parametrize("member", ["chief-0", "ps-0"])
def test_without_launchers_a_chief_or_a_server_takes_the_gang_along(member: str) -> None:
    world = running(servers(a_job())).exit(member).run()
    assert (world.status.attempt, world.attempts(), world.status.restarts.counted) == (2, {"2"}, 1)


def test_a_worker_and_a_server_that_fail_together_are_one_incident_of_the_gang() -> None:
    world = running(servers(a_job())).exit("worker-1").wait(2).exit("ps-0").run()
    assert (world.status.attempt, world.status.restarts.counted) == (2, 1)


def test_with_launchers_the_others_wait_for_a_server() -> None:
    world = running(servers(a_launched_job())).delete("ps-0").settle()
    assert world.status.phase == "Restarting"
    assert world.status.message is not None and world.status.message.endswith("the others wait for it")
    assert world.run().status.attempt == 1


def test_scope_job_is_kept_where_it_is_asked_for() -> None:
    world = running(servers(a_job()).set("restartPolicy.scope", "Job")).exit("worker-1").run()
    assert world.status.attempt == 2


def test_scope_pod_without_servers_spares_the_others_too() -> None:
    world = running(a_job().workers(3).set("restartPolicy.scope", "Pod"))
    assert world.exit("worker-2").run().status.attempt == 1
    assert world.exit("worker-0").run().status.attempt == 2


def test_a_lone_restart_in_place_changes_neither_the_phase_nor_any_pod() -> None:
    world = running(servers(a_launched_job()))
    before = uids(world)
    assert world.launchers.crash("worker-1")
    world.run()
    assert (world.status.phase, uids(world)) == ("Running", before)
    assert world.status.message == "worker-1 was killed (SIGKILL); restarted alone after 1.1 s, the others trained on"
    assert (world.status.restarts.counted, world.status.restarts.in_place) == (1, 1)
    assert world.status.last_restart is not None and world.status.last_restart.alone


@BOTH
@pytest.mark.parametrize("scope", ["Job", "Pod"])
def test_the_evaluator_restarts_alone_whatever_the_scope(job: Any, scope: str) -> None:
    world = running(everybody(job()).set("restartPolicy.scope", scope)).wait(100)
    before = uids(world)
    world.exit("evaluator-0").run()
    assert {name for name, uid in uids(world).items() if uid != before[name]} == {"evaluator-0"}
    assert (world.status.phase, world.status.attempt, world.status.restarts.counted) == ("Running", 1, 0)


def test_lone_restarts_wait_longer_and_longer_and_use_up_the_budget() -> None:
    world = running(servers(a_job()).max_restarts(4))
    waits = []
    for _ in range(4):
        began = world.now
        world.exit("worker-1").run_timers()
        waits.append((world.now - began).total_seconds())
    assert waits == [0, 1, 2, 4]
    assert world.exit("worker-1").run_timers().status.reason == "MaxRestartsExceeded"


def test_a_worker_that_cannot_come_back_is_named_while_the_others_train() -> None:
    world = running(servers(a_launched_job()).set("runPolicy.startDeadlineSeconds", 30)).delete("worker-1").settle()
    world.kubelet.remove_deleted()
    world.settle()
    why = "0/3 nodes are available: insufficient memory"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    world.kubelet.condition("mnist-worker-1", condition)
    world.settle().wait(100).settle()
    assert (world.status.phase, world.status.ready) == ("Running", "3/4")
    assert world.status.message == f"3/4 replicas train; worker-1: cannot be scheduled: {why}"


# --- the end


@BOTH
def test_servers_and_workers_stop_when_the_chief_is_done(job: Any) -> None:
    world = running(servers(job()))
    finish(world)
    world.run_timers()
    assert (world.status.phase, world.status.completion_time is not None) == ("Succeeded", True)
    # What has ended by itself stays for its logs; what still ran is gone.
    assert world.pods == (["chief-0", "ps-0", "worker-0", "worker-1"] if world.launched else ["chief-0"])


def test_all_workers_are_chiefs_and_workers() -> None:
    world = running(servers(a_job()).set("successPolicy", "AllWorkers"))
    world.exit("worker-0", "worker-1", code=0).settle()
    assert world.status.phase == "Running"
    world.exit("chief-0", code=0).run_timers()
    assert (world.status.phase, world.pods) == ("Succeeded", ["chief-0", "worker-0", "worker-1"])


@BOTH
@pytest.mark.parametrize(("policy", "kept"), [("All", 0), ("None", 5)])
def test_clean_pod_policy_knows_all_roles(job: Any, policy: str, kept: int) -> None:
    world = running(everybody(job()).set("runPolicy.cleanPodPolicy", policy))
    world.exit("chief-0", code=0).run_timers()
    assert len(world.pods) == kept


@BOTH
def test_suspending_takes_all_roles_away_and_resuming_brings_them_back(job: Any) -> None:
    world = running(everybody(job()))
    world.api.edit("runPolicy.suspend", True)
    assert (world.run_timers().pods, world.status.phase, world.status.ready) == ([], "Suspended", "0/4")
    world.api.edit("runPolicy.suspend", False)
    assert (world.run_timers().pods, world.status.phase, world.status.attempt) == (ALL, "Running", 2)


# --- the evaluator


@BOTH
def test_an_evaluator_that_fails_is_made_anew_alone_a_minute_after_it_was_made(job: Any) -> None:
    world = running(everybody(job()))
    before = uids(world)
    world.wait(20).exit("evaluator-0").settle()
    assert (uids(world), world.status.ready) == (before, "4/4")
    began = world.now
    world.run_timers()
    assert (world.now - began).total_seconds() == 40
    after = uids(world)
    assert {name for name in after if after[name] != before[name]} == {"evaluator-0"}
    assert (world.status.phase, world.status.attempt) == ("Running", 1)
    assert (world.status.restarts.counted, world.status.restarts.recreated) == (0, 1)
    assert (world.status.last_restart, world.status.failure) == (None, None)
    assert told(world) == [("Warning", "EvaluatorReplaced")]


@BOTH
def test_an_evaluator_that_lived_long_or_was_disrupted_is_made_anew_at_once(job: Any) -> None:
    world = running(everybody(job())).wait(100).exit("evaluator-0").run()
    assert world.status.restarts.recreated == 1
    world.delete("evaluator-0").run()
    assert (world.pods, world.status.restarts.recreated, world.status.restarts.disruptions) == (ALL, 2, 1)
    assert told(world) == [("Warning", "EvaluatorReplaced"), ("Normal", "EvaluatorReplaced")]
    assert not world.step()


def test_an_evaluator_never_uses_up_the_budget() -> None:
    world = running(everybody(a_job()).max_restarts(0))
    for _ in range(5):
        world.wait(61).exit("evaluator-0").run()
    assert (world.status.phase, world.status.restarts.budget_used) == ("Running", 0)


def test_an_evaluator_outlives_an_attempt_where_nobody_but_its_pod_knows_of_it() -> None:
    world = running(everybody(a_job()))
    before = uids(world)["evaluator-0"]
    world.exit("ps-0").run()
    assert (world.status.attempt, uids(world)["evaluator-0"]) == (2, before)
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run()
    assert (world.status.attempt, uids(world)["evaluator-0"] != before) == (3, True)


def test_an_evaluator_on_its_way_out_is_no_disruption_when_the_size_is_changed_back() -> None:
    world = running(everybody(a_job()))
    for size in (3, 2):
        world.api.edit("replicaSpecs.worker.replicas", size)
        world.settle()  # its pod is told to go, and still there
    world.run()
    assert (world.pods, world.status.restarts.disruptions) == (ALL, 0)
    assert told(world) == [("Normal", "Resized"), ("Normal", "Training")]


def test_an_evaluator_that_does_not_go_holds_nobody_up() -> None:
    world = running(everybody(a_launched_job()))
    world.api.edit("replicaSpecs.worker.replicas", 1)
    world.api.edit("launcher", {"terminationGraceSeconds": 6})  # what pods are made from, so all are made anew
    world.settle()
    for name in list(world.api.pods):
        if "evaluator" not in name:
            world.kubelet.lose(name)
    world.settle()
    assert world.pods == ["chief-0", "evaluator-0", "ps-0", "worker-0"]
    assert world.attempts() == {"2"}


def test_a_quota_that_has_no_room_for_the_evaluator_is_told_and_holds_nobody_up() -> None:
    world = World(everybody(a_job()))
    world.api.refusals["pod/mnist-evaluator-0"] = (403, "exceeded quota")
    world.run()
    assert (world.status.phase, world.status.ready) == ("Running", "4/4")
    assert world.status.message == "4 replicas train; pod/mnist-evaluator-0: exceeded quota"
    world.exit("worker-1").run()
    assert world.status.ready == "4/4"
    del world.api.refusals["pod/mnist-evaluator-0"]
    assert world.run_timers().pods == ALL
    assert world.status.message is not None and "quota" not in world.status.message


def test_an_evaluator_comes_after_a_gang_that_is_refused() -> None:
    world = World(a_job().role("evaluator"))
    world.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota")
    world.run()
    assert world.pods == ["worker-0"]
    assert (world.status.reason, world.status.restarts.disruptions) == ("CreationRefused", 0)
    del world.api.refusals["pod/mnist-worker-1"]
    assert world.run_timers().pods == ["evaluator-0", "worker-0", "worker-1"]
    assert world.status.restarts.disruptions == 0


def test_two_refusals_make_no_hot_loop() -> None:
    world = World(a_job().role("evaluator"))
    for name in ("worker-1", "evaluator-0"):
        world.api.refusals[f"pod/mnist-{name}"] = (403, "exceeded quota")
    world.run()
    assert world.pods == ["worker-0"]
    assert not world.step()


def test_an_evaluator_of_an_older_attempt_keeps_its_log_at_the_end() -> None:
    world = running(everybody(a_job())).exit("ps-0").run()
    world.exit("chief-0", code=0).run().exit("evaluator-0", code=0).run_timers()
    assert (world.status.attempt, world.pods) == (2, ["chief-0", "evaluator-0"])


def test_an_evaluator_whose_image_is_missing_is_told_and_holds_nobody_up() -> None:
    world = World(everybody(a_job())).settle()
    world.kubelet.hold("mnist-evaluator-0", "ErrImagePull", "no such image")
    world.run()
    assert world.status.phase == "Running"
    assert (
        world.status.message
        == "4 replicas train; evaluator-0: container tensorflow: image pull failed (trainer:1): no such image"
    )


def test_an_evaluator_that_has_finished_never_runs_again() -> None:
    world = running(everybody(a_job())).exit("evaluator-0", code=0).run()
    world.delete("evaluator-0").run()
    assert "evaluator-0" not in world.pods
    assert world.status.replicas["evaluator"].completed_indexes == "0"


def test_the_evaluator_gets_its_time_after_the_success_and_then_it_is_stopped() -> None:
    world = running(everybody(a_job()).storage().set("runPolicy.evaluatorGraceSeconds", 90))
    world.exit("chief-0", code=0).run()
    assert (world.status.phase, world.pods) == ("Succeeded", ["chief-0", "evaluator-0"])
    cleaned = world.status.condition("Cleaned")
    assert cleaned is not None and cleaned.message == "waiting for evaluator-0 to stop"
    world.wait(89).run()
    assert "evaluator-0" in world.pods
    world.wait(2).run()
    assert world.pods == ["chief-0", "cleanup"]


def test_behind_a_launcher_it_gets_the_time_to_end_by_itself() -> None:
    world = running(everybody(a_launched_job()).set("runPolicy.evaluatorGraceSeconds", 90))
    world.launchers.finish()
    world.run().wait(92).run()
    assert "evaluator-0" in world.pods
    world.exit("evaluator-0", code=0).run_timers()
    assert (world.pods, world.status.replicas["evaluator"].active) == (ALL, 0)


def test_an_evaluator_of_a_failed_job_has_nothing_to_evaluate() -> None:
    world = running(everybody(a_job()).max_restarts(0))
    world.exit("chief-0").run()
    assert (world.status.phase, world.pods) == ("Failed", ["chief-0"])


def test_an_hour_of_grace_does_not_cost_the_cleanup() -> None:
    world = running(everybody(a_job()).storage().set("runPolicy.evaluatorGraceSeconds", 3600))
    world.exit("chief-0", code=0).run().wait(3500).run().exit("evaluator-0", code=0).run()
    assert "cleanup" in world.pods


@BOTH
@pytest.mark.parametrize("stage", ["start", "restart", "success"])
def test_an_evaluator_that_never_runs_gates_nothing(job: Any, stage: str) -> None:
    world = World(everybody(job())).settle()
    world.kubelet.hold("mnist-evaluator-0", "ErrImagePull", "no such image")
    assert world.run().status.ready == "4/4"
    if stage == "restart":
        world.delete("chief-0").run_timers()
    if stage == "success":
        finish(world)
    world.run_timers()
    assert world.status.phase == ("Succeeded" if stage == "success" else "Running")


@BOTH
@pytest.mark.parametrize("path", ["runPolicy.suspend", "runPolicy.evaluatorGraceSeconds"])
def test_nothing_but_less_time_takes_its_last_checkpoint_from_an_evaluator(job: Any, path: str) -> None:
    world = running(everybody(job()))
    finish(world)
    world.run()
    world.api.edit(path, {"runPolicy.suspend": True}.get(path, 1))
    world.run().wait(30).run()
    assert world.status.phase == "Succeeded"
    assert world.status.condition("Suspended") is None
    assert ("evaluator-0" in world.pods) == (path == "runPolicy.suspend")
    if path == "runPolicy.suspend":
        world.exit("evaluator-0", code=0)
    world.run_timers()
    assert world.status.replicas["evaluator"].active == 0


@BOTH
def test_its_time_is_right_for_an_operator_that_was_down_past_it(job: Any) -> None:
    world = running(everybody(job()))
    finish(world)
    world.run().forget()
    world.wait(3600).run()
    assert "evaluator-0" not in world.pods
