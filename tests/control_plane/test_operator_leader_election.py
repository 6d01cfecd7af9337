"""Two operators on a real API server: one leads, the other takes over, and never do both write."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.installation import OPERATOR_NAMESPACE, operator_kubeconfig
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OPERATOR_PODS, OperatorProcess

# The role of the chart names the lease after the release.
NAME = "operator-tftraining-operator"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/{NAME}"
ELECTION = {
    "TFTRAINING_LEADER_ELECTION": f"{OPERATOR_NAMESPACE}/{NAME}",
    "TFTRAINING_OPERATOR_PODS": ",".join(map("=".join, OPERATOR_PODS.items())),
}


class Pair:
    """Two operators with leader election; `leader` and `standby` ask them."""

    def __init__(self, plane: ControlPlane, operators: list[OperatorProcess]) -> None:
        self.plane = plane
        self.operators = operators

    @property
    def leading(self) -> list[OperatorProcess]:
        return [each for each in self.operators if each.running and each.metric("tftraining_leader") == 1]

    def leader(self) -> OperatorProcess:
        """The one that leads, once there is one."""
        wait_until(lambda: self.leading, "one operator leads")
        (leader,) = self.leading
        return leader

    def standby(self) -> OperatorProcess:
        leader = self.leader()
        return next(each for each in self.operators if each is not leader)

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.plane.request("GET", LEASE)["spec"]
        return spec


def start(stack: ExitStack, plane: ControlPlane, directory: Path, name: str) -> OperatorProcess:
    own = directory / name
    own.mkdir()
    operator = OperatorProcess(operator_kubeconfig(plane), own, POD_NAME=name, **ELECTION)
    stack.callback(operator.kill)
    operator.start(wait=False)
    return operator


@pytest.fixture
def pair(control_plane: ControlPlane, operator: OperatorProcess, tmp_path: Path) -> Iterator[Pair]:
    """Give two operators in the place of the one that all tests share."""
    operator.kill()
    with ExitStack() as stack:
        pair = Pair(control_plane, [start(stack, control_plane, tmp_path, name) for name in ("one", "two")])
        for each in pair.operators:
            wait_until(lambda each=each: each.get("readyz")[0] == 200, "the caches are filled", 60)  # type: ignore[misc]
        pair.leader()
        yield pair
        for each in pair.operators:
            print(each.log_text())
            assert "Traceback" not in each.log_text()
    control_plane.request("DELETE", LEASE)


def ended(operator: OperatorProcess) -> bool:
    """Whether the process has ended, if only its parent has not noticed."""
    return Path(f"/proc/{operator.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def writers(job: TrainingJob) -> dict[str, str]:
    """The version of all objects of the job, and of the job."""
    objects = {name: each["metadata"]["resourceVersion"] for name, each in job.pods().items()}
    return objects | {"job": job.raw()["metadata"]["resourceVersion"]}


def test_the_standby_takes_over_at_once_after_a_clean_stop(pair: Pair, new_job: NewJob) -> None:
    leader, standby = pair.leader(), pair.standby()
    assert standby.get("readyz")[0] == 200 and standby.get("healthz")[0] == 200
    assert 'tftraining_jobs{phase="Running"}' not in standby.get("metrics")[1]
    assert standby.metric('tftraining_api_requests_total{method="POST"}') == 0
    job = new_job()
    job.run()
    assert leader.terminate() == 0
    assert pair.leader() is standby
    assert "released the lease" in leader.log_text() and "cannot" not in leader.log_text()
    assert pair.lease()["leaseTransitions"] == 1
    job.fail_pod("job-worker-0")
    job.run(attempt=2)
    assert standby.metric("tftraining_leader") == 1


def test_a_leader_that_wakes_up_too_late_writes_nothing_and_ends(pair: Pair, new_job: NewJob) -> None:
    leader, standby = pair.leader(), pair.standby()
    job, second = new_job(), new_job("second")
    job.run()
    second.run()
    os.kill(leader.pid, signal.SIGSTOP)
    job.fail_pod("job-worker-0")
    wait_until(lambda: standby.metric("tftraining_leader") == 1, "the standby leads")
    job.run(attempt=2)
    second.patch({"spec": {"runPolicy": {"suspend": True}}})
    # This status is the last one: that it waits for its pods is written before.
    second.wait_for("Suspended", message="spec.runPolicy.suspend is true; set it to false to resume")
    assert not second.pods()
    before = [writers(job), writers(second)]
    os.kill(leader.pid, signal.SIGCONT)
    wait_until(lambda: ended(leader), "the former leader ends")
    assert [writers(job), writers(second)] == before
    assert standby.metric("tftraining_leader") == 1
    said = [line for line in leader.log_text().splitlines() if line.startswith("tftraining-operator: ")]
    assert len(said) == 1 and f"lost the lease {OPERATOR_NAMESPACE}/{NAME}" in said[0]


@pytest.mark.slow_fault
def test_a_leader_with_a_busy_event_loop_keeps_its_lease_and_one_that_hangs_loses_it(
    control_plane: ControlPlane, operator: OperatorProcess, tmp_path: Path
) -> None:
    operator.kill()
    seconds = tmp_path / "seconds"
    with ExitStack() as stack:
        kubeconfig, module = operator_kubeconfig(control_plane), "tests.support.control_plane.busy_operator"
        busy = OperatorProcess(kubeconfig, tmp_path, module, POD_NAME="busy", BUSY_SECONDS=str(seconds), **ELECTION)
        stack.enter_context(busy)
        wait_until(lambda: busy.metric("tftraining_leader") == 1, "it leads")
        standby = start(stack, control_plane, tmp_path, "standby")
        wait_until(lambda: standby.get("readyz")[0] == 200, "the caches are filled")
        # Longer than the leader leads without a renewal.
        seconds.write_text("12")
        os.kill(busy.pid, signal.SIGUSR1)
        wait_until(lambda: not seconds.exists(), "it is busy no longer")
        assert busy.metric("tftraining_leader") == 1
        assert standby.metric("tftraining_leader") == 0
        seconds.write_text("60")
        os.kill(busy.pid, signal.SIGUSR1)
        wait_until(lambda: standby.metric("tftraining_leader") == 1, "the standby leads")
        assert "Traceback" not in busy.log_text() + standby.log_text()
    control_plane.request("DELETE", LEASE)


@pytest.mark.slow_fault
def test_a_killed_leader_is_replaced_when_its_lease_expires(pair: Pair, new_job: NewJob) -> None:
    leader, standby = pair.leader(), pair.standby()
    job = new_job(spec__replicaSpecs__worker__replicas=40)
    leader.kill()
    wait_until(lambda: standby.metric("tftraining_leader") == 1, "the standby leads")
    assert len(job.wait_for_pods(attempt=1, count=40)) == 40
    # Pods are created before the first status is written.
    wait_until(lambda: job.status().get("restarts") == {"counted": 0}, "the status counts no restart")


@pytest.mark.slow_fault
def test_a_deleted_lease_comes_back_with_its_leader(pair: Pair, new_job: NewJob) -> None:
    leader = pair.leader()
    pair.plane.request("DELETE", LEASE)

    def is_back() -> bool:
        try:
            return bool(pair.lease()["holderIdentity"].startswith("one" if leader is pair.operators[0] else "two"))
        except WriteRefused:
            return False

    wait_until(is_back, "the lease is back")
    time.sleep(5)
    assert pair.leading == [leader]


@pytest.mark.slow_fault
def test_after_an_outage_of_the_api_server_one_leads(pair: Pair, new_job: NewJob, tmp_path: Path) -> None:
    former = pair.leader()
    job = new_job()
    job.run()
    pair.plane.restart_apiserver(down_seconds=20)
    wait_until(lambda: ended(former), "the former leader has ended")
    former.kill()
    former.start()
    assert pair.leader() is not None
    time.sleep(5)
    assert len(pair.leading) == 1
    job.fail_pod("job-worker-1")
    job.run(attempt=2)


def test_nobody_leads_while_an_operator_without_election_runs(
    control_plane: ControlPlane, operator: OperatorProcess, new_job: NewJob, tmp_path: Path
) -> None:
    """The first upgrade: the old version's pod stands for its process, which is the operator of all tests."""
    meta = {"name": "old", "labels": OPERATOR_PODS}
    pods = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
    operator_kubeconfig(control_plane)
    control_plane.request("POST", pods, {"metadata": meta, "spec": {"containers": [{"name": "a", "image": "b"}]}})
    job = new_job()
    job.run()
    with ExitStack() as stack:
        newer = start(stack, control_plane, tmp_path, "newer")
        wait_until(lambda: "waiting to lead: the operator's pod old" in newer.log_text(), "the newer one waits")
        assert newer.metric("tftraining_leader") == 0 and newer.get("readyz")[0] == 200
        operator.terminate()
        control_plane.request("DELETE", f"{pods}/old", {"gracePeriodSeconds": 0})
        wait_until(lambda: newer.metric("tftraining_leader") == 1, "the newer one leads")
        job.fail_pod("job-worker-1")
        job.run(attempt=2)
        # Back to the older version, as by `helm rollback`: first the newer one stops.
        assert newer.terminate() == 0
        operator.start()
        job.fail_pod("job-worker-0")
        job.run(attempt=3)
        assert job.status()["restarts"]["counted"] == 2
    control_plane.request("DELETE", LEASE)


