"""An earlier version of the operator is upgraded to this one and rolled back, while jobs run.

`python -m tests.upgrade --from REVISION` takes the earlier operator, chart and definition of the resource from Git, and
runs both versions against a real API server, as a rolling update does: the new process stands by before the old one
ends. A version without leader election is replaced by a process that waits for the end of the old pod, and rolled back
to when nobody runs any more, as its strategy Recreate does. Training jobs must keep their pods each way, and each
version must replace a pod that is lost.
"""

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import packages
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chart import CHART
from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.installation import CRD, OPERATOR_NAMESPACE, install_crd, operator_kubeconfig
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OPERATOR_PODS, OperatorProcess
from tests.support.repository import REPOSITORY

NAMESPACE = "upgrade"
ELECTION = {
    "TFTRAINING_LEADER_ELECTION": f"{OPERATOR_NAMESPACE}/operator-tftraining-operator",
    "TFTRAINING_OPERATOR_PODS": ",".join(map("=".join, OPERATOR_PODS.items())),
}
# The pod of an operator without election, which its successors find by the label that it lacks.
PODS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
OLD_POD = {
    "metadata": {"name": "old", "labels": OPERATOR_PODS},
    "spec": {"containers": [{"name": "operator", "image": "old"}]},
}
WAITS = "waiting to lead: the operator's pod old"
PACKAGES = ("api", "operator", "trainer", "client")
# A successor looks at each job when it leads; nothing may change in any of the passes that follow.
LOOK_PASSES = 2
TAKE_OVER_SECONDS = 40.0


