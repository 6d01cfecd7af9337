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
from tftraining_client.tfjob.notes import Json, Notes, check_filled_in, items, leave_out, mapping, strings, whole
from tftraining_client.tfjob.repeatability import SHELLS, unrepeatable
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
    replicas: Replicas, entrypoint: Sequence[str] | None, renamed: tuple[str, str], notes: Notes
) -> RoleTemplate:
    """Convert a role's template. `entrypoint` is that of the image, for a container without a command: empty if it has
    none, None if it is unknown; `renamed` are the names of the TFJob and of the new job."""
    where = f"{replicas.where}.template"
    template = copy.deepcopy(replicas.template)
    try:
        check_template(template)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}") from error
    leave_out(template, where, ("metadata", "spec"), notes)
    spec = mapping(template.get("spec"), f"{where}.spec")
    _leave_out_own(spec, where, notes)
    _check_images(spec, where)
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


def _check_images(spec: Json, where: str) -> None:
    """UserError for a container without an image, or with one that nothing has filled in."""
    for kind in ("containers", "initContainers"):
        for number, each in enumerate(items(spec.get(kind), f"{where}.spec.{kind}")):
            place = f"{where}.spec.{kind}[{number}].image"
            if not each.get("image") and kind == "containers":
                raise UserError(f"{place} is unset: name the image of the program")
            check_filled_in(str(each.get("image") or ""), place)


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


def _leave_out_own(spec: Json, where: str, notes: Notes) -> None:
    """The fields of a pod that the operator sets itself, and the old name of one."""
    if spec.pop("restartPolicy", None):
        notes.add(f"{where}.spec.restartPolicy", "is left out: that of the role decides, as in a TFJob")
    for name in ("hostname", "subdomain"):
        if spec.pop(name, None):
            notes.add(f"{where}.spec.{name}", "is left out: the operator names the pods and their Service")
    if account := spec.pop("serviceAccount", None):
        spec["serviceAccountName"] = spec.get("serviceAccountName") or account
        notes.add("serviceAccount", "is serviceAccountName, its present name")


def _take_entrypoint(container: Json, entrypoint: Sequence[str] | None, where: str, notes: Notes) -> None:
    """The command of a container that has none: its args if they are a whole command, otherwise the image's."""
    arguments = _arguments(container, where)
    without = entrypoint is not None and not entrypoint
    prepares = bool(entrypoint) and not _starts_program(entrypoint or ())
    if arguments and (without or (_starts_program(arguments) and not prepares)):
        container["command"] = container.pop("args")
        notes.add(
            f"{where}.spec.containers[{CONTAINER}].args",
            "is the command: for an image whose entrypoint prepares something, name that with --entrypoint",
        )
    elif entrypoint:
        unknown = "" if arguments else ", without the arguments (CMD) of its image"
        notes.add("--entrypoint", f"is the command of each container that had none{unknown}")
        container["command"] = list(entrypoint)
    else:
        args = "; for an image without one write --entrypoint '', and its args are the command" if arguments else ""
        raise UserError(
            f"{where}: the container {CONTAINER} has no command, and the entrypoint of its image "
            f"{container.get('image')} cannot be seen from here: name it with --entrypoint 'python train.py'{args}"
        )


def _arguments(container: Json, where: str) -> list[str]:
    return strings(container.get("args"), f"{where}.spec.containers[{CONTAINER}].args")


def _starts_program(words: Sequence[str]) -> bool:
    """Whether the first word is an interpreter, which no image has a second time as its entrypoint."""
    name = str(words[0]).rsplit("/", 1)[-1]
    return name in SHELLS or re.fullmatch(r"python[\d.]*", name) is not None


def _set_command(container: Json, entrypoint: Sequence[str] | None, where: str, notes: Notes) -> None:
    """The launcher starts the program, so the command must be known."""
    if not container.get("command"):
        _take_entrypoint(container, entrypoint, where, notes)
    command, arguments = container["command"], _arguments(container, where)
    if (plain := _without_shell(command, arguments)) is not None:
        notes.add(
            f"{where}.spec.containers[{CONTAINER}].command",
            "is the program itself instead of a shell, so that a restart is warm (one to two seconds)",
        )
        container["command"] = plain
    elif len(command) > 1 and command[0].rsplit("/", 1)[-1] in SHELLS:
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
    at = f"{where}.spec.containers[{CONTAINER}].ports"
    port = whole(named[0].get("containerPort"), f"{at}.containerPort") or DEFAULT_PORT
    notes.add(at, f"{PORT_NAME} is the role's port, {port}")
    known = ("name", "containerPort", *(("protocol",) if named[0].get("protocol") == "TCP" else ()))
    leave_out(named[0], f"{at}[{PORT_NAME}]", known, notes, "is left out: the pods reach each other by their Service")
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
    known = ("labels", "annotations", "creationTimestamp")
    leave_out(metadata, f"{where}.metadata", known, notes, "is left out: the operator makes the pods")
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
