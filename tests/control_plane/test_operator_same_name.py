"""A job that is deleted and created again under its name, on a real API server.

Kubernetes' own garbage collector removes what the first job left, all but a pod that a kubelet has to let go of.
"""

import time

import pytest

from tests.control_plane.jobs import NewJob, wait_until
from tests.control_plane.operator_process import OperatorProcess

# The start follows the end of the last leftover by a watch event: far sooner than the operator looks again by itself.
SOON = 5.0


@pytest.mark.usefixtures("garbage_collection")
def test_it_waits_for_what_is_left_without_a_warning_and_starts_as_soon_as_that_is_gone(
    new_job: NewJob, operator: OperatorProcess
) -> None:
    job = new_job()
    old = job.run()
    job.bind_pod("job-worker-1")  # a kubelet has to let go of it
    job.delete()
    before = operator.metric('tftraining_api_requests_total{method="POST"}')
    new_job()
    left = "waiting for the removal of what an earlier job of this name has left: pod/job-worker-1"
    job.wait_for("Starting", reason="Stopping", message=left)
    # Nothing but the events: no creation is tried that would be refused.
    assert operator.metric('tftraining_api_requests_total{method="POST"}') <= before + 1
    assert job.pods().keys() == {"job-worker-1"}
    job.remove_pod("job-worker-1")
    gone = time.monotonic()
    new = wait_until(lambda: len(pods := job.pods()) == 2 and pods, "the new pods") or {}
    assert time.monotonic() - gone < SOON
    assert {pod["metadata"]["uid"] for pod in new.values()}.isdisjoint(pod["metadata"]["uid"] for pod in old.values())
    job.run()
    assert "CreationRefused" not in [event[1] for event in job.events()]
    assert {event[0] for event in job.events()} == {"Normal"}