@dataclass(frozen=True)
class Version:
    """The sources of one version."""

    name: str
    root: Path

    def python_path(self) -> str:
        """The PYTHONPATH that runs this version. AssertionError if Python finds another one first."""
        path = ":".join(str(self.root / package) for package in PACKAGES)
        command = [sys.executable, "-c", "import tftraining_operator as found; print(found.__file__)"]
        told = subprocess.run(command, check=True, env={"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True).stdout
        assert told.startswith(str(self.root)), f"{told.strip()} is not of {self.name}"
        return path

    @property
    def elects(self) -> bool:
        """Whether its operators elect a leader."""
        return (
            "leader-election" in (self.root / CHART.relative_to(REPOSITORY) / "templates/deployment.yaml").read_text()
        )

    def leads(self, operator: OperatorProcess) -> bool:
        """Whether an operator of this version works on jobs; one without election does so when it is ready."""
        return not self.elects or operator.metric("tftraining_leader") == 1

    def install(self, plane: ControlPlane) -> Path:
        """Apply its definition of the resource and its roles; the kubeconfig of the operator."""
        install_crd(plane, self.root / CRD.relative_to(REPOSITORY))
        return operator_kubeconfig(plane, chart=self.root / CHART.relative_to(REPOSITORY))


@contextmanager
def earlier(revision: str) -> Iterator[Version]:
    """The sources of a revision. CalledProcessError if Git does not know it."""
    packages.need("git")
    command = ["git", "-C", str(REPOSITORY), "archive", revision, *PACKAGES, "charts", "crds"]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory(prefix="tftraining-upgrade-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield Version(revision, Path(folder))


class Cluster:
    """The API server, and the one operator that leads."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        self.plane = plane
        self._stack = stack
        self._leader: OperatorProcess | None = None
        self._count = 0
        self._old_pod = False

    def roll_to(self, version: Version) -> OperatorProcess:
        """Let this version follow on the leader, as its Deployment does, and wait until it leads."""
        kubeconfig = version.install(self.plane)
        if not version.elects:
            self._stop_leader()
        operator = self._start(version, kubeconfig)
        if self._old_pod:
            wait_until(lambda: WAITS in operator.log_text(), f"{version.name} waits for the end of the old pod")
        self._stop_leader()
        wait_until(lambda: version.leads(operator), f"{version.name} leads", TAKE_OVER_SECONDS)
        self._leader = operator
        if not version.elects:
            self.plane.request("POST", PODS, OLD_POD)
            self._old_pod = True
        return operator

    def _start(self, version: Version, kubeconfig: Path) -> OperatorProcess:
        self._count += 1
        folder = self.plane.directory / f"operator-{self._count}"
        folder.mkdir()
        path = version.python_path()
        operator = OperatorProcess(kubeconfig, folder, POD_NAME=f"pod-{self._count}", PYTHONPATH=path, **ELECTION)
        self._stack.callback(operator.kill)
        operator.start()
        return operator

    def _stop_leader(self) -> None:
        if self._leader is None:
            return
        self._leader.terminate(20)
        read(self._leader)
        if self._old_pod:
            self.plane.request("DELETE", f"{PODS}/old", {"gracePeriodSeconds": 0})
            self._old_pod = False
        self._leader = None


def read(operator: OperatorProcess) -> None:
    """AssertionError if the log of an operator has a traceback."""
    assert "Traceback" not in operator.log_text(), operator.log_text()


def uids(job: TrainingJob) -> dict[str, str]:
    """The UIDs of the job's pods by name."""
    return {name: each["metadata"]["uid"] for name, each in job.pods().items()}


def passes(operator: OperatorProcess) -> float:
    """The passes that this operator has ended."""
    return operator.metric("tftraining_reconcile_seconds_count")


class Jobs:
    """A training with launchers, one without, suspended ones that have run or not, and one that has ended."""

    def __init__(self, plane: ControlPlane, launcher: ChiefLauncher) -> None:
        plane.create_namespace(NAMESPACE)
        changes: dict[str, dict[str, object]] = {
            "in-place": {"spec.restartPolicy": {"mode": "InPlace"}},
            "recreate": {},
            "suspended": {"spec.runPolicy": {"suspend": True}},
            "rests": {"spec.restartPolicy": {"mode": "InPlace"}},
            "succeeded": {},
        }
        self._jobs = {name: TrainingJob(plane, NAMESPACE, name) for name in changes}
        for name, job in self._jobs.items():
            job.create(changes[name])
        self._jobs["in-place"].wait_for_pods(1)
        self._jobs["in-place"].place_pod("in-place-worker-0", launcher.ip)
        for name in ("in-place", "recreate", "rests", "succeeded"):
            self._jobs[name].run()
        self._keras = self._jobs["rests"].keras()
        self._jobs["rests"].patch({"spec": {"runPolicy": {"suspend": True}}})
        self._jobs["rests"].wait_for("Suspended")
        wait_until(lambda: not self._jobs["rests"].pods(), "its pods are gone")
        self._jobs["succeeded"].succeed_pod("succeeded-worker-0")
        self._jobs["succeeded"].wait_for("Succeeded")
        wait_until(lambda: len(self._jobs["succeeded"].pods()) == 1, "the other worker is removed")
        self._jobs["suspended"].wait_for("Suspended")

    def state(self) -> dict[str, object]:
        """What no change of the operator may change."""
        found: dict[str, object] = {}
        for name, job in self._jobs.items():
            status = job.status()
            restarts = status.get("restarts", {}).get("counted", 0)
            keras = job.keras() if name == "in-place" else []
            found[name] = (status["phase"], status.get("attempt"), restarts, uids(job), keras)
        return found

    def lose_a_pod(self) -> None:
        """A lost worker is replaced alone under launchers, and its training goes on."""
        job = self._jobs["in-place"]
        before = uids(job)
        job.remove_pod("in-place-worker-1")
        wait_until(lambda: len(uids(job)) == 2, "the lost pod is replaced")
        job.run_pod("in-place-worker-1")
        after = uids(job)
        assert after["in-place-worker-0"] == before["in-place-worker-0"], "only the lost pod is replaced"
        assert after["in-place-worker-1"] != before["in-place-worker-1"]
        job.wait_for("Running")
        assert job.keras() == self._keras, "it has the Keras with which it began"

    def resume(self) -> None:
        """A job that was suspended under the earlier version goes on with the Keras with which it began."""
        job = self._jobs["rests"]
        job.patch({"spec": {"runPolicy": {"suspend": False}}})
        job.run(attempt=2)
        assert job.keras() == self._keras


def unchanged(operator: OperatorProcess, state: Callable[[], dict[str, object]], before: dict[str, object]) -> None:
    """AssertionError if the new leader changes a job that runs, in its first passes and behind them."""
    jobs = len(before)
    wait_until(lambda: passes(operator) >= LOOK_PASSES * jobs or _calm(operator), "it has looked at all jobs")
    after = state()
    assert after == before, f"changed from {before} to {after}"


def _calm(operator: OperatorProcess) -> bool:
    """Whether each job has had a pass, and none follows for two seconds."""
    seen = passes(operator)
    if not seen:
        return False
    try:
        wait_until(lambda: passes(operator) > seen, "another pass", 2)
    except AssertionError:
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Upgrade, roll back, upgrade again; 0 if nothing was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__.partition("\n")[0])
    parser.add_argument("--from", dest="revision", default="HEAD~1", help="the earlier version, in Git (HEAD~1)")
    options = parser.parse_args(arguments)
    here = Version("this version", REPOSITORY)
    with ExitStack() as stack:
        before = stack.enter_context(earlier(options.revision))
        plane = stack.enter_context(ControlPlane())
        install_crd(plane)
        Node(plane, "node-1").create()
        cluster = Cluster(plane, stack)
        operator = cluster.roll_to(before)
        jobs = Jobs(plane, stack.enter_context(chief_launcher()))
        for version in (here, before, here):
            state = jobs.state()
            operator = cluster.roll_to(version)
            unchanged(operator, jobs.state, state)
            jobs.lose_a_pod()
            print(f"{version.name} leads: all jobs have kept their pods, and a lost pod is replaced", flush=True)
        jobs.resume()
        read(operator)
    return 0


if __name__ == "__main__":
    sys.exit(main())
