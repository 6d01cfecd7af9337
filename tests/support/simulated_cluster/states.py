"""A job in every phase, and in every way to be in it, each with what kstatus has to make of it; and the same as the
version before wrote it. Never judges by itself: that is the library's part (tests/control_plane/test_kstatus.py).
"""

from collections.abc import Callable
from typing import Any

from tests.support.simulated_cluster.apiserver import START, stamp
from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan import test_idle as idle
from tests.unit.operator.plan.test_deadlines import stalled
from tests.unit.operator.plan.test_elastic import why_not_started

CURRENT, IN_PROGRESS, FAILED, TERMINATING = "Current", "InProgress", "Failed", "Terminating"
NO_IMAGE = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}


def starting() -> SimulatedCluster:
    return SimulatedCluster(a_job()).settle()


def starting_and_held_up() -> SimulatedCluster:
    cluster = SimulatedCluster(a_job()).settle()
    statuses = [{"name": "tensorflow", "image": "x", "imageID": "", "restartCount": 0, "ready": False, **NO_IMAGE}]
    cluster.api.pods["mnist-worker-1"]["status"]["containerStatuses"] = statuses
    return cluster.settle()


def running_with_fewer_workers() -> SimulatedCluster:
    return why_not_started(a_launched_job().workers(3).set("minReplicas", 2))


def running_while_one_is_made_anew() -> SimulatedCluster:
    cluster = SimulatedCluster(a_job().workers(3).set("restartPolicy.scope", "Pod")).run()
    return cluster.exit("worker-1").settle()


def running_and_not_ready() -> SimulatedCluster:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.start("mnist-worker-1", ready=False)
    return cluster.settle()


def running_after_a_stall() -> SimulatedCluster:
    return stalled().run()


def restarting_by_new_pods() -> SimulatedCluster:
    return SimulatedCluster(a_job()).run().exit("worker-1").settle()


def failed_after_a_stall() -> SimulatedCluster:
    cluster = stalled()
    cluster.launchers.end("Failed", "MaxRestartsExceeded", "worker-1 stalled; all restarts are used up", {})
    return cluster.run()


def failed_on_the_deadline_while_it_stalls() -> SimulatedCluster:
    cluster = stalled()
    cluster.api.edit("runPolicy.activeDeadlineSeconds", 1)
    return cluster.wait(2).settle()


def suspended_while_it_stalls() -> SimulatedCluster:
    cluster = stalled()
    cluster.api.edit("runPolicy.suspend", True)
    return cluster.settle()


def succeeded_before_the_cleanup() -> SimulatedCluster:
    return SimulatedCluster(a_job().storage()).run().exit("worker-0", code=0).settle()


def changed_after_the_end() -> SimulatedCluster:
    cluster = idle.succeeded()
    cluster.api.edit("runPolicy.ttlSecondsAfterFinished", 3600)
    return cluster.settle()


def deleted_while_it_runs() -> SimulatedCluster:
    cluster = idle.running()
    cluster.api.job["metadata"]["deletionTimestamp"] = stamp(cluster.now)
    return cluster.settle()


STATES: dict[Callable[[], SimulatedCluster], tuple[str, str]] = {
    starting: ("Starting", IN_PROGRESS),
    starting_and_held_up: ("Starting", IN_PROGRESS),
    idle.resumed: ("Running", CURRENT),
    idle.running: ("Running", CURRENT),
    idle.running_after_restarts: ("Running", CURRENT),
    idle.running_in_place: ("Running", CURRENT),
    running_with_fewer_workers: ("Running", CURRENT),
    running_while_one_is_made_anew: ("Running", CURRENT),
    running_and_not_ready: ("Running", CURRENT),
    running_after_a_stall: ("Running", CURRENT),
    restarting_by_new_pods: ("Restarting", IN_PROGRESS),
    stalled: ("Restarting", IN_PROGRESS),
    idle.suspended: ("Suspended", CURRENT),
    idle.created_suspended: ("Suspended", CURRENT),
    suspended_while_it_stalls: ("Suspended", CURRENT),
    idle.succeeded: ("Succeeded", CURRENT),
    succeeded_before_the_cleanup: ("Succeeded", CURRENT),
    changed_after_the_end: ("Succeeded", CURRENT),
    idle.failed: ("Failed", FAILED),
    idle.failed_by_verdict: ("Failed", FAILED),
    idle.invalid: ("Failed", FAILED),
    failed_after_a_stall: ("Failed", FAILED),
    failed_on_the_deadline_while_it_stalls: ("Failed", FAILED),
    deleted_while_it_runs: ("Running", TERMINATING),
}


def as_written_before(status: dict[str, Any]) -> None:
    """Give the status the conditions of the version before: Ready in every phase, and Stalled told of a stall."""
    conditions = {each["type"]: dict(each) for each in status.get("conditions", ()) if each["type"] != "Stalled"}
    false = {"status": "False", "lastTransitionTime": stamp(START), "message": "the job has ended"}
    ready = conditions.pop("Ready", {"type": "Ready", "reason": status["reason"], **false})
    if "NoProgress" in conditions:
        conditions["NoProgress"]["type"] = "Stalled"
    status["conditions"] = [ready, *conditions.values()]
