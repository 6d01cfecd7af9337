"""What a hostile user of one namespace can do to others: take a share of the API server's and the operator's time.

The tenant has a token of his own and may create jobs, pods, ConfigMaps and Services in his namespace, and no more. The
victim is a job in another namespace. The bounds of the floods are far above what they take on an idle machine: they
tell a bounded operator from one that is stuck, hot or growing.
"""

import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import OPERATOR_NAMESPACE
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.manifests import changed, minimal, template
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.control_plane.tenant import Tenant
from tftraining_api.model.names import ANNOTATION_RESTARTED_AT, GROUP, KIND, LABEL_ATTEMPT, LABEL_JOB
from tftraining_operator.__main__ import MOST_NESTED

OPERATOR_ACCOUNT = "operator-tftraining-operator"
HANDS = 4  # requests of the tenant at a time
VICTIM_SECONDS = 30.0  # until a job of another namespace has its pods
CALM_SECONDS, CALM_CORES = 2.0, 0.3
GROWTH_MIB = 64.0
HUGE = "x" * 250_000  # annotations of one object may have 256 KiB
STORED = {"volume": {"persistentVolumeClaim": {"claimName": "data"}}, "mountPath": "/data", "saveDirs": ["backup"]}


@pytest.fixture
def tenant(control_plane: ControlPlane, namespace: str) -> Tenant:
    """Give the tenant of the test's namespace."""
    return Tenant(control_plane, namespace)


