"""The scheduler of scheduler-plugins beside a simulation, with its coscheduling plugin and the PodGroup's definition.

It is a second scheduler, under the name that its Helm chart gives it; the simulation's own places all other pods.
"""

import yaml

from testbed import binaries
from tests.support.control_plane.apiserver import ControlPlane

API, NAME = "scheduling.x-k8s.io/v1alpha1", "scheduler-plugins-scheduler"
PROGRAM, PLUGIN = "scheduler-plugins", "Coscheduling"


def install(plane: ControlPlane) -> None:
    """Start it; from now on it looks after the pods that name it."""
    definition = binaries.module_files(PROGRAM) / "manifests" / "coscheduling" / "crd.yaml"
    plane.kubectl("apply", "--server-side", "--filename", definition)
    path = plane.directory / "coscheduling.yaml"
    path.write_text(yaml.safe_dump(_configuration(str(plane.kubeconfig))))
    plane.start(PROGRAM, f"--config={path}", "--secure-port=0")


def _configuration(kubeconfig: str) -> dict[str, object]:
    """As in the module's manifests/coscheduling/scheduler-config.yaml, but for the scheduler's name."""
    plugins = {
        "multiPoint": {"enabled": [{"name": PLUGIN}]},
        "queueSort": {"enabled": [{"name": PLUGIN}], "disabled": [{"name": "*"}]},
    }
    arguments = [{"name": PLUGIN, "args": {"permitWaitingTimeSeconds": 10}}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": kubeconfig},
        "profiles": [{"schedulerName": NAME, "plugins": plugins, "pluginConfig": arguments}],
    }
