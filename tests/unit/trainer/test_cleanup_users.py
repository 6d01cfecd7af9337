"""The cleanup as its pod runs it, on real files of two users: what workers wrote goes, whoever the chief is."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tftraining_api.manifests.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_api.model.spec import Manifest

CHIEF, WORKER, GROUP = 1000, 2000, 3000
# The process becomes the pod's user before it touches a file. It has imported everything before, by parsing its
# arguments: that user might not reach this interpreter's files.
AS_USER = (
    "import os, sys; from tftraining import cleanup; cleanup.parse(sys.argv[4:]);"
    " user, group, shared = map(int, sys.argv[1:4]);"
    " os.setgroups([shared]); os.setgid(group); os.setuid(user); sys.exit(cleanup.main(sys.argv[4:]))"
)


@pytest.fixture
def volume() -> Iterator[Path]:
    """The root of a volume of the group that the pods share."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make files of two users")
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(top, 0, GROUP)
    top.chmod(0o2775)
    yield top
    shutil.rmtree(top)


def two_users(volume: Path) -> JobBuilder:
    def template(user: int) -> Manifest:
        context = {"runAsUser": user, "runAsGroup": user, "fsGroup": GROUP}
        return {"spec": {"containers": [{"name": "tensorflow"}], "securityContext": context}}

    job = a_job().storage(mountPath=str(volume))
    return job.role("chief", template=template(CHIEF)).role("worker", template=template(WORKER))


def make(path: Path, owner: int, mode: int) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, GROUP)
    return path


def run(manifest: Manifest, log: Path) -> dict[str, object]:
    """Carry out the pod's command as its user; what it says when it ends."""
    context, command = manifest["spec"]["securityContext"], manifest["spec"]["containers"][0]["command"]
    assert command[:3] == ["python3", "-m", "tftraining.cleanup"]
    users = [str(context[each]) for each in ("runAsUser", "runAsGroup", "fsGroup")]
    subprocess.run(
        [sys.executable, "-c", AS_USER, *users, *command[3:], "--termination-log", str(log)], timeout=30, check=False
    )
    said: dict[str, object] = json.loads(log.read_text())
    return said


def test_it_removes_what_workers_of_another_user_than_the_chief_have_left(volume: Path) -> None:
    root = make(volume / "mnist", CHIEF, 0o2775)
    for index in (0, 1):
        inner = make(make(root / f"workertemp_{index}", WORKER, 0o755) / "variables", WORKER, 0o755)
        (inner / "data").write_text("x")
        os.chown(inner / "data", WORKER, WORKER)
    make(root / "model", CHIEF, 0o755)
    job, spec = two_users(volume).parsed()
    assert spec.storage is not None
    manifest = cleanup_pod(job, spec, CleanupTask(spec.storage, (0, 1), "operator:1", 1))
    assert run(manifest, volume / "result.json") == {"removed": 2, "failed": []}
    assert [each.name for each in root.iterdir()] == ["model"]
