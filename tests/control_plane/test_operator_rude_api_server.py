"""An API server that is slow, overloaded, forgetful, silent or full: the job ends well, with few requests."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from testbed.shell import LabError
from tests.control_plane.test_operator_leader_election import ELECTION, LEASE
from tests.control_plane.test_operator_observability import watch_ages
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import install_crd, operator_kubeconfig
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.control_plane.rude_proxy import Fault, RudeProxy, one_in, rude_proxy
from tftraining_operator.cluster.children import LEAST_CONCURRENCY

LARGE = 200
HANGS = 180.0  # 4,000 pods on a machine that does other work, too
OUTAGE = float(os.environ.get("OUTAGE_SECONDS", "60"))  # 3600 for an outage of an hour


class Rude:
    """The operator behind a proxy, and a job that it is to run."""

    def __init__(self, plane: ControlPlane, namespace: str, proxy: RudeProxy, operator: OperatorProcess) -> None:
        self.plane, self.namespace, self.proxy, self.operator = plane, namespace, proxy, operator

    def job(self, name: str = "job") -> TrainingJob:
        job = TrainingJob(self.plane, self.namespace, name)
        job.create()
        return job

    def life(self, name: str = "job", seconds: float = 60.0) -> TrainingJob:
        """A job that starts, loses a pod, trains again, and succeeds."""
        job = self.job(name)
        for attempt in (1, 2):
            wait_until(lambda: len(job.pods(attempt)) == len(job.pods()) == 2, f"pods of attempt {attempt}", seconds)  # noqa: B023
            for pod in job.pods():
                job.run_pod(pod)
            job.wait_for("Running", seconds, attempt=attempt)
            if attempt == 1:
                job.fail_pod(f"{name}-worker-1")
        job.succeed_pod(f"{name}-worker-0")
        job.wait_for("Succeeded", seconds)
        assert job.status()["restarts"]["counted"] == 1
        return job

    def most(self, seconds: float, requests: float) -> None:
        """Nothing happens for so long; the operator sends at most that many requests."""
        began = time.monotonic()
        time.sleep(seconds)
        sent = self.proxy.count(began)
        print(dict(sent))
        assert sent.total() <= requests, sent


@pytest.fixture
def rude(control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path) -> Iterator[Rude]:
    """Give an operator of this test's own, behind a proxy."""
    operator.kill()
    with rude_proxy(control_plane) as proxy:
        kubeconfig = proxy.kubeconfig(operator_kubeconfig(control_plane), tmp_path)
        with OperatorProcess(kubeconfig, tmp_path) as own:
            yield Rude(control_plane, namespace, proxy, own)
            print(own.log_text())
            assert "Traceback" not in own.log_text()


def early(proxy: RudeProxy, status: int, pause: float) -> list[tuple[str, str, str]]:
    """The requests that were sent again before that pause after an answer of that status."""
    put_off: dict[tuple[str, str, str], float] = {}
    found = []
    for each in proxy.requests:
        what = (each.method, each.path, each.created)
        if what in put_off and each.at < put_off[what] + pause:
            found.append(what)
        put_off.pop(what, None)
        if each.status == status:
            put_off[what] = each.at
    return found


def put_off_creations(proxy: RudeProxy) -> set[str]:
    """What was not created at the first try, because the server asked to wait."""
    return {each.created for each in proxy.requests if each.created and each.status == 429}


def test_a_slow_and_overloaded_server_that_fails_now_and_then(rude: Rude) -> None:
    """50 ms a request, one in twenty fails with 500; one in ten and the first new pod are put off by a second."""
    failing, put_off = one_in(0.05, Fault(500)), one_in(0.1, Fault(429, retry_after=1), seed=2)
    first = iter([Fault(429, retry_after=1)])
    rude.proxy.delay = 0.05

    def fault(method: str, path: str) -> Fault | None:
        creation = method == "POST" and path.endswith("/pods")
        return (next(first, None) if creation else None) or failing(method, path) or put_off(method, path)

    rude.proxy.fault = fault
    rude.life()
    statuses = {each.status for each in rude.proxy.requests}
    print(dict(rude.proxy.count()))
    assert {429, 500} <= statuses, "there were faults"
    assert put_off_creations(rude.proxy), "creations among them"
    assert early(rude.proxy, 429, pause=0.95) == [], "Retry-After is obeyed"
    assert rude.proxy.count().total() < 250


