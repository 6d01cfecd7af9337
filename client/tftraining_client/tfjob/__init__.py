"""Converts a TFJob of Kubeflow or Arena into a TFTrainingJob, with a note for each difference. Pure.

The field table of docs/migration.md says what each field becomes.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tftraining_client.errors import UserError
from tftraining_client.tfjob.notes import Json, Note, Notes, check_filled_in, leave_out, mapping
from tftraining_client.tfjob.policies import Group, restart_policy, run_policy, run_policy_of, success_policy
from tftraining_client.tfjob.replicas import DEFAULTS, Defaults, read_replicas
from tftraining_client.tfjob.storage import take_storage
from tftraining_client.tfjob.templates import DEFAULT_PORT, RoleTemplate, role_template, shared_template

GROUP, KIND = "kubeflow.org", "TFJob"
API_VERSION, OUR_KIND = "tftraining.dev/v1", "TFTrainingJob"
LONGEST_NAME = 51
KERAS = (
    "a program of Keras 2 that says tf.keras gets Keras 3 from TensorFlow 2.16 on: with tf_keras in the image and "
    "spec.launcher.keras: Legacy it runs as it is"
)
# Written by Arena's chart, for Helm and for `arena list`.
ARENA_LABELS = ("app", "chart", "release", "heritage", "createdBy", "app.kubernetes.io/managed-by")
DROPPED_ANNOTATIONS = (
    *("kubectl.kubernetes.io/last-applied-configuration", "meta.helm.sh/release-name"),
    "meta.helm.sh/release-namespace",
)
# Written by the API server and by the TFJob's operator: the new job gets its own.
SERVERS = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"),
    *("resourceVersion", "selfLink", "uid"),
)
METADATA = ("annotations", "generateName", "labels", "name", "namespace", "ownerReferences", *SERVERS)


@dataclass(frozen=True)
class Choices:
    """What the user says of the TFJobs: the image's entrypoint, for containers without a command (empty if it has none,
    None if it is unknown), the gang scheduler, and the path of the volume that becomes the storage."""

    entrypoint: Sequence[str] | None = None
    gang_scheduler: str | None = None
    storage: str | None = None


@dataclass(frozen=True)
class Conversion:
    """The job, and what differs."""

    job: Json
    notes: tuple[Note, ...]


def is_tfjob(document: Json) -> bool:
    """Whether the object is a TFJob of some version."""
    group, _, _ = str(document.get("apiVersion")).partition("/")
    return document.get("kind") == KIND and group == GROUP


def convert(tfjob: Json, choices: Choices = Choices()) -> Conversion:
    """The job of a TFJob.

    UserError with one line for a TFJob that its own operator would not run either, and for what the user has to choose.
    """
    notes = Notes()
    defaults = DEFAULTS.get(str(tfjob.get("apiVersion")).partition("/")[2], Defaults())
    leave_out(tfjob, "TFJob", ("apiVersion", "kind", "metadata", "spec", "status"), notes)
    metadata, spec = mapping(tfjob.get("metadata"), "metadata"), mapping(tfjob.get("spec"), "spec")
    name = _name(metadata, notes)
    roles = read_replicas(spec, defaults, notes)
    policy = run_policy_of(spec, notes)
    templates = [role_template(each, choices.entrypoint, (str(metadata.get("name")), name), notes) for each in roles]
    storage, converted = take_storage(templates, name, choices.storage, notes)
    schedulers = {str(each.template["spec"].get("schedulerName") or "") for each in converted}
    members = sum(each.count for each in roles if each.role != "evaluator")
    if members > 1:
        notes.add("spec.tfReplicaSpecs", KERAS)
    parts = {
        "storage": storage,
        "restartPolicy": restart_policy(roles, policy, defaults, notes),
        "runPolicy": run_policy(policy, Group(members, schedulers, choices.gang_scheduler), defaults, notes),
        **success_policy(spec, notes),
    }
    shared = shared_template(converted)
    job = {
        "apiVersion": API_VERSION,
        "kind": OUR_KIND,
        "metadata": _metadata(tfjob, name, notes),
        "spec": {
            "replicaSpecs": _replica_specs(converted, shared),
            **{key: value for key, value in parts.items() if value},
            "template": shared,
        },
    }
    return Conversion(job, tuple(notes.found))


def _replica_specs(templates: Sequence[RoleTemplate], shared: Json) -> Json:
    """spec.replicaSpecs: a role whose template differs from the shared one has its own."""
    text = json.dumps(shared, sort_keys=True)
    specs: Json = {}
    for each in templates:
        own = {} if json.dumps(each.template, sort_keys=True) == text else {"template": each.template}
        port = {} if each.port == DEFAULT_PORT else {"port": each.port}
        specs[each.replicas.role] = {"replicas": each.replicas.count, **port, **own}
    return specs


def _name(metadata: Json, notes: Notes) -> str:
    """The name of the job: that of the TFJob as far as it may stay."""
    given, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
    for text in (given, prefix, str(metadata.get("namespace") or "")):
        check_filled_in(text, "the TFJob's metadata")
    if prefix:
        given = given or prefix.rstrip("-")
        notes.add("metadata.generateName", f"is the name {given}: change it for each further job")
    if not given:
        raise UserError("the TFJob has no metadata.name")
    name = re.sub(r"[^-a-z0-9]", "-", given.lower())
    name = (name if re.match("[a-z]", name) else f"tf-{name}")[:LONGEST_NAME].strip("-")
    if name != given:
        notes.add(
            "metadata.name",
            f"is {name}: at most {LONGEST_NAME} characters, a letter first, then letters, digits and '-'",
        )
    return name


def _metadata(tfjob: Json, name: str, notes: Notes) -> Json:
    metadata = mapping(tfjob.get("metadata"), "metadata")
    leave_out(metadata, "metadata", METADATA, notes)
    written = [f"metadata.{each}" for each in SERVERS if metadata.get(each) is not None]
    if written := [*written, *(("status",) if tfjob.get("status") else ())]:
        notes.add(", ".join(written), "is left out: the cluster writes the new job's own")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    if gone := [each for each in ARENA_LABELS if each in labels and {"release", "createdBy"} & {*labels}]:
        notes.add("metadata.labels", f"Arena's and Helm's labels are left out ({', '.join(gone)}): use `tftj list`")
        labels = {key: value for key, value in labels.items() if key not in gone}
    given = mapping(metadata.get("annotations"), "metadata.annotations")
    if gone := [each for each in DROPPED_ANNOTATIONS if each in given]:
        notes.add("metadata.annotations", f"is without those of kubectl and Helm ({', '.join(gone)})")
    annotations = {key: value for key, value in given.items() if key not in gone}
    if metadata.get("ownerReferences"):
        notes.add("metadata.ownerReferences", "is left out: the job is not deleted with the TFJob's owner")
    kept = {"namespace": metadata.get("namespace"), "labels": labels, "annotations": annotations}
    return {"name": name, **{key: value for key, value in kept.items() if value}}
