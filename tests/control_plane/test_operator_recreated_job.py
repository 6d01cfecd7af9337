"""A job that is deleted and created again under its name, on a real API server.

Kubernetes' own garbage collector removes what the first job left, all but a pod that a kubelet has to let go of.
"""

import pytest

from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.manifests import Manifest
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess


@pytest.mark.usefixtures("garbage_collection")
def test_it_waits_for_what_is_left_without_a_warning_and_starts_as_soon_as_that_is_gone(
    new_job: NewJob, operator: OperatorProcess
) -> None:
    job = new_job()
    old = job.run()
    job.bind_pod("job-worker-1")  # a kubelet has to let go of it
    wait_until(lambda: len(job.events()) == 2, "all is told of the first")
    job.delete()
    before = operator.metric('tftraining_api_requests_total{method="POST"}')
    new_job()
    left = "waiting for the deletion of objects of an earlier job of this name: pod/job-worker-1"
    job.wait_for("Starting", reason="Stopping", message=left)
    # Nothing but the events: no creation is tried that would be refused.
    assert operator.metric('tftraining_api_requests_total{method="POST"}') <= before + 1
    assert job.pods().keys() == {"job-worker-1"}
    job.remove_pod("job-worker-1")
    # By a watch event: the operator looks again by itself only after minutes.
    new = wait_until(lambda: len(pods := job.pods()) == 2 and pods, "the new pods") or {}
    assert {pod["metadata"]["uid"] for pod in new.values()}.isdisjoint(pod["metadata"]["uid"] for pod in old.values())
    job.run()
    assert "CreationRefused" not in [event[1] for event in job.events()]
    assert {event[0] for event in job.events()} == {"Normal"}


@pytest.mark.usefixtures("garbage_collection", "operator")
def test_what_it_left_on_a_dead_node_is_given_up_in_time(new_job: NewJob, node: Node) -> None:
    job = new_job()
    job.wait_for_pods(attempt=1)
    job.bind_pod("job-worker-1", node.name)
    old = job.run()["job-worker-1"]["metadata"]["uid"]
    node.tell("Unknown")
    job.delete()
    new_job(spec__runPolicy={"nodeLostSeconds": 3, "startDeadlineSeconds": 60})
    status = job.wait_for("Starting", reason="Stopping")
    assert "waiting for the deletion of objects of an earlier job of this name" in status["message"]
    wait_until(lambda: len(pods := job.pods()) == 2 and old not in _uids(pods), "the new pods")
    job.run()
    assert job.status()["restarts"] == {"counted": 0}


def _uids(pods: dict[str, Manifest]) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in pods.values()}