@pytest.mark.parametrize("kind", ["networkpolicies", "services"])
def test_an_object_of_the_operator_that_is_refused_as_invalid(rude: Rude, kind: str) -> None:
    """A wrong chart value, or a cluster with other rules: the job waits, says so, and starts when that has passed."""
    rude.proxy.fault = lambda method, path: Fault(422) if method == "POST" and path.endswith(f"/{kind}") else None
    job = rude.job()
    status = job.wait_for("Starting", reason="CreationRefused")
    assert "a fault of the test" in status["message"]
    rude.proxy.behave()
    job.run()


def test_a_slow_webhook_for_the_pods_of_large_jobs_delays_no_small_one(rude: Rude) -> None:
    """20 large jobs, and half a second for each pod: a small job that loses a pod does not wait for one of them. What
    is deleted or suspended gets no more pods than are on their way."""
    small = rude.job("small")
    small.run()
    rude.proxy.slow = lambda method, path: 0.5 if method == "POST" and path.endswith("/pods") else 0.0
    large = [TrainingJob(rude.plane, rude.namespace, f"large-{number}") for number in range(20)]
    with rude.operator.frozen():
        for each in large:
            each.create({"spec.replicaSpecs.worker.replicas": LARGE})
    wait_until(lambda: len(created_pods(rude.proxy)) > 16, "16 large jobs get pods")
    small.fail_pod("small-worker-1")
    small.wait_for_pods(attempt=2, seconds=HANGS)  # not before which time, but before which pods
    assert max(created_pods(rude.proxy)[each.name] for each in large) < LARGE, "no large job had to be complete"
    deleted, suspended, *_ = sorted(large, key=lambda each: created_pods(rude.proxy)[each.name])
    deleted.delete()
    suspended.patch({"spec": {"runPolicy": {"suspend": True}}})
    before, most = created_pods(rude.proxy), 2 * LEAST_CONCURRENCY
    assert max(before[each.name] for each in (deleted, suspended)) + most < LARGE
    others = [each for each in large if each not in (deleted, suspended)]
    enough = {each.name: min(LARGE, before[each.name] + 2 * most) for each in others}
    wait_until(lambda: created_pods(rude.proxy) >= Counter(enough), "each of the others goes on", HANGS)
    for each in (deleted, suspended):
        assert created_pods(rude.proxy)[each.name] <= before[each.name] + most


def created_pods(proxy: RudeProxy) -> Counter[str]:
    """The pods that were asked for, by job."""
    paths = (each.created for each in list(proxy.requests) if each.method == "POST" and each.path.endswith("/pods"))
    return Counter(name.rpartition("-worker-")[0] for name in paths)


@pytest.mark.slow_fault
def test_half_a_second_a_request(rude: Rude) -> None:
    rude.proxy.delay = 0.5
    rude.life()
    rude.most(seconds=10, requests=15)


@pytest.mark.slow_fault
@pytest.mark.parametrize("what", ["everything", "creations"])
def test_a_server_that_puts_off(rude: Rude, what: str) -> None:
    """Requests are answered with 429 for a while, as by priority and fairness when the cluster is overloaded."""
    job = rude.life("first")
    later = rude.job("later")
    rude.proxy.fault = lambda method, path: Fault(429, retry_after=2) if what in _groups(method) else None
    began = time.monotonic()
    later.patch({"metadata": {"annotations": {"a": "b"}}})
    new = rude.job("new")
    rude.most(seconds=12, requests=60)
    assert what == "everything" or put_off_creations(rude.proxy), "children of the new job"
    assert early(rude.proxy, 429, pause=1.95) == []
    rude.proxy.behave()
    later.wait_for_pods(attempt=1)
    new.wait_for_pods(attempt=1)
    assert time.monotonic() - began < 60
    assert job.status()["phase"] == "Succeeded"


