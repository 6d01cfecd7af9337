"""A job that is deleted and created again under its name, on a real API server.

Nothing collects garbage here: the test does, so it knows when.
"""

import time

from tests.control_plane.jobs import NewJob, wait_until
from tests.control_plane.operator_process import OperatorProcess


def test_it_waits_for_what_is_left_without_a_warning_and_starts_as_soon_as_that_is_gone(
    new_job: NewJob, operator: OperatorProcess
) -> None:
    job = new_job()
    old = job.run()
    job.bind_pod("job-worker-1")  # a kubelet has to let go of it
    job.delete()
    before = operator.metric('tftraining_api_requests_total{method="POST"}')
    new_job()
    words = "waiting for the removal of what an earlier job of this name has left: {}"
    left = "service/job, pod/job-worker-0, pod/job-worker-1"
    job.wait_for("Starting", reason="Stopping", message=words.format(left))
    job.plane.request("DELETE", f"/api/v1/namespaces/{job.namespace}/services/job")
    job.remove_pod("job-worker-0")
    job.delete_pod("job-worker-1")
    job.wait_for("Starting", reason="Stopping", message=words.format("pod/job-worker-1"))
    # Nothing but the events: no creation is tried that would be refused.
    assert operator.metric('tftraining_api_requests_total{method="POST"}') <= before + 1
    assert job.pods().keys() == {"job-worker-1"}
    job.remove_pod("job-worker-1")
    gone = time.monotonic()
    new = wait_until(lambda: len(pods := job.pods()) == 2 and pods, "the new pods") or {}
    assert time.monotonic() - gone < 1
    assert {pod["metadata"]["uid"] for pod in new.values()}.isdisjoint(pod["metadata"]["uid"] for pod in old.values())
    job.run()
    assert "CreationRefused" not in [event[1] for event in job.events()]
    assert {event[0] for event in job.events()} == {"Normal"}
