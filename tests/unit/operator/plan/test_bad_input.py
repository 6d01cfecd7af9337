"""What cannot be run fails and says why; it is never silently ignored and never retried for ever."""

from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def left_alone(cluster: SimulatedCluster) -> str:
    """What a new job says that has been left alone."""
    condition = cluster.status.condition("Unreadable")
    assert (cluster.status.phase, cluster.pods, cluster.api.services) == ("Pending", [], {})
    assert condition is not None and (condition.status, condition.reason) == ("True", "SpecUnreadable")
    return condition.message


def test_defaults_that_are_written_out_ask_for_nothing() -> None:
    # The API server writes the defaults of the schema into every job.
    job = a_job().set("restartPolicy", {"mode": "InPlace", "scope": "Job", "maxRestarts": 10, "rules": []})
    job.set("launcher", {"warmStart": True, "terminationGraceSeconds": 5, "memberTimeoutSeconds": 3})
    job.set("successPolicy", "Chief")
    run = {"suspend": False, "startDeadlineSeconds": 600, "evaluatorGraceSeconds": 60, "nodeLostSeconds": 60}
    job.set("runPolicy", {**run, "cleanPodPolicy": "Running"})
    assert SimulatedCluster(job).run().status.phase == "Running"


def test_the_fields_that_work_are_not_refused() -> None:
    job = a_job().set("restartPolicy.mode", "Recreate").set("launcher.terminationGraceSeconds", 2)
    job.set("runPolicy.scheduling", {"priorityClassName": "high"})
    assert SimulatedCluster(job).run().status.phase == "Running"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("restartPolicy.maxRestarts", "many", "$.restartPolicy.maxRestarts"),
        ("restartPolicy.mode", "Sometimes", "Sometimes"),
        ("replicaSpecs", [], "$.replicaSpecs"),
        ("storage", {}, "volume"),
        ("template", "none", "$.template"),
    ],
)
def test_a_spec_that_cannot_be_read(path: str, value: object, said: str) -> None:
    """A later version may be able to: the job waits, and says so."""
    cluster = SimulatedCluster(a_job().set(path, value)).run()
    assert said in left_alone(cluster)


@pytest.mark.parametrize(("path", "value"), [("replicaSpecs", {}), ("replicaSpecs.worker.replicas", 0)])
def test_a_spec_that_nobody_could_run(path: str, value: object) -> None:
    cluster = SimulatedCluster(a_job().set(path, value)).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.pods) == ("Failed", "InvalidSpec", [])
    assert "needs a chief or a worker" in (cluster.status.message or "")


def test_an_invalid_job_is_deleted_in_time_and_one_that_cannot_be_read_never() -> None:
    policy = {"ttlSecondsAfterFinished": 60}
    invalid = SimulatedCluster(a_job().set("runPolicy", policy).set("replicaSpecs", {})).run()
    assert invalid.status.reason == "InvalidSpec" and not invalid.api.gone
    assert invalid.wait(60).run().api.gone
    unreadable = SimulatedCluster(a_job().set("runPolicy", policy)).run().exit("worker-0", code=0).run()
    unreadable.api.edit("template", "none")
    assert unreadable.status.phase == "Succeeded" and not unreadable.wait(3600).run().api.gone


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("volumes", {"name": "data"}, "$.spec.volumes"),
        ("securityContext", "restricted", "$.spec.securityContext"),
        ("containers.0.volumeMounts", {"mountPath": "/data"}, "$.spec.containers[0].volumeMounts"),
        ("containers.0.volumeMounts", [{"mountPath": 7}], "$.spec.containers[0].volumeMounts[0].mountPath"),
        ("containers.0.resources", {"limits": ["cpu"]}, "$.spec.containers[0].resources.limits"),
        ("containers.0.securityContext", [], "$.spec.containers[0].securityContext"),
        ("containers.0.env", {"A": "b"}, "$.spec.containers[0].env"),
        ("initContainers", {"name": "fetch"}, "$.spec.initContainers"),
    ],
)
@pytest.mark.parametrize("role", ["", "replicaSpecs.worker."])
def test_a_template_whose_parts_are_of_another_type(role: str, path: str, value: object, said: str) -> None:
    """The schema refuses them now; a definition of an earlier version did not."""
    template: dict[str, Any] = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["train"]}]}}
    first, _, rest = path.partition(".0.")
    place = template["spec"]["containers"][0] if rest else template["spec"]
    place[rest or first] = value
    cluster = SimulatedCluster(a_job().set(f"{role}template", template)).run()
    message = left_alone(cluster)
    assert f"spec.{role}template cannot be read" in message and said in message


@pytest.mark.parametrize("spec", [None, [], "none"])
def test_a_spec_that_is_no_object_at_all(spec: object) -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.job["spec"] = spec
    assert "the spec cannot be read" in left_alone(cluster.run())


def test_a_missing_spec() -> None:
    cluster = SimulatedCluster(a_job())
    del cluster.api.job["spec"]
    assert "the spec cannot be read" in left_alone(cluster.run())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (400, 'strict decoding error: unknown field "spec.containers[0].imag"'),
        (422, "spec.containers[0].image: Required value"),
        (403, 'pods "mnist-worker-1" is forbidden: violates PodSecurity "restricted:latest": hostNetwork'),
    ],
)
def test_a_template_that_the_api_server_will_never_accept(code: int, message: str) -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.refusals["pod/mnist-worker-0"] = (code, message)
    cluster.run()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "InvalidPodTemplate")
    assert cluster.status.message == f"pod/mnist-worker-0: {message}"
    assert (cluster.pods, cluster.api.services) == ([], {})


@pytest.mark.parametrize(("code", "message"), [(403, "exceeded quota: pods=10"), (500, "etcd"), (429, "too many")])
def test_a_refusal_that_may_pass_is_shown_and_tried_again(code: int, message: str) -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.refusals["pod/mnist-worker-1"] = (code, message)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "CreationRefused")
    assert cluster.status.message == f"pod/mnist-worker-1: {message}"
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Warning", "CreationRefused")
    assert not cluster.step(), "no hot loop"
    del cluster.api.refusals["pod/mnist-worker-1"]
    assert cluster.run_timers().status.phase == "Running"
    assert cluster.status.restarts.recreated == 0


def test_refusals_are_tried_again_less_and_less_often() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.refusals["service/mnist"] = (500, "etcd")
    waits = []
    for _ in range(9):
        cluster.settle()
        assert cluster.timer is not None
        waits.append((cluster.timer - cluster.now).total_seconds())
        cluster.api.now = cluster.timer
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_operator_that_has_forgotten_a_refusal_finds_it_again() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota")
    cluster.settle()
    cluster.forget()
    cluster.settle()
    assert cluster.status.reason == "CreationRefused"
