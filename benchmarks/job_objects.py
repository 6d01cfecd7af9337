"""The objects of a measurement: jobs, and the same children that the operator creates for them.

The operator's own planner builds the children, so that the floor creates objects of the same size. Never write a child
by hand: the comparison would drift.
"""

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from benchmarks.api_client import Manifest
from tests.support.control_plane.installation import OPERATOR_NAMESPACE
from tests.support.control_plane.manifests import changed, minimal, template
from tests.support.control_plane.operator_process import OPERATOR_PODS
from tftraining_api.manifests.launcher import KEY
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import CONTAINER, GROUP, PLURAL, VERSION
from tftraining_operator.cluster.children import KEY_BYTES
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.step import Step

Request = tuple[str, str, bytes]
UID = "00000000-0000-0000-0000-000000000000"
ASKER = OperatorSelector(OPERATOR_NAMESPACE, OPERATOR_PODS)
STARTED = "2026-01-01T00:00:00Z"


def jobs_path(namespace: str) -> str:
    """The API path of the jobs of a namespace."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"


def core_path(namespace: str, kind: str) -> str:
    """The API path of the pods, Services or Secrets of a namespace."""
    return f"/api/v1/namespaces/{namespace}/{kind}"


def policies_path(namespace: str) -> str:
    """The API path of the NetworkPolicies of a namespace."""
    return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"


def job_names(jobs: int) -> list[str]:
    """The names of the jobs of one measurement."""
    return [f"job-{number}" for number in range(jobs)]


def job_requests(namespace: str, jobs: int, workers: int) -> list[Request]:
    """The requests that create the jobs."""
    return [("POST", jobs_path(namespace), msgspec.json.encode(a_job(name, workers))) for name in job_names(jobs)]


def child_requests(namespace: str, jobs: int, workers: int) -> list[Request]:
    """The requests that create the Services, NetworkPolicies, Secrets and pods of the same jobs, without the jobs."""
    requests: list[Request] = []
    for name in job_names(jobs):
        step = _first_step(namespace, name, workers)
        kinds: dict[str, Sequence[Manifest | None]] = {
            core_path(namespace, "services"): [step.create_service],
            policies_path(namespace): step.auxiliary_objects,
            core_path(namespace, "secrets"): [_with_key(step.create_secret)],
            core_path(namespace, "pods"): step.create_pods,
        }
        for path, manifests in kinds.items():
            requests += [("POST", path, msgspec.json.encode(each)) for each in manifests]
    return requests


def running_request(namespace: str, pod: str) -> Request:
    """The report of a kubelet that the training container runs."""
    return _status_request(namespace, pod, "Running", {"running": {"startedAt": STARTED}})


def failed_request(namespace: str, pod: str) -> Request:
    """The report of a kubelet that the training container was killed."""
    ended = {"exitCode": 137, "reason": "Error", "startedAt": STARTED, "finishedAt": STARTED}
    return _status_request(namespace, pod, "Failed", {"terminated": ended})


def _status_request(namespace: str, pod: str, phase: str, state: Manifest) -> Request:
    container = {
        "name": CONTAINER,
        "image": "trainer",
        "imageID": "trainer",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": state,
    }
    body = {"status": {"phase": phase, "containerStatuses": [container]}}
    return ("PATCH", f"{core_path(namespace, 'pods')}/{pod}/status", msgspec.json.encode(body))


def a_job(name: str, workers: int) -> Manifest:
    """A job with launchers. Its command is python: only there can the launcher set a TF_CONFIG of any length."""
    program = template(command=["python", "train.py"])
    return changed(minimal(name), {"spec.replicaSpecs.worker.replicas": workers, "spec.template": program})


def _first_step(namespace: str, name: str, workers: int) -> Step:
    """The first step with pods: the status has their Keras by then."""
    stored = {"metadata.namespace": namespace, "metadata.uid": UID, "status": {"keras": "Own"}}
    raw = changed(a_job(name, workers), stored)
    return plan(parse_job(raw), Observed(), datetime.now(UTC), "operator-image", ASKER)


def _with_key(secret: Manifest | None) -> Manifest:
    """The Secret with a key of the same size as the operator's random keys."""
    assert secret is not None
    return {**secret, "data": {KEY: b64encode(bytes(KEY_BYTES)).decode()}}