def _groups(method: str) -> tuple[str, ...]:
    return ("everything", "creations") if method == "POST" else ("everything",)


@pytest.mark.slow_fault
@pytest.mark.parametrize("fault", ["expired", "cut"])
def test_a_storm_of_watches_that_end_at_once(rude: Rude, fault: str) -> None:
    """Every watch expires (410), or ends without an event, as long as the storm lasts; jobs go on meanwhile."""
    job = rude.job()
    job.run()
    setattr(rude.proxy, fault, True)
    # The watches that are open end only with their connections.
    rude.plane.restart_apiserver()
    rude.most(seconds=15, requests=150)
    job.fail_pod("job-worker-1")
    wait_until(lambda: len(job.pods(attempt=2)) == 2, "the gang is recreated during the storm")
    rude.proxy.behave()
    job.run(attempt=2)


@pytest.mark.slow_fault
def test_watches_that_say_nothing_any_more(rude: Rude) -> None:
    """Connections stay open, and no byte comes: the operator opens others by itself."""
    job = rude.job()
    job.run()
    rude.proxy.frozen = ""
    job.fail_pod("job-worker-1")
    late = rude.job("late")
    rude.most(seconds=60, requests=20)
    ages = watch_ages(rude.operator)
    assert all(ages[f"{each} in all namespaces"] > 50 for each in ("jobs", "pods", "services")), ages
    wait_until(lambda: has_watched_again(rude.proxy), "the watches are opened again")
    rude.proxy.frozen = None
    wait_until(lambda: len(job.pods(attempt=2)) == 2, "the failure is found")
    late.run()
    assert rude.operator.get("healthz")[0] == 200


def has_read(proxy: RudeProxy, path: str) -> bool:
    return any((each.method, each.path) == ("GET", path) for each in list(proxy.requests))


def test_a_node_is_not_given_up_because_its_watch_is_silent(rude: Rude, node: Node) -> None:
    """The last word of the watch is that the node is not ready; it is, for all the time after."""
    job = TrainingJob(rude.plane, rude.namespace)
    job.create({"spec.restartPolicy.mode": "InPlace", "spec.runPolicy": {"nodeLostSeconds": 3600}})
    job.wait_for_pods(attempt=1)
    job.bind_pod("job-worker-0")
    job.bind_pod("job-worker-1", node.name)
    before = {name: each["metadata"]["uid"] for name, each in job.run().items()}
    node.tell("Unknown")
    job.wait_for("Running", reason="NodeNotReady", ready="1/2")
    rude.proxy.frozen = "/nodes"
    node.tell("True")
    job.patch({"spec": {"runPolicy": {"nodeLostSeconds": 1}}})
    wait_until(lambda: has_read(rude.proxy, f"/api/v1/nodes/{node.name}"), "the operator looks first")
    job.wait_for("Running", reason="Training", ready="2/2")
    assert {name: each["metadata"]["uid"] for name, each in job.pods().items()} == before
    assert job.status()["restarts"].get("recreated", 0) == 0
    # The look says the same: now the node is lost.
    node.tell("Unknown")
    rude.proxy.frozen = None
    wait_until(lambda: job.status()["restarts"].get("disruptions") == 1, "the node is lost")


