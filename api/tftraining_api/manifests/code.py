"""The parts of a pod for a program that its image does not contain (spec.code).

The init container that installs the launcher unpacks the program into a volume of the pod. So each pod of the job, also
one that is created much later, has the same files, whatever the source has become; and a restart in place keeps them.
"""

from posixpath import join

from tftraining_api.manifests.storage import storage_mounts
from tftraining_api.model.spec import Code, JobSpec, Manifest

VOLUME, DIRECTORY = "tftraining-code", "/opt/tftraining-code"
SOURCE_VOLUME, SOURCE_DIRECTORY = "tftraining-code-source", "/opt/tftraining-code-source"
KEY = "code.tar.gz"  # of the ConfigMap
# Unpacking and git take more memory than the copy of the launcher, but less than any program with TensorFlow.
MEMORY = "256Mi"


def volumes(code: Code | None) -> list[Manifest]:
    """The volume of the program, and that of a source with one of its own."""
    return [] if code is None else [{"name": VOLUME, "emptyDir": {}}, *_source_volume(code)]


def _source_volume(code: Code) -> list[Manifest]:
    if code.config_map is not None:
        items = [{"key": KEY, "path": KEY}]
        return [{"name": SOURCE_VOLUME, "configMap": {"name": code.config_map.name, "items": items}}]
    if code.git is not None and code.git.secret_name is not None:
        items = [{"key": name, "path": name} for name in ("username", "password")]
        secret = {"secretName": code.git.secret_name, "defaultMode": 0o440, "items": items}
        return [{"name": SOURCE_VOLUME, "secret": secret}]
    return []


def with_unpacking(init: Manifest, spec: JobSpec) -> Manifest:
    """The init container of the launcher, which unpacks the program too."""
    if spec.code is None:
        return init
    mounts = [{"name": VOLUME, "mountPath": DIRECTORY}, *_source_mount(spec, spec.code)]
    return {
        **init,
        "command": [*init["command"], "--code", DIRECTORY, *_arguments(spec, spec.code)],
        "resources": {part: _more(amounts) for part, amounts in init["resources"].items()},
        "volumeMounts": [*init["volumeMounts"], *mounts],
    }


def _more(amounts: Manifest) -> Manifest:
    return {**amounts, **({"memory": MEMORY} if "memory" in amounts else {})}


def _source_mount(spec: JobSpec, code: Code) -> list[Manifest]:
    if code.storage is not None and spec.storage is not None:
        return [{**each, "readOnly": True} for each in storage_mounts(spec.storage)]
    return [{"name": each["name"], "mountPath": SOURCE_DIRECTORY, "readOnly": True} for each in _source_volume(code)]


def _arguments(spec: JobSpec, code: Code) -> list[str]:
    if code.git is not None:
        # One word each: a value must not be read as an option.
        source = [f"--git={code.git.url}", f"--revision={code.git.revision}"]
        return [*source, f"--credentials={SOURCE_DIRECTORY}"] if code.git.secret_name else source
    archive = join(SOURCE_DIRECTORY, KEY)
    if code.storage is not None and spec.storage is not None:
        archive = join(spec.storage.mount_path, code.storage.path)
    return [f"--archive={archive}", f"--digest={code.digest}"]


def with_program(container: Manifest, code: Code | None) -> Manifest:
    """The training container with the program as its working directory, unless the user names another."""
    if code is None:
        return container
    mounts = [*(container.get("volumeMounts") or ()), {"name": VOLUME, "mountPath": DIRECTORY}]
    return {"workingDir": DIRECTORY, **container, "volumeMounts": mounts}


def settings(code: Code | None) -> Manifest:
    """The field of the launcher's settings: the directory that comes first in the program's PYTHONPATH."""
    return {} if code is None else {"code": DIRECTORY}
