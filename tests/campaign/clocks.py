"""Wall clocks of launchers and operators that a campaign moves; never that of the machine.

A preloaded library (tests/processes/launch/clock.c) adds to the wall clock of one process what lies in a file: of the
first process of a container, which is the launcher of a training pod or the operator. Each pod has a file of its own.
"""

import base64
import json
import struct
import subprocess
import tempfile
from pathlib import Path

from testbed import packages
from testbed.kube import Kube
from tests.support.cluster.training import Manifest
from tests.support.repository import REPOSITORY

SOURCE = REPOSITORY / "tests" / "processes" / "launch" / "clock.c"
LIBRARY = "clock.so"
CONFIG_MAP = "campaign-clock"
LIBRARIES, CLOCKS = "/campaign-clock", "/campaign-clocks"  # in pods
# A machine is a little off, was never set, is set in a summer by hand. A clock far back would make the API server's
# certificate invalid, which is another fault.
OFFSETS = (-60, -5, 5, 60, 3600, 86400)


def build() -> bytes:
    """The library for this kind of machine."""
    packages.need("gcc")
    with tempfile.TemporaryDirectory(prefix="tftraining-clock-") as folder:
        built = Path(folder) / LIBRARY
        command = ["gcc", "-shared", "-fPIC", "-O1", "-nostdlib", "-o", str(built), str(SOURCE)]
        subprocess.run(command, check=True)
        return built.read_bytes()


def config_map(namespace: str, library: bytes) -> Manifest:
    """The library, for the pods of a namespace."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "binaryData": {LIBRARY: base64.b64encode(library).decode()},
    }


def move(folder: Path, pod: str, seconds: int) -> None:
    """Let the clock of a pod's first process be so many seconds ahead of the machine's from now on."""
    with (folder / pod).open("r+b") as file:
        file.write(struct.pack("l", seconds))


def environment() -> list[Manifest]:
    """The variables of a container whose first process has such a clock."""
    return [
        {"name": "CAMPAIGN_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TESTS_CLOCK", "value": f"{CLOCKS}/$(CAMPAIGN_POD)"},
        {"name": "TESTS_CLOCK_PID", "value": "1"},
        {"name": "LD_PRELOAD", "value": f"{LIBRARIES}/{LIBRARY}"},
    ]


LIBRARY_VOLUME: Manifest = {"name": "campaign-clock", "configMap": {"name": CONFIG_MAP}}
LIBRARY_MOUNT: Manifest = {"name": "campaign-clock", "mountPath": LIBRARIES}


def give_to_operator(kube: Kube, namespace: str, deployment: str, folder: str) -> None:
    """Give the operator's processes such clocks, whose files are in a folder of the nodes, and wait until they run."""
    container = {
        "name": "operator",
        "env": environment(),
        "volumeMounts": [LIBRARY_MOUNT, {"name": "campaign-clocks", "mountPath": CLOCKS}],
    }
    volumes: list[Manifest] = [
        LIBRARY_VOLUME,
        {"name": "campaign-clocks", "hostPath": {"path": folder, "type": "Directory"}},
    ]
    change_operator(kube, namespace, deployment, {"containers": [container], "volumes": volumes})


def take_from_operator(kube: Kube, namespace: str, deployment: str) -> None:
    """Undo it: an installation that outlives the campaign is as it was."""
    gone = {"$patch": "delete"}
    container = {
        "name": "operator",
        "env": [{"name": each["name"]} | gone for each in environment()],
        "volumeMounts": [{"mountPath": path} | gone for path in (LIBRARIES, CLOCKS)],
    }
    volumes: list[Manifest] = [{"name": name} | gone for name in ("campaign-clock", "campaign-clocks")]
    change_operator(kube, namespace, deployment, {"containers": [container], "volumes": volumes})
    kube.kubectl("delete", "configmap", CONFIG_MAP, "--namespace", namespace, "--ignore-not-found")


def change_operator(kube: Kube, namespace: str, deployment: str, pod: Manifest) -> None:
    """Patch the spec of the operator's pods, and wait until such ones run."""
    patch = {"spec": {"template": {"spec": pod}}}
    here = ("--namespace", namespace)
    kube.kubectl("patch", f"deployment/{deployment}", *here, "--patch", json.dumps(patch))
    kube.kubectl("rollout", "status", f"deployment/{deployment}", *here, "--timeout=120s")
