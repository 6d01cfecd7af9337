"""A stand-in for Kueue's integration of plain pods: what it does to pods, none of how it decides.

Like Kueue's webhook it puts a scheduling gate and a finalizer on each pod that names a queue; a test says when a group
is admitted, preempted, and let go. It must never be taken for a proof that Kueue does so: that is read from its source.
"""

from typing import Any

from tests.control_plane.jobs import wait_until
from tests.kwok.jobs import SimulatedJob
from tests.kwok.simulation import Simulation

Manifest = dict[str, Any]
GATE, FINALIZER, QUEUE = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/queue-name"
PROBED = "queue-probe"
GROUP, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
API = "/apis/admissionregistration.k8s.io/v1beta1"
GATED = (
    f'Object{{metadata: Object.metadata{{finalizers: ["{FINALIZER}"]}},'
    f' spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'
)


def install(plane: Simulation) -> None:
    """From now on every new pod that names a queue is held."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "queued", "expression": f'"{QUEUE}" in object.metadata.?labels.orValue({{}})'}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": GATED}}],
    }
    meta = {"metadata": {"name": "queue"}}
    plane.request("POST", f"{API}/mutatingadmissionpolicies", meta | {"spec": spec})
    plane.request("POST", f"{API}/mutatingadmissionpolicybindings", meta | {"spec": {"policyName": "queue"}})
    plane.create_namespace(PROBED)
    # The API server takes note of a policy some time after it has taken it.
    wait_until(lambda: _holds(plane), "new pods are held")


def _holds(plane: Simulation) -> bool:
    spec = {"containers": [{"name": "none", "image": "none"}]}
    probe = {"metadata": {"name": "probe", "labels": {QUEUE: "research"}}, "spec": spec}
    made = plane.request("POST", f"/api/v1/namespaces/{PROBED}/pods?dryRun=All", probe)
    return bool(made["spec"].get("schedulingGates"))


def groups(job: SimulatedJob) -> dict[str, list[Manifest]]:
    """The job's pods that are to train, by the name of their group."""
    found: dict[str, list[Manifest]] = {}
    for pod in job.pods().values():
        if name := pod["metadata"]["labels"].get(GROUP):
            found.setdefault(name, []).append(pod)
    return found


def admit(job: SimulatedJob) -> str:
    """Wait until a group is there as a whole and gated, and give it its quota; return its name."""

    def whole() -> str:
        for name, pods in groups(job).items():
            gated = all(pod["spec"].get("schedulingGates") for pod in pods)
            if gated and len(pods) == int(pods[0]["metadata"]["annotations"][COUNT]):
                return name
        return ""

    name = wait_until(whole, "a whole group waits")
    for pod in groups(job)[name]:
        job.patch_pod(pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
    return name


def let_go(job: SimulatedJob, group: str) -> None:
    """Kueue is done with the group, as soon as none of its pods runs."""

    def ended() -> bool:
        return all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in groups(job).get(group, ()))

    wait_until(ended, f"all pods of {group} have ended")
    for pod in groups(job).get(group, ()):
        job.patch_pod(pod["metadata"]["name"], {"metadata": {"finalizers": None}})
