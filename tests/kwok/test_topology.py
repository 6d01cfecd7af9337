"""Gangs whose pods prefer one rack (topologyKey), placed by the real scheduler on nodes of two racks."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.control_plane.jobs import wait_until
from tests.support.control_plane.manifests import template
from tests.support.kwok import kueue
from tests.support.kwok.jobs import NewJob, SimulatedJob
from tests.support.kwok.kueue import Queue
from tests.support.kwok.nodes import ZONE, Node
from tests.support.kwok.simulation import Simulation

RACK = "example.com/rack"


@pytest.fixture
def nodes(control_plane: Simulation, namespace: str) -> Iterator[list[Node]]:
    """Give two nodes in each of two racks; a node has room for two of the workers."""
    found = [Node(control_plane, f"{namespace}-{letter}", namespace) for letter in "abcd"]
    for number, node in enumerate(found):
        node.create(**{RACK: f"{namespace}-{number // 2}"})
    for node in found:
        node.wait_until_usable()
    yield found
    for node in found:
        node.delete()


def workers(new_job: NewJob, zone: str, count: int, queue: str = "", **scheduling: str) -> SimulatedJob:
    """A job of so many workers on the nodes of the zone, with two CPUs each; the queue counts pods only."""
    labels = {"metadata__labels": {kueue.QUEUE: queue}} if queue else {}
    pods = template() if queue else template(resources={"requests": {"cpu": "2"}})
    pods["spec"]["nodeSelector"] = {ZONE: zone}
    replicas = {"worker": {"replicas": count}}
    policy = {"scheduling": scheduling}
    return new_job(spec__template=pods, spec__replicaSpecs=replicas, spec__runPolicy=policy, **labels)


def racks(job: SimulatedJob) -> list[int]:
    """How many pods of the job the racks have."""
    found = Counter(job.node_of(name).raw()["metadata"]["labels"][RACK] for name in job.pods())
    return sorted(found.values())


@pytest.mark.parametrize(("scheduling", "expected"), [({}, [2, 2]), ({"topologyKey": RACK}, [4])], ids=["unset", "set"])
def test_a_gang_that_fits_into_a_rack_is_in_one(
    new_job: NewJob, namespace: str, scheduling: dict[str, str], expected: list[int]
) -> None:
    job = workers(new_job, namespace, 4, **scheduling)
    job.train(4)
    assert racks(job) == expected
    job.finish()


@pytest.mark.slow_fault
@pytest.mark.usefixtures("with_kueue")
def test_in_a_queue_kueue_places_the_gang_in_one_rack(
    control_plane: Simulation, new_job: NewJob, namespace: str
) -> None:
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    kueue.create(control_plane, "Topology", namespace, spec={"levels": levels})
    flavor = {"nodeLabels": {ZONE: namespace}, "topologyName": namespace}
    kueue.create(control_plane, "ResourceFlavor", namespace, spec=flavor)
    queue = Queue(control_plane, namespace, pods=6, flavor=namespace)
    job = workers(new_job, namespace, 4, queue="research", topologyKey=RACK)
    job.train(4)
    assert racks(job) == [4]
    job.finish()
    wait_until(lambda: queue.reserved() == 0, "all quota is free")


def test_a_gang_that_no_rack_holds_is_placed_all_the_same(new_job: NewJob, namespace: str) -> None:
    """A required affinity would leave two pods without a node for ever."""
    job = workers(new_job, namespace, 6, topologyKey=RACK)
    job.train(6)
    assert racks(job) == [2, 4]
    job.finish()
