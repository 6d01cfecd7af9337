"""The volume for backups in memory, and what the launcher is told of it."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tftraining.launch.roles import RoleName
from tftraining_api.manifests.memory_backup import NO_LIMIT
from tftraining_api.manifests.pod import pod
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import Status

GI = 1024**3
PATH = "/opt/tftraining-memory-backup"
OOM = "worker-1 was OOMKilled"


def limited(**backup: Any) -> JobBuilder:
    job = a_launched_job().container(resources={"limits": {"memory": "2Gi"}})
    return job.set("launcher", {"memoryBackup": backup}) if backup else job


def made(job: JobBuilder, role: RoleName = "worker", status: Status | None = None) -> Manifest:
    parsed, spec = job.parsed()
    parsed = msgspec.structs.replace(parsed, status=status or Status())
    found: Manifest = pod(parsed, spec, Replica(role, 0), "operator:1")["spec"]
    return found


def told(manifest: Manifest) -> dict[str, Any]:
    env = {each["name"]: each["value"] for each in manifest["containers"][0]["env"]}
    found: dict[str, Any] = json.loads(env["TFTRAINING_LAUNCHER"]).get("memoryBackup", {})
    return found


def volume(manifest: Manifest) -> Manifest | None:
    """The volume, if the pod has one; it must then be mounted in the training container, and nowhere else."""
    found = [each for each in manifest["volumes"] if each["name"] == "tftraining-memory-backup"]
    everyone = [*manifest["containers"], *manifest.get("initContainers", ())]
    mounted = [
        (container["name"], mount)
        for container in everyone
        for mount in container.get("volumeMounts", ())
        if mount["name"] == "tftraining-memory-backup"
    ]
    assert mounted == [("tensorflow", {"name": "tftraining-memory-backup", "mountPath": PATH})] * len(found)
    return found[0]["emptyDir"] if found else None


def test_the_volume_takes_half_of_the_containers_limit() -> None:
    manifest = made(limited().beside(name="sidecar", image="proxy"))
    assert volume(manifest) == {"medium": "Memory", "sizeLimit": str(GI)}
    assert told(manifest) == {
        "mode": "Auto", "maxOverheadPercent": 1, "exactness": "Preferred", "sizeLimit": GI,
        "memoryLimit": 2 * GI, "directory": PATH, "off": "",
    }  # fmt: skip


def test_the_volume_is_as_large_as_the_spec_says() -> None:
    manifest = made(limited(sizeLimit="500M", maxOverheadPercent=2.5))
    assert volume(manifest) == {"medium": "Memory", "sizeLimit": "500000000"}
    assert (told(manifest)["sizeLimit"], told(manifest)["maxOverheadPercent"]) == (500_000_000, 2.5)


def test_the_launcher_is_told_how_exact_a_restart_must_be() -> None:
    assert told(made(limited(exactness="Required")))["exactness"] == "Required"


def test_a_size_is_enough_without_a_limit_of_the_container() -> None:
    manifest = made(a_launched_job().set("launcher.memoryBackup", {"sizeLimit": "1Gi"}))
    assert volume(manifest) == {"medium": "Memory", "sizeLimit": str(GI)}
    assert (told(manifest)["memoryLimit"], told(manifest)["off"]) == (None, "")


@pytest.mark.parametrize("resources", [{}, {"requests": {"memory": "1Gi"}}, {"limits": {"memory": "much"}}, None])
def test_without_either_there_is_no_volume_and_the_launcher_is_told_why(resources: Manifest | None) -> None:
    manifest = made(a_launched_job().container(resources=resources))
    assert volume(manifest) is None
    assert (told(manifest)["directory"], told(manifest)["off"]) == (None, NO_LIMIT)


def test_off_needs_no_reason() -> None:
    manifest = made(limited(mode="Off", sizeLimit="1Gi"))
    assert volume(manifest) is None
    assert (told(manifest)["mode"], told(manifest)["directory"], told(manifest)["off"]) == ("Off", None, "")


def test_a_job_with_an_oom_kill_gets_no_volume_any_more() -> None:
    manifest = made(limited(sizeLimit="1Gi"), status=Status(memory_backup_off=OOM))
    assert volume(manifest) is None
    assert (told(manifest)["mode"], told(manifest)["directory"], told(manifest)["off"]) == ("Auto", None, OOM)


@pytest.mark.parametrize(("role", "has"), [("chief", True), ("worker", True), ("ps", False), ("evaluator", False)])
def test_only_members_that_make_steps_have_backups(role: RoleName, has: bool) -> None:
    job = limited().chief().role("ps").role("evaluator")
    manifest = made(job, role)
    assert (volume(manifest) is not None, bool(told(manifest))) == (has, has)


def test_without_launchers_there_is_nothing() -> None:
    assert volume(made(a_job().container(resources={"limits": {"memory": "2Gi"}}))) is None


def fingerprint(**launcher: Any) -> str:
    job = a_launched_job().set("launcher", launcher)
    spec: JobSpec = job.parsed()[1]
    return spec.fingerprint


def test_the_defaults_that_the_api_server_adds_change_no_fingerprint_of_a_running_job() -> None:
    """A job of the version before has no such field in its pods' annotation; its spec is read with the defaults."""
    backup = {"mode": "Auto", "maxOverheadPercent": 1, "exactness": "Preferred"}
    assert fingerprint(memoryBackup=backup) == fingerprint()
    assert fingerprint(warmStart=False, memoryBackup=backup) == fingerprint(warmStart=False)


def test_another_value_is_another_pod() -> None:
    others = [{"mode": "Off"}, {"maxOverheadPercent": 2}, {"sizeLimit": "1Gi"}, {"sizeLimit": "2Gi"}]
    others += [{"exactness": "Required"}]
    assert len({fingerprint(), *(fingerprint(memoryBackup=each) for each in others)}) == 6


def test_the_fingerprint_is_that_of_the_version_before() -> None:
    assert fingerprint() == "a87f484f5db3f252"
