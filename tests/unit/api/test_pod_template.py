"""The pod keeps every field of the user's template; the operator only adds to it."""

from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tftraining_api.manifests.pod import pod
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Manifest

INSTALL = "tftraining-launcher"
PROXY = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["up"]}}}
FETCH = {"name": "fetch", "image": "fetch:1", "volumeMounts": [{"name": "data", "mountPath": "/in"}]}
SIDECAR = {"name": "logs", "image": "logs:1", "args": ["--follow"], "ports": [{"containerPort": 9}]}
AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}}
KEPT: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": AFFINITY,
    "nodeSelector": {"pool": "gpu"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "runtimeClassName": "nvidia",
    "serviceAccountName": "reader",
    "automountServiceAccountToken": True,
    "enableServiceLinks": True,
    "terminationGracePeriodSeconds": 90,
    "hostNetwork": True,
    "hostIPC": True,
    "dnsPolicy": "ClusterFirstWithHostNet",
    "dnsConfig": {"searches": ["example.com"]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store"]}],
    "shareProcessNamespace": True,
    "schedulerName": "mine",
    "priorityClassName": "high",
    "preemptionPolicy": "Never",
    "overhead": {"memory": "1Mi"},
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "schedulingGates": [{"name": "example.com/wait"}],
    "activeDeadlineSeconds": 7,
    "whatIsNewNextYear": {"a": 1},
}
CONTAINER: dict[str, Any] = {
    "image": "trainer:1",
    "args": ["--epochs", "3"],
    "workingDir": "/src",
    "imagePullPolicy": "Always",
    "ports": [{"containerPort": 6006, "name": "board"}],
    "envFrom": [{"secretRef": {"name": "keys"}}],
    "resources": {"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "gpu"}]},
    "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}],
    "lifecycle": {"postStart": {"exec": {"command": ["hello"]}}},
    "startupProbe": {"exec": {"command": ["true"]}},
    "livenessProbe": {"exec": {"command": ["true"]}},
    "readinessProbe": {"exec": {"command": ["true"]}},
    "terminationMessagePath": "/tmp/last",
    "terminationMessagePolicy": "File",
    "stdin": True,
}
BOTH = pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


def made(job: JobBuilder) -> Manifest:
    return pod(*job.parsed(), Replica("worker", 0), "operator:1")


def beside(container: Manifest) -> Manifest:
    """The container without what is always added, unless the user has set it: the restricted security context."""
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {name: value for name, value in container.items() if name != "securityContext"}


@BOTH
@pytest.mark.parametrize("field", KEPT)
def test_a_field_of_the_pod(job: Any, field: str) -> None:
    assert made(job().pod(**{field: KEPT[field]}))["spec"][field] == KEPT[field]


@BOTH
@pytest.mark.parametrize("field", CONTAINER)
def test_a_field_of_the_training_container(job: Any, field: str) -> None:
    container = made(job().container(**{field: CONTAINER[field]}))["spec"]["containers"][0]
    assert container[field] == CONTAINER[field]


@BOTH
def test_side_cars_are_as_they_were_written_and_in_their_order(job: Any) -> None:
    written = job().beside(**SIDECAR).beside(name="other", image="o")
    first, *others = made(written)["spec"]["containers"]
    assert first["name"] == "tensorflow"
    assert [beside(each) for each in others] == [SIDECAR, {"name": "other", "image": "o"}]


@BOTH
def test_init_containers_and_native_side_cars_are_as_they_were_written_and_in_their_order(job: Any) -> None:
    inits = made(job().pod(initContainers=[PROXY, FETCH]))["spec"]["initContainers"]
    assert [beside(each) for each in inits if each["name"] != INSTALL] == [PROXY, FETCH]


def test_the_launcher_is_brought_before_anything_of_the_users_runs() -> None:
    # It needs no network and no volume of theirs. A native side-car before it would have to be up first, and an init
    # container that waits for hours would hold it up.
    names = [
        each["name"] for each in made(a_launched_job().pod(initContainers=[PROXY, FETCH]))["spec"]["initContainers"]
    ]
    assert names == [INSTALL, "proxy", "fetch"]


@BOTH
def test_volumes_and_mounts_are_kept_before_ours(job: Any) -> None:
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mount = {"name": "data", "mountPath": "/in"}
    spec = made(job().pod(volumes=[data]).container(volumeMounts=[mount]))["spec"]
    assert (data in spec["volumes"], spec["containers"][0]["volumeMounts"][0]) == (True, mount)
    names = [each["name"] for each in spec["volumes"]]
    assert len(names) == len(set(names))


@BOTH
def test_the_template_itself_is_never_changed(job: Any) -> None:
    written = job().pod(**KEPT).pod(initContainers=[FETCH]).container(**CONTAINER)
    before = written.raw()
    parsed, spec = written.parsed()
    first = pod(parsed, spec, Replica("worker", 0), "operator:1")
    assert pod(parsed, spec, Replica("worker", 0), "operator:1") == first
    first["spec"]["containers"][0]["command"].append("changed")
    assert spec.template == before["spec"]["template"]
