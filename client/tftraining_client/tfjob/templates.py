"""The pod templates of a TFJob: each role's, and the one that serves most of them. Pure."""

import copy
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tftraining_api.model.template import check_template
from tftraining_client.errors import UserError
from tftraining_client.tfjob.notes import Json, Notes, items, mapping
from tftraining_client.tfjob.repeatability import unrepeatable
from tftraining_client.tfjob.replicas import Replicas
from tftraining_client.tfjob.selectors import renamed_selectors

CONTAINER = "tensorflow"
PORT_NAME, DEFAULT_PORT = "tfjob-port", 2222
OLD_GPU, GPU = "alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"
# Read by gang schedulers: the operator writes its own.
GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
GROUP_LABELS = "pod-group.scheduling.sigs.k8s.io"
# A shell is needed for these characters, and for a variable before the program.
_SHELL = re.compile(r"[$&|;<>()`*?\[\]{}~#!\n\\]|^\s*\w+=")
_HOST = ("hostNetwork", "hostPID", "hostIPC")


@dataclass(frozen=True)
class RoleTemplate:
    """A role's template as the job has it, and the port of its replicas."""

    replicas: Replicas
    template: Json
    port: int


def role_template(
    replicas: Replicas, entrypoint: Sequence[str], renamed: tuple[str, str], notes: Notes
) -> RoleTemplate:
    """Convert a role's template. `entrypoint` is that of the image, for a container without a command; `renamed` are
    the names of the TFJob and of the new job."""
    where = f"{replicas.where}.template"
    template = copy.deepcopy(replicas.template)
    try:
        check_template(template)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}") from error
    spec = mapping(template.get("spec"), f"{where}.spec")
    # The role's policy replaces it in a TFJob.
    spec.pop("restartPolicy", None)
    container = _training_container(items(spec.get("containers"), f"{where}.spec.containers"), where, notes)
    _set_command(container, entrypoint, where, notes)
    _drop_tf_config(container, where, notes)
    port = _take_port(container, where, notes)
    _rename_gpus(spec, notes)
    _tell_rights(spec, notes)
    spec = renamed_selectors(spec, renamed, notes)
    metadata = _metadata(mapping(template.get("metadata"), f"{where}.metadata"), where, notes)
    return RoleTemplate(replicas, {**({"metadata": metadata} if metadata else {}), "spec": spec}, port)


def shared_template(templates: Sequence[RoleTemplate]) -> Json:
    """The template that serves most roles; of several the worker's, otherwise the first role's."""
    texts = [json.dumps(each.template, sort_keys=True) for each in templates]
    most = max(texts.count(text) for text in texts)
    best = [each for each, text in zip(templates, texts, strict=True) if texts.count(text) == most]
    return next((each for each in best if each.replicas.role == "worker"), best[0]).template


def training_container(template: Json) -> Json:
    """The container that trains."""
    found: Json = next(each for each in template["spec"]["containers"] if each.get("name") == CONTAINER)
    return found


def _training_container(containers: list[Json], where: str, notes: Notes) -> Json:
    for each in containers:
        if each.get("name") == CONTAINER:
            return each
    if len(containers) != 1:
        named = ", ".join(str(each.get("name")) for each in containers) or "none"
        raise UserError(f"{where} has no container named {CONTAINER} (it has: {named}): rename the one that trains")
    notes.add(f"{where}.spec.containers[0].name", f"is {CONTAINER} instead of {containers[0].get('name')}")
    containers[0]["name"] = CONTAINER
    return containers[0]


def _set_command(container: Json, entrypoint: Sequence[str], where: str, notes: Notes) -> None:
    """The launcher starts the program, so the command must be known."""
    command, arguments = container.get("command") or [], container.get("args") or []
    if not command and not entrypoint:
        raise UserError(
            f"{where}: the container {CONTAINER} has no command, and the entrypoint of its image "
            f"{container.get('image')} cannot be seen from here: name it with --entrypoint 'python train.py'"
        )
    if not command:
        notes.add("--entrypoint", "is the command of each container that had none")
        container["command"] = list(entrypoint)
    elif (plain := _without_shell(command, arguments)) is not None:
        notes.add(
            f"{where}.spec.containers[{CONTAINER}].command",
            "is the program itself instead of a shell, so that a restart is warm (one to two seconds)",
        )
        container["command"] = plain
    elif len(command) > 1 and command[0].rsplit("/", 1)[-1] in ("sh", "bash"):
        notes.add(
            f"{where}.spec.containers[{CONTAINER}].command",
            "is a shell: a restart imports TensorFlow anew; with [python, train.py, …] a restart takes one to two "
            "seconds",
        )
    for words, fix in unrepeatable(container["command"], arguments):
        notes.add(
            f"{where}.spec.containers[{CONTAINER}].command",
            f"`{words}` fails when it runs again: a restart runs the command again in the same container. Write {fix}",
        )