def test_a_new_leader_whose_watch_of_pods_lags_restarts_no_gang(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    """It takes over with a cache from before the pods."""
    job = TrainingJob(control_plane, namespace)
    with rude_proxy(control_plane) as proxy:
        kubeconfig = proxy.kubeconfig(operator_kubeconfig(control_plane), tmp_path)
        with OperatorProcess(kubeconfig, tmp_path, **ELECTION) as leader:
            wait_until(lambda: leader.metric("tftraining_leader") == 1, "it leads")
            operator.kill()  # only after that: both would act
            proxied = tmp_path / "standby"
            proxied.mkdir()
            with rude_proxy(control_plane) as lagging:
                own = lagging.kubeconfig(operator_kubeconfig(control_plane), proxied)
                with OperatorProcess(own, proxied, **ELECTION) as standby:
                    lagging.frozen = "/pods"
                    job.create({"spec.restartPolicy.mode": "Recreate"})
                    job.run()
                    leader.terminate()
                    wait_until(lambda: standby.metric("tftraining_leader") == 1, "the standby leads")
                    pods = f"/api/v1/namespaces/{namespace}/pods"
                    wait_until(lambda: has_read(lagging, pods), "the new leader looks first")
                    job.fail_pod("job-worker-1")
                    lagging.frozen = None
                    job.wait_for("Restarting", attempt=2)
                    restarts = job.status()["restarts"]
                    assert (restarts["counted"], restarts.get("disruptions", 0)) == (1, 0)
    control_plane.request("DELETE", LEASE)


def has_watched_again(proxy: RudeProxy) -> bool:
    watches = [each.path for each in proxy.requests if each.method == "WATCH"]
    return all(watches.count(path) > 1 for path in watches if "events" not in path)


@pytest.mark.slow_fault
@pytest.mark.timeout(OUTAGE + 120)
def test_an_outage(rude: Rude) -> None:
    """Every connection is cut for a minute; the operator asks at most a few times a second, and goes on by itself."""
    job, other = rude.job(), rude.job("other")
    job.run()
    other.run()
    rude.proxy.away = True
    rude.plane.restart_apiserver()
    job.fail_pod("job-worker-1")
    rude.most(seconds=OUTAGE, requests=OUTAGE * 200 / 60)
    rude.proxy.behave()
    job.run(attempt=2)
    assert other.status()["attempt"] == 1


class SmallEtcd(ControlPlane):
    """A control plane whose etcd is soon full."""

    etcd_flags: ClassVar[tuple[str, ...]] = ("--quota-backend-bytes=16777216",)


@pytest.mark.slow_fault
def test_a_full_etcd(tmp_path: Path) -> None:
    """Writes are refused, reads go on; when there is room again, the job goes on where it was."""
    with SmallEtcd() as plane, rude_proxy(plane) as proxy:
        install_crd(plane)
        Node(plane, "node-1").create()
        plane.create_namespace("full")
        with OperatorProcess(proxy.kubeconfig(operator_kubeconfig(plane), tmp_path), tmp_path) as operator:
            rude = Rude(plane, "full", proxy, operator)
            job = rude.job()
            job.run()
            job.patch({"metadata": {"annotations": {"before": "full"}}})
            job_pods = job.pods()
            # The report of the failure is the last write that fits; etcd refuses the operator's.
            with operator.frozen():
                job.fail_pod("job-worker-1")
                fill(plane)
            began = time.monotonic()
            rude.most(seconds=20, requests=60)
            refused = [each for each in proxy.requests if each.at > began and each.status >= 500]
            assert refused, "the operator's writes are refused"
            assert job.status()["phase"] in ("Running", "Restarting") and len(job_pods) == 2
            plane.make_room("/api/v1/namespaces/full/configmaps")
            job.run(attempt=2)
            assert "Traceback" not in operator.log_text()


def fill(plane: ControlPlane) -> None:
    """Write ConfigMaps until etcd has no room."""
    body: Callable[[int], dict[str, object]] = partial(_config_map, "x" * 500_000)
    for number in range(100):
        try:
            plane.request("POST", "/api/v1/namespaces/full/configmaps", body(number))
        except LabError as error:
            assert "database space exceeded" in str(error)
            return
    raise AssertionError("etcd was never full")


def _config_map(text: str, number: int) -> dict[str, object]:
    return {"metadata": {"name": f"filler-{number}"}, "data": {"text": text}}
