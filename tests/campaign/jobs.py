"""The manifests of the campaign's jobs, and what their programs have noted."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.campaign import clocks
from tests.campaign.kinds import JOBS, STEPS_PER_EPOCH
from tests.campaign.oracle import Process
from tests.support.cluster.training import Manifest
from tests.support.repository import REPOSITORY

PROGRAM = Path(__file__).with_name("program.py")
CONFIG_MAP = "campaign-program"
RECORDS, RECORDS_CLAIM = "/records", "training"
EXAMPLES = {
    "fit": "multi-worker-digits.yaml",
    "custom": "multi-worker-custom-loop.yaml",
    "ps": "parameter-server.yaml",
    "elastic": "multi-worker-digits.yaml",
    "evaluator": "multi-worker-evaluator.yaml",
}
OPTIONS = {
    "fit": ["multi_worker_mnist"],
    "custom": ["multi_worker_mnist", "--loop", "custom"],
    "ps": ["parameter_server", "--loop", "custom"],
    "elastic": ["multi_worker_mnist"],
    "evaluator": ["multi_worker_mnist", "--keep-checkpoints"],
}
NODE_LOST_SECONDS = 5
GRACE_SECONDS = 5
SHM_SIZE = "64Mi"


def config_map() -> Manifest:
    """The program, for all jobs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP},
        "data": {PROGRAM.name: PROGRAM.read_text(encoding="utf-8")},
    }


def manifest(name: str, kind: str, image: str, claim: str) -> Manifest:
    """A job of this kind: an example of the repository with the campaign's program.

    Its storage is a small disk, which can be full; its records are elsewhere.
    """
    job: Manifest = yaml.safe_load((REPOSITORY / "examples" / EXAMPLES[kind]).read_text())
    spec = job["spec"]
    job["metadata"] = {"name": name}
    spec["storage"] |= {"directory": name, "volume": {"persistentVolumeClaim": {"claimName": claim}}}
    spec["replicaSpecs"]["worker"]["replicas"] = JOBS[kind].workers
    if kind == "elastic":
        spec["minReplicas"] = 2
    spec["restartPolicy"] = {"maxRestarts": 1000}
    policy = {"nodeLostSeconds": NODE_LOST_SECONDS, "cleanPodPolicy": "Running"}
    spec["runPolicy"] = spec.get("runPolicy", {}) | policy
    pod = spec["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    # A small /dev/shm of the campaign's own can be filled without taking the memory of the container.
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}}
    records = {"name": "records", "persistentVolumeClaim": {"claimName": RECORDS_CLAIM}}
    pod["volumes"] = [{"name": "program", "configMap": {"name": CONFIG_MAP}}, shm, records, clocks.LIBRARY_VOLUME]
    [container] = pod["containers"]
    length = ["--epochs", str(JOBS[kind].epochs), "--steps-per-epoch", str(STEPS_PER_EPOCH)]
    container |= {
        "image": image,
        "command": ["python", f"/program/{PROGRAM.name}", *OPTIONS[kind], *length, "--directory", "$(TFTRAINING_DIR)"],
        "env": [{"name": "CAMPAIGN_RECORDS", "value": f"{RECORDS}/{name}"}, *clocks.environment()],
        "volumeMounts": [
            {"name": "program", "mountPath": "/program"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "records", "mountPath": RECORDS, "subPath": "jobs"},
            {"name": "records", "mountPath": clocks.CLOCKS, "subPath": "clocks"},
            clocks.LIBRARY_MOUNT,
        ],
    }
    return job


def processes(records: Path) -> list[Process]:
    """All starts of a job's programs, by what they have noted."""
    found = [_process(file.read_text(encoding="utf-8")) for file in sorted(records.glob("*.jsonl"))]
    return sorted((each for each in found if each is not None), key=lambda each: each.started)


def _process(text: str) -> Process | None:
    lines: list[dict[str, Any]] = []
    for line in text.splitlines():
        with suppress(json.JSONDecodeError):  # the line under way when the program was killed
            lines.append(json.loads(line))
    if not lines or "round" not in lines[0]:
        return None
    start, *notes = lines
    made = [(each["at"], each["step"]) for each in notes if "step" in each]
    error = next((each["error"] for each in notes if "error" in each), "")
    return Process(start["pod"], start["attempt"], start["round"], start["at"], made, error)
