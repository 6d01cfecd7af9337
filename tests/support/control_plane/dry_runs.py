"""What the API server makes of a manifest, asked directly: a process of kubectl for each costs ten times as much.

The words are those of `kubectl apply --validate=strict --dry-run=server`, which leaves validation to the server.
It must never leave anything on the server.
"""

import json

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.manifests import Manifest

APPLY = ("apply", "--validate=strict", "--filename=-")
JOBS = "/apis/tftraining.dev/v1/namespaces/{}/tftrainingjobs"
FLAGS = "?dryRun=All&fieldValidation=Strict"


def dry_run(plane: ControlPlane, namespace: str, manifest: Manifest, before: Manifest | None = None) -> Manifest:
    """Return the job as it would be stored, new or in place of `before`; LabError in kubectl's words."""
    path = JOBS.format(namespace)
    try:
        if before is None:
            return plane.request("POST", path + FLAGS, manifest)
        name = before["metadata"]["name"]
        # The present version: an operator that runs for other tests writes the status of every job.
        version = {"resourceVersion": plane.request("GET", f"{path}/{name}")["metadata"]["resourceVersion"]}
        put = {**manifest, "metadata": {**manifest["metadata"], **version}}
        return plane.request("PUT", f"{path}/{name}{FLAGS}", put)
    except WriteRefused as refusal:
        raise LabError(in_the_words_of_kubectl(refusal.status)) from refusal


def kubectl_dry_run(plane: ControlPlane, namespace: str, manifest: Manifest) -> Manifest:
    """Return the object as kubectl says that it would be stored; LabError carries what it prints."""
    flags = ("--namespace", namespace, "--dry-run=server", "--output=json")
    stored: Manifest = json.loads(plane.kubectl(*APPLY, *flags, stdin=json.dumps(manifest)))
    return stored


def in_the_words_of_kubectl(status: Manifest) -> str:
    """What kubectl prints for the Status of a refusal."""
    details = status.get("details", {})
    lines = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in details.get("causes", [])))
    if status["reason"] != "Invalid" or not lines:
        return f"Error from server ({status['reason']}): {status['message']}"
    said = lines[0] if len(lines) == 1 else "\n" + "\n".join(f"* {line}" for line in lines)
    return f'The {details["kind"]} "{details["name"]}" is invalid: {said}'
