"""Which steps wait for a look at the API server itself, and that all others do without."""

from collections.abc import Callable

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.job import parse_job
from tftraining_operator.plan.look_first import must_look
from tftraining_operator.plan.step import Step


def looks(cluster: SimulatedCluster, looked: bool = True) -> bool:
    return must_look(parse_job(cluster.api.job), cluster.plan(), looked)


def running(job: JobBuilder) -> SimulatedCluster:
    return SimulatedCluster(job.storage()).run()


def too_late(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.activeDeadlineSeconds", 10)
    cluster.wait(10)


def without_power(cluster: SimulatedCluster) -> None:
    cluster.nodes.add("node-b", "node-c")
    cluster.nodes.power_off("node-a")
    cluster.run().wait(60)


def with_lost_pods(cluster: SimulatedCluster) -> None:
    """The operator before this one has written the status, and not deleted them."""
    without_power(cluster)
    cluster.step(writes=1)


def ended(cluster: SimulatedCluster) -> None:
    """The operator before this one has written the status, and not begun the cleanup."""
    cluster.exit("worker-0", "worker-1", code=0).step(writes=1)


ACTS: dict[str, Callable[[SimulatedCluster], object]] = {
    "a pod is gone": lambda cluster: cluster.kubelet.force_delete("mnist-worker-1"),
    "a pod is deleted": lambda cluster: cluster.delete("worker-1"),
    "a node is lost": without_power,
    "its pods are deleted by force": with_lost_pods,
    "the job has failed": too_late,
    "the temporary directories are removed": ended,
}
OTHERS: dict[str, Callable[[SimulatedCluster], object]] = {
    "nothing": lambda cluster: None,
    "a node is not ready": lambda cluster: cluster.nodes.power_off("node-a"),
    "the chief has finished": lambda cluster: cluster.exit("worker-0", code=0),
    "suspended": lambda cluster: cluster.api.edit("runPolicy.suspend", True),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
@pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_what_cannot_be_undone_is_looked_at_first(
    job: Callable[[], JobBuilder], act: Callable[[SimulatedCluster], object]
) -> None:
    cluster = running(job())
    act(cluster)
    assert looks(cluster)


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_nothing_else_costs_a_look(other: Callable[[SimulatedCluster], object]) -> None:
    cluster = running(a_launched_job())
    other(cluster)
    assert not looks(cluster)


def test_a_new_attempt_is_looked_at_first_though_it_restarts_nothing() -> None:
    """As of a gang that gives back what it holds of a quota, because no program has begun."""
    job = parse_job(running(a_launched_job()).api.job)
    assert must_look(job, Step(msgspec.structs.replace(job.status, attempt=2)), looked=True)
    assert not must_look(job, Step(job.status), looked=True)


def test_pods_that_another_operator_has_planned_are_looked_at_once() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.step(writes=1)  # the Service, and no pod yet
    assert looks(cluster, looked=False) and not looks(cluster, looked=True)
