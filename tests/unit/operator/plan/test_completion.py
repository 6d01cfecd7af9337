"""Row: completion. Who decides, that what is done is never done again, and that no side-car holds up the end."""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tests.unit.operator.plan.conftest import until_it_cleans

DONE_HERE = 'tftraining/1 {"verdict": "Succeeded"}\n'


def finish(world: World) -> World:
    """The chief's program has done its work."""
    if world.launched:
        world.launchers.finish()
        return world
    return world.exit("worker-0", code=0)


def clean(world: World) -> World:
    """The job's end, its cleanup included."""
    until_it_cleans(world)
    if "cleanup" in world.pods:
        world.exit("cleanup", code=0, message='{"removed": 1}').run_timers()
    return world


# --- who decides


def test_the_chief_decides(world: World) -> None:
    assert clean(finish(world)).status.reason == "ChiefSucceeded"


def test_a_worker_does_not(world: World) -> None:
    world.exit("worker-1", code=0, message=DONE_HERE if world.launched else "")
    if world.launched:
        # It says so for all: its launcher heard it from the chief's.
        assert world.run().status.phase == "Succeeded"
    else:
        assert world.run().status.phase == "Running"


def test_all_workers_decide_where_the_job_says_so() -> None:
    world = World(a_job().set("successPolicy", "AllWorkers")).run()
    world.exit("worker-0", code=0).run()
    assert world.status.phase == "Running"
    assert world.exit("worker-1", code=0).run().status.reason == "AllWorkersSucceeded"


# --- never again


def test_done_pods_that_are_deleted_do_not_run_again(world: World) -> None:
    clean(finish(world))
    world.kubelet.lose(*list(world.api.pods))
    world.forget()
    created = [each for each in world.api.writes if each.startswith("create")]
    assert clean(world).status.phase == "Succeeded"
    assert [each for each in world.api.writes if each.startswith("create")] == created


def test_a_worker_that_has_finished_does_not_run_again_while_the_others_train() -> None:
    world = World(a_job().workers(3)).run().exit("worker-1", code=0).run()
    world.delete("worker-1")
    world.forget()
    assert (world.run().pods, world.status.attempt) == (["worker-0", "worker-2"], 1)


def test_all_of_it_while_the_operator_was_down(world: World) -> None:
    finish(world).wait(3600).forget()
    assert clean(world).status.phase == "Succeeded"
    assert world.status.restarts.recreated == 0


def test_even_if_every_pod_was_deleted_meanwhile() -> None:
    # Nothing in the cluster tells any more; the verdict in the job's directory does.
    world = World(a_launched_job().storage()).run()
    world.launchers.finish()
    world.kubelet.lose("mnist-worker-0", "mnist-worker-1")
    world.wait(3600).forget()
    world.run()
    assert world.status.phase == "Succeeded"
    assert world.launchers.round == 2, "the launchers met once more, and no program ran"
    assert (world.status.restarts.counted, world.status.failure) == (0, None)


def test_a_job_of_the_same_name_does_not_take_it_for_its_own() -> None:
    world = World(a_launched_job().storage()).run()
    world.launchers.finish()
    world.launchers.verdict_in = {"another-uid": "Succeeded"}
    world.kubelet.lose("mnist-worker-0", "mnist-worker-1")
    assert world.run().status.phase == "Running"


@pytest.mark.parametrize("field", ["replicaSpecs.worker.replicas", "restartPolicy.maxRestarts"])
def test_no_change_of_the_spec_wakes_it(world: World, field: str) -> None:
    clean(finish(world))
    world.api.edit(field, 7)
    assert clean(world).status.phase == "Succeeded"


# --- side-cars


@pytest.fixture(params=["injected", "native"])
def proxied(job: JobBuilder, request: pytest.FixtureRequest) -> World:
    """A gang whose pods have a proxy beside the program: a container of its own, or an init container that stays."""
    if request.param == "injected":
        job.beside(name="istio-proxy", image="proxy:1")
    else:
        job.pod(initContainers=[{"name": "istio-proxy", "image": "proxy:1", "restartPolicy": "Always"}])
    world = World(job.max_restarts(0)).run()
    for pod in world.api.pods.values():
        if request.param == "native":
            pod["status"]["initContainerStatuses"] = [{"name": "istio-proxy", "ready": True, "state": {"running": {}}}]
    return world


def test_the_main_container_decides_and_the_proxy_does_not_outlive_it(proxied: World) -> None:
    finish(proxied)
    for pod in proxied.api.pods.values():
        if len(pod["status"]["containerStatuses"]) > 1:
            pod["status"]["phase"] = "Running"  # the kubelet ends only native side-cars by itself
    assert clean(proxied).status.phase == "Succeeded"
    assert not [name for name in proxied.pods if proxied.api.pods[proxied.name(name)]["status"]["phase"] == "Running"]


def test_a_proxy_that_fails_is_no_failure_of_the_job(proxied: World) -> None:
    world = proxied
    for pod in world.api.pods.values():
        statuses = pod["status"].get("initContainerStatuses") or pod["status"]["containerStatuses"][1:]
        statuses[0]["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert world.run().status.phase == "Running"
    assert clean(finish(world)).status.phase == "Succeeded"


def test_the_failure_of_the_program_is_not_blamed_on_the_proxy_that_ends_with_it(proxied: World) -> None:
    world = proxied.exit("worker-1", code=137, reason="OOMKilled")
    status = world.api.pods["mnist-worker-1"]["status"]
    status["phase"] = "Failed"
    status["initContainerStatuses"] = [
        {"name": "istio-proxy", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    ]
    world.run()
    assert world.status.phase == "Failed"
    assert world.status.failure is not None and world.status.failure.reason == "OOMKilled"
