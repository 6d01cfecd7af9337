"""The program of spec.code in the pods: what the init container unpacks, and where the program finds it."""

import json
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining.launch.config.settings import with_code_path
from tftraining_api.manifests.pod import pod
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Manifest

DIGEST = f"sha256:{'a' * 64}"
SHA = "0" * 40
SOURCES: dict[str, dict[str, Any]] = {
    "configMap": {"configMap": {"name": "mnist-code"}, "digest": DIGEST},
    "storage": {"storage": {"path": "code/a.tar.gz"}, "digest": DIGEST},
    "git": {"git": {"url": "https://a/b.git", "revision": SHA}},
    "private": {"git": {"url": "https://a/b.git", "revision": SHA, "secretName": "token"}},
}
DIRECTORY, SOURCE = "/opt/tftraining-code", "/opt/tftraining-code-source"
ARGUMENTS = {
    "configMap": [f"--archive={SOURCE}/code.tar.gz", f"--digest={DIGEST}"],
    "storage": ["--archive=/training/code/a.tar.gz", f"--digest={DIGEST}"],
    "git": ["--git=https://a/b.git", f"--revision={SHA}"],
    "private": ["--git=https://a/b.git", f"--revision={SHA}", f"--credentials={SOURCE}"],
}
MOUNTS = {"configMap": [SOURCE], "storage": ["/training"], "git": [], "private": [SOURCE]}


def a_job_with(source: str) -> JobBuilder:
    job = a_launched_job().set("code", SOURCES[source])
    return job.set("storage", {"volume": {"persistentVolumeClaim": {"claimName": "data"}}})


def made(job: JobBuilder) -> Manifest:
    found: Manifest = pod(*job.parsed(), Replica("worker", 1), "operator:1")["spec"]
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_the_init_container_unpacks_the_source_for_the_program(source: str) -> None:
    spec = made(a_job_with(source))
    init, container = spec["initContainers"][0], spec["containers"][0]
    assert init["command"][4:] == ["--code", DIRECTORY, *ARGUMENTS[source]]
    read_only = [each["mountPath"] for each in init["volumeMounts"] if each.get("readOnly")]
    assert read_only == MOUNTS[source]
    # The source, and above all the Secret, is for the init container only.
    assert SOURCE not in [each["mountPath"] for each in container["volumeMounts"]]
    assert {"name": "tftraining-code", "mountPath": DIRECTORY} in container["volumeMounts"]
    assert container["workingDir"] == DIRECTORY
    mounted = {each["name"] for one in (init, container) for each in one["volumeMounts"]}
    assert mounted <= {each["name"] for each in spec["volumes"]}


def test_the_directory_of_the_users_own_stays() -> None:
    assert made(a_job_with("git").container(workingDir="/app"))["containers"][0]["workingDir"] == "/app"


def test_only_a_container_with_a_memory_limit_gives_the_init_container_one() -> None:
    assert made(a_job_with("git"))["initContainers"][0]["resources"] == {}
    limited = made(a_job_with("git").container(resources={"limits": {"memory": "2Gi", "cpu": "1"}}))
    assert limited["initContainers"][0]["resources"]["limits"] == {"cpu": "250m", "memory": "256Mi"}


def test_the_program_finds_its_modules_before_those_of_the_image() -> None:
    (settings,) = [
        each["value"]
        for each in made(a_job_with("git"))["containers"][0]["env"]
        if each["name"] == "TFTRAINING_LAUNCHER"
    ]
    assert with_code_path({"TFTRAINING_LAUNCHER": settings, "PYTHONPATH": "/app"})["PYTHONPATH"] == f"{DIRECTORY}:/app"
    assert with_code_path({"TFTRAINING_LAUNCHER": settings})["PYTHONPATH"] == DIRECTORY
    without = {"TFTRAINING_LAUNCHER": json.dumps({}), "PYTHONPATH": "/app"}
    assert with_code_path(without) == without


def test_other_code_means_other_pods_and_none_the_same_as_ever() -> None:
    fingerprints = {a_job_with(source).parsed()[1].fingerprint for source in SOURCES}
    assert len(fingerprints) == len(SOURCES)


@pytest.mark.parametrize(("source", "digest"), [("configMap", DIGEST), ("git", f"git:{SHA}")])
def test_the_status_names_the_program_and_takes_no_further_write(source: str, digest: str) -> None:
    cluster = SimulatedCluster(a_job_with(source)).run()
    assert cluster.status.code is not None and cluster.status.code.digest == digest
    assert SimulatedCluster(a_launched_job()).run().status.code is None