@pytest.fixture
def victim(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[TrainingJob]:
    """Give a running job of another namespace, with the name that the tenant's own jobs have."""
    other = f"victim-of-{namespace}"
    control_plane.create_namespace(other)
    job = TrainingJob(control_plane, other)
    job.create({"spec.restartPolicy": {"mode": "InPlace"}})
    job.run()
    yield job
    control_plane.request("DELETE", f"/apis/tftraining.dev/v1/namespaces/{other}/tftrainingjobs")


def objects_of(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """The name and UID of each object there that the operator may create or delete."""
    kinds = ("pods", "services", "secrets", "configmaps")
    found = {}
    for kind in kinds:
        for each in plane.request("GET", f"/api/v1/namespaces/{namespace}/{kind}")["items"]:
            found[f"{kind}/{each['metadata']['name']}"] = each["metadata"]["uid"]
    return found


def all_pods(plane: ControlPlane) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = plane.request("GET", "/api/v1/pods")["items"]
    return pods


def evil_jobs(victim: TrainingJob) -> dict[str, dict[str, object]]:
    """Changes of a job each of which names something outside of the tenant's namespace, in each field that can."""
    elsewhere = [
        {"name": "secret", "secret": {"secretName": victim.name}},
        {"name": "map", "configMap": {"name": "kube-root-ca.crt"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    pod = template()["spec"]
    return {
        "meta": {"spec.template": {"metadata": {"namespace": victim.namespace}, "spec": pod}},
        "operators": {"spec.template": {"metadata": {"namespace": OPERATOR_NAMESPACE}, "spec": pod}},
        "volumes": {"spec.template": {"spec": {**pod, "volumes": elsewhere}}},
        "account": {"spec.template": {"spec": {**pod, "serviceAccountName": OPERATOR_ACCOUNT}}},
        "path": {"spec.template": {"spec": {**pod, "serviceAccountName": f"{OPERATOR_NAMESPACE}/{OPERATOR_ACCOUNT}"}}},
        "claim": {"spec.storage": {**STORED, "volume": {"persistentVolumeClaim": {"claimName": "../victim/data"}}}},
    }


def test_a_tenant_reads_and_creates_nothing_outside_his_namespace(tenant: Tenant, victim: TrainingJob) -> None:
    other = victim.namespace
    for path in (
        tenant.core("secrets"),
        tenant.core("secrets", "job"),
        *(tenant.core(kind, namespace=other) for kind in ("pods", "secrets", "services", "configmaps")),
        *(tenant.core(kind, namespace=OPERATOR_NAMESPACE) for kind in ("pods", "secrets")),
        tenant.job("job", other),
    ):
        assert tenant.code("GET", path) == 403, path
    assert tenant.code("POST", tenant.job(namespace=other), minimal("mine")) == 403
    stated = {**minimal("mine"), "metadata": {"name": "mine", "namespace": other}}
    assert tenant.code("POST", tenant.job(), stated) == 400


def test_no_field_of_a_job_leads_out_of_his_namespace(
    control_plane: ControlPlane, operator: OperatorProcess, tenant: Tenant, victim: TrainingJob
) -> None:
    outside = (victim.namespace, OPERATOR_NAMESPACE)
    before = [objects_of(control_plane, each) for each in outside]
    jobs = []
    for name, changes in evil_jobs(victim).items():
        if tenant.code("POST", tenant.job(), changed(minimal(name), changes)) == 200:
            jobs.append(TrainingJob(control_plane, tenant.namespace, name))
    recreated = {"spec.restartPolicy": {"mode": "Recreate"}}
    tenant.send("POST", tenant.job(), changed(minimal("ends"), {"spec.storage": STORED, **recreated}))
    ends = TrainingJob(control_plane, tenant.namespace, "ends")
    ends.run()
    ends.succeed_pod("ends-worker-0")
    wait_until(lambda: "ends-cleanup" in ends.pods(), "the operator's own pod of the job")

    assert len(jobs) > 3, "most are stored"
    for job in jobs:
        wait_until(lambda: job.pods() or job.status().get("reason"), "pods, or why not")  # noqa: B023
    pods = [each for each in all_pods(control_plane) if each["metadata"]["namespace"] == tenant.namespace]
    assert len(pods) > 2 * 3
    for pod in pods:
        assert pod["spec"]["serviceAccountName"] == "default", pod["metadata"]["name"]
        assert pod["spec"]["automountServiceAccountToken"] is False, pod["metadata"]["name"]
    assert [objects_of(control_plane, each) for each in outside] == before


@pytest.mark.parametrize(
    "storage",
    [{"directory": "../victim"}, {"directory": "/victim"}, {"saveDirs": ["a/../../victim"]}, {"saveDirs": ["/victim"]}],
)
def test_the_directories_of_a_job_are_below_its_own(tenant: Tenant, storage: dict[str, object]) -> None:
    assert tenant.code("POST", tenant.job(), changed(minimal(), {"spec.storage": {**STORED, **storage}})) == 422


def test_a_job_of_the_same_name_has_a_key_of_its_own(
    control_plane: ControlPlane, tenant: Tenant, victim: TrainingJob
) -> None:
    tenant.send("POST", tenant.job(), changed(minimal(victim.name), {"spec.restartPolicy": {"mode": "InPlace"}}))
    TrainingJob(control_plane, tenant.namespace, victim.name).wait_for_pods(attempt=1)

    def keys(namespace: str) -> set[str]:
        secrets = control_plane.request("GET", tenant.core("secrets", namespace=namespace))["items"]
        return {value for each in secrets for value in (each.get("data") or {}).values()}

    own, other = keys(tenant.namespace), keys(victim.namespace)
    assert own and other and not own & other
    for each in all_pods(control_plane):
        if each["metadata"]["namespace"] == tenant.namespace:
            assert not any(key in str(each) for key in other)


def test_what_he_forges_is_not_taken_for_another_jobs(
    control_plane: ControlPlane, operator: OperatorProcess, tenant: Tenant, victim: TrainingJob
) -> None:
    """Pods and Services with the operator's labels, and the victim's job, of another namespace, as their owner."""
    before = victim.raw()
    owner = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": victim.name, "uid": before["metadata"]["uid"]}
    labels = {LABEL_JOB: victim.name, LABEL_ATTEMPT: "99", "app.kubernetes.io/name": "tftraining-operator"}
    for name in (f"{victim.name}-worker-0", f"{victim.name}-cleanup", "other"):
        assert tenant.create_pod(name, labels, [{**owner, "controller": True}]) == 200
    service = {"metadata": {"name": victim.name, "labels": labels}, "spec": {"clusterIP": "None"}}
    assert tenant.code("POST", tenant.core("services"), service) == 200
    # A change of the victim's own job makes a pass over it.
    victim.patch({"metadata": {"annotations": {"a": "b"}}})
    time.sleep(1)
    after = victim.raw()
    assert after["status"] == before["status"]
    assert len(victim.pods()) == 2


@pytest.fixture
def deep_json() -> Iterator[None]:
    """Let this process read and write JSON as deep as the API server stores."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(MOST_NESTED)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("deep_json")
def test_what_overflows_costs_nobody_else_a_pass(
    tenant: Tenant, victim: TrainingJob, operator: OperatorProcess
) -> None:
    """A job that is nested as deeply as the API server stores one, and a grace period of three thousand years."""
    deep, long = minimal("deep"), minimal("long")
    affinity: dict[str, Any] = {}
    for _ in range(9_000):
        affinity = {"a": affinity}
    deep["spec"]["template"]["spec"]["affinity"] = affinity
    tenant.send("POST", tenant.job(), deep)
    long["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 99_999_999_999
    long["spec"]["restartPolicy"] = {"mode": "Recreate"}
    tenant.send("POST", tenant.job(), long)
    own = TrainingJob(victim.plane, tenant.namespace, "long")
    own.run()
    own.bind_pod("long-worker-0")
    tenant.send("DELETE", tenant.core("pods", "long-worker-0"))

    later = TrainingJob(victim.plane, victim.namespace, "later")
    later.create()
    later.wait_for_pods(attempt=1)
    TrainingJob(victim.plane, tenant.namespace, "deep").wait_for("Failed", reason="InvalidPodTemplate")
    assert [operator.get(page) for page in ("healthz", "readyz")] == [(200, "ok")] * 2
    operator.kill()
    operator.start()  # which reads them in lists
    last = TrainingJob(victim.plane, victim.namespace, "last")
    last.create()
    last.wait_for_pods(attempt=1)


Flood = Callable[[Tenant, int], None]


def edits(tenant: Tenant, number: int) -> None:
    """His jobs change all the time: sizes, restarts asked for, suspensions."""
    spec = {"replicaSpecs": {"worker": {"replicas": 1 + number % 3}}, "runPolicy": {"suspend": number % 5 == 0}}
    change = {"metadata": {"annotations": {ANNOTATION_RESTARTED_AT: str(number)}}, "spec": spec}
    tenant.code("PATCH", tenant.job(f"own-{number % 4}"), change)


def label_flips(tenant: Tenant, number: int) -> None:
    """The labels of his jobs' pods come and go."""
    change = {"metadata": {"labels": {LABEL_JOB: None if number % 2 else "own-0", LABEL_ATTEMPT: str(number % 7)}}}
    tenant.code("PATCH", tenant.core("pods", f"own-{number % 4}-worker-{number % 2}"), change)


def forgeries(tenant: Tenant, number: int) -> None:
    """Pods and Services with the operator's labels, for his jobs and for jobs that nobody has."""
    labels = {LABEL_JOB: f"own-{number % 8}", LABEL_ATTEMPT: "1"}
    tenant.create_pod(f"forged-{number}", labels)
    service = {"metadata": {"name": f"forged-{number}", "labels": labels}, "spec": {"clusterIP": "None"}}
    tenant.code("POST", tenant.core("services"), service)
    tenant.code("DELETE", tenant.core("pods", f"forged-{number - 200}"), {"gracePeriodSeconds": 0})


def huge_annotations(tenant: Tenant, number: int) -> None:
    """Jobs and pods with hundreds of KB of annotations."""
    change = {"metadata": {"annotations": {"huge": f"{number}{HUGE}"}}}
    tenant.code("PATCH", tenant.job(f"own-{number % 4}"), change)
    tenant.code("PATCH", tenant.core("pods", f"own-{number % 4}-worker-1"), change)


def bad_jobs(tenant: Tenant, number: int) -> None:
    """Small jobs with templates that no API server takes, and jobs that are deleted at once."""
    bad = changed(minimal(f"bad-{number}"), {"spec.template": template(imagePullPolicy=["Always"])})
    tenant.code("POST", tenant.job(), bad)
    if number % 2:
        tenant.code("DELETE", tenant.job(f"bad-{number}"))


FLOODS: tuple[Flood, ...] = (edits, label_flips, forgeries, huge_annotations, bad_jobs)


class Flooding:
    """Threads that send a tenant's requests as fast as they are answered."""

    def __init__(self, tenant: Tenant, floods: tuple[Flood, ...]) -> None:
        self.sent = Counter[str]()
        self._ended = threading.Event()
        self._numbers = itertools.count()
        self._tenant, self._floods = tenant, floods
        self._threads = [threading.Thread(target=self._send) for _ in range(HANDS)]

    def _send(self) -> None:
        while not self._ended.is_set():
            number = next(self._numbers)
            flood = self._floods[number % len(self._floods)]
            flood(self._tenant, number // len(self._floods))
            self.sent[flood.__name__] += 1

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self._ended.set()
        for each in self._threads:
            each.join()


@contextmanager
def flooding(tenant: Tenant, floods: tuple[Flood, ...]) -> Iterator[Counter[str]]:
    """The tenant floods the API server as long as the block lasts."""
    flood = Flooding(tenant, floods)
    flood.start()
    try:
        yield flood.sent
    finally:
        flood.end()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def calm_cores(operator: OperatorProcess) -> float:
    """The operator's share of a core, over some seconds."""
    before = cpu_seconds(operator.pid)
    time.sleep(CALM_SECONDS)
    return (cpu_seconds(operator.pid) - before) / CALM_SECONDS


def flood_and_measure(
    tenant: Tenant, victim: TrainingJob, operator: OperatorProcess, floods: tuple[Flood, ...], seconds: float
) -> None:
    """Jobs of another namespace get their pods in time during the flood; the operator is calm and small after it."""
    for number in range(4):
        tenant.send(
            "POST", tenant.job(), changed(minimal(f"own-{number}"), {"spec.restartPolicy": {"mode": "Recreate"}})
        )
        TrainingJob(victim.plane, tenant.namespace, f"own-{number}").wait_for_pods(attempt=1)
    before, took = resident_mib(operator.pid), list[float]()
    with flooding(tenant, floods) as sent:
        began = time.monotonic()
        while not took or time.monotonic() - began < seconds:
            time.sleep(seconds / 4)
            job = TrainingJob(victim.plane, victim.namespace, f"later-{len(took)}")
            created = time.monotonic()
            job.create()
            wait_until(lambda: len(job.pods()) == 2, "another namespace's job has its pods", VICTIM_SECONDS)  # noqa: B023
            took.append(round(time.monotonic() - created, 2))
    hot = cpu_seconds(operator.pid)
    wait_until(lambda: calm_cores(operator) < CALM_CORES, "the operator is calm again")
    grown = resident_mib(operator.pid) - before
    after = cpu_seconds(operator.pid) - hot
    print(f"{dict(sent)} requests; {took} s to pods; {after:.1f} s CPU after it; {grown:.0f} MiB")
    assert grown < GROWTH_MIB
    assert victim.status()["phase"] == "Running" and victim.status()["attempt"] == 1
    assert operator.get("healthz")[0] == 200


def test_a_flood_of_everything_holds_up_nobody_else(
    tenant: Tenant, victim: TrainingJob, operator: OperatorProcess
) -> None:
    flood_and_measure(tenant, victim, operator, FLOODS, seconds=2)


@pytest.mark.slow_fault
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_a_flood_holds_up_nobody_else(
    tenant: Tenant, victim: TrainingJob, operator: OperatorProcess, flood: Flood
) -> None:
    flood_and_measure(tenant, victim, operator, (flood,), seconds=15)