def _without_shell(command: list[str], arguments: list[str]) -> list[str] | None:
    """The words of `sh -c "python train.py"`; None if it needs the shell."""
    if len(command) != 3 or arguments or command[0].rsplit("/", 1)[-1] not in ("sh", "bash") or command[1] != "-c":
        return None
    try:
        words = [] if _SHELL.search(command[2]) else shlex.split(command[2])
    except ValueError:
        return None
    return words if words and words[0].rsplit("/", 1)[-1].startswith("python") else None


def _drop_tf_config(container: Json, where: str, notes: Notes) -> None:
    env = items(container.get("env"), f"{where}.spec.containers[{CONTAINER}].env")
    kept = [each for each in env if each.get("name") != "TF_CONFIG"]
    if len(kept) < len(env):
        notes.add(f"{where}.spec.containers[{CONTAINER}].env", "TF_CONFIG is left out: the operator sets it")
        container["env"] = kept


def _take_port(container: Json, where: str, notes: Notes) -> int:
    ports = items(container.get("ports"), f"{where}.spec.containers[{CONTAINER}].ports")
    named = [each for each in ports if each.get("name") == PORT_NAME]
    if not named:
        return DEFAULT_PORT
    kept = [each for each in ports if each not in named]
    if kept:
        container["ports"] = kept
    else:
        del container["ports"]
    port = int(named[0].get("containerPort") or DEFAULT_PORT)
    notes.add(f"{where}.spec.containers[{CONTAINER}].ports", f"{PORT_NAME} is the role's port, {port}")
    return port


def _rename_gpus(spec: Json, notes: Notes) -> None:
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            for part in (container.get("resources") or {}).values():
                if isinstance(part, dict) and OLD_GPU in part:
                    part[GPU] = part.pop(OLD_GPU)
                    notes.add(f"resources {OLD_GPU}", f"is {GPU}: Kubernetes has removed the old name")


def _tell_rights(spec: Json, notes: Notes) -> None:
    """Tell what the restricted defaults of the operator change."""
    notes.add(
        "securityContext",
        "unset fields follow the restricted Pod Security Standard: user 1000, no capabilities. An image that needs "
        "root sets securityContext: {runAsUser: 0}",
    )
    if spec.get("serviceAccountName") and "automountServiceAccountToken" not in spec:
        notes.add(
            "serviceAccountName", "no token is mounted: set automountServiceAccountToken: true if the program needs one"
        )
    if used := [name for name in _HOST if spec.get(name)]:
        notes.add(
            ", ".join(used),
            "is kept, but a restricted namespace refuses it; with hostNetwork two replicas of one port share no node",
        )
    if any("hostPath" in each for each in spec.get("volumes") or ()):
        notes.add(
            "volumes[].hostPath", "is kept, but a restricted namespace refuses it, and each node has its own files"
        )
    if any((each.get("securityContext") or {}).get("privileged") for each in spec["containers"]):
        notes.add("securityContext.privileged", "is kept, but a restricted namespace refuses it")
    if str(spec.get("schedulerName", "")).startswith("kube-batch"):
        notes.add("schedulerName", "kube-batch is Volcano's predecessor, and has no PodGroup here: use volcano")


def _metadata(metadata: Json, where: str, notes: Notes) -> Json:
    """The labels and annotations; names and owners are the operator's."""
    annotations = dict(metadata.get("annotations") or {})
    for name in GROUP_ANNOTATIONS:
        if annotations.pop(name, None) is not None:
            notes.add(f"{where}.metadata.annotations", f"{name} is left out: the operator names the PodGroup")
    labels = dict(metadata.get("labels") or {})
    if any(name.startswith(GROUP_LABELS) for name in labels):
        notes.add(
            f"{where}.metadata.labels",
            f"{GROUP_LABELS}… are kept for a scheduler that reads them; for a PodGroup set spec.runPolicy.scheduling",
        )
    return {name: value for name, value in (("labels", labels), ("annotations", annotations)) if value}
