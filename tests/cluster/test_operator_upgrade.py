"""A rolling upgrade of the operator: somebody leads all the time but for a moment, and trainings do not notice it."""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from testbed import release
from testbed.cluster import Cluster
from testbed.kube import Kube
from tests.support.cluster.statuses import COUNTS, count
from tests.support.cluster.training import Training, example

# The take-over after a clean stop.
GAP_SECONDS = 2.0
TRAIN_SECONDS = 300


@contextmanager
def holders(kube: Kube, namespace: str) -> Iterator[list[tuple[float, str]]]:
    """Each change of the Lease's holder since, with the moment at which it was seen; empty if nobody holds it."""
    seen: list[tuple[float, str]] = []
    command = kube.command("get", "leases", "--namespace", namespace, "--watch", "--output=json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        reader = threading.Thread(target=_read, args=(watch, seen))
        reader.start()
        try:
            yield seen
        finally:
            watch.terminate()
            reader.join()


def _read(watch: "subprocess.Popen[str]", seen: list[tuple[float, str]]) -> None:
    text = ""
    for line in watch.stdout or ():
        text += line
        with suppress(json.JSONDecodeError):
            holder = json.loads(text)["spec"].get("holderIdentity") or ""
            text = ""
            if not seen or seen[-1][1] != holder:
                seen.append((time.monotonic(), holder))


def gaps(seen: list[tuple[float, str]]) -> list[float]:
    """The seconds between the end of a holder and the next one; 0 where the next one was there at once."""
    found = []
    for (ended, holder), (began, following) in itertools.pairwise(seen):
        if not holder:
            found.append(began - ended)
        elif following:
            found.append(0.0)
    return found


@pytest.fixture
def settled(cluster: Cluster, operator: str) -> Iterator[Cluster]:
    """The cluster, whose operators are afterwards as they were."""
    yield cluster
    release.install(cluster.kube, cluster.images[0], *(release.OFF_THE_WORKERS if cluster.nodes else ()))


def begin(cluster: Cluster, namespace: str, name: str, epochs: int) -> Training:
    """Create a job."""
    manifest = example(cluster.images[1], "--epochs", str(epochs))
    manifest["metadata"] |= {"namespace": namespace, "name": name}
    manifest["spec"]["storage"]["directory"] = name
    cluster.kube.apply(manifest)
    return Training(cluster.kube, namespace, name)


@pytest.mark.slow_fault
def test_an_upgrade_of_the_operator_leaves_no_gap(
    settled: Cluster, operator: str, namespace: str, directory: Path
) -> None:
    trains = begin(settled, namespace, "trains", 100)
    trains.wait_for_phase("Running", TRAIN_SECONDS)
    pods = trains.uids()
    settings = release.OFF_THE_WORKERS if settled.nodes else ()
    annotation = f"podAnnotations.upgraded=at-{time.time():.0f}"
    with holders(settled.kube, operator) as seen:
        upgrade = threading.Thread(
            target=release.install, args=(settled.kube, settled.images[0], *settings, annotation)
        )
        upgrade.start()
        meanwhile: list[Training] = []
        while upgrade.is_alive():
            meanwhile.append(begin(settled, namespace, f"meanwhile-{len(meanwhile)}", 1))
            upgrade.join(8)
    assert trains.uids() == pods
    told = ", ".join(f"{each:.2f} s" for each in gaps(seen))
    print(f"the Lease changed hands {len(gaps(seen))} times: {told}")
    assert len({holder for _, holder in seen if holder}) > 1, f"nobody else has led: {seen}"
    assert max(gaps(seen)) <= GAP_SECONDS, seen
    for job in meanwhile:
        job.wait_for_phase("Succeeded", TRAIN_SECONDS)
    status = trains.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert {name: count(status, name) for name in COUNTS} == dict.fromkeys(COUNTS, 0)