def test_an_operator_that_may_not_use_its_lease_says_so_and_is_not_ready(
    control_plane: ControlPlane, operator: OperatorProcess, tmp_path: Path
) -> None:
    """An upgrade with roles that somebody else maintains: the old operators stay, as no new one becomes ready."""
    operator.kill()
    kubeconfig = operator_kubeconfig(control_plane, release="other")
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/rolebindings"
    control_plane.request("DELETE", f"{bindings}/other-tftraining-operator-leader-election")
    lease = f"{OPERATOR_NAMESPACE}/other-tftraining-operator"
    with ExitStack() as stack:
        newer = OperatorProcess(kubeconfig, tmp_path, POD_NAME="newer", TFTRAINING_LEADER_ELECTION=lease)
        stack.callback(newer.kill)
        newer.start(wait=False)
        said = f"cannot acquire the lease {lease}: 403 Forbidden: leases.coordination.k8s.io"
        wait_until(lambda: said in newer.log_text(), "the operator says that it may not use the lease")
        (line,) = [each for each in newer.log_text().splitlines() if said in each]
        assert " WARNING " in line and "the chart's Role and RoleBinding for the leader election" in line
        assert newer.get("readyz") == (500, f"the lease {lease} is not read yet")
        assert newer.get("healthz")[0] == 200, "a restart would not help"
        operator_kubeconfig(control_plane, release="other")
        wait_until(lambda: newer.metric("tftraining_leader") == 1, "the newer one leads")
        assert newer.get("readyz")[0] == 200
    control_plane.request("DELETE", LEASE.replace(NAME, "other-tftraining-operator"))
