"""The TF_CONFIG of a job's replicas: whether the pod's manifest contains it, and whether it can be set at all.

The manifest contains TF_CONFIG if it is short (IN_MANIFEST bytes), if there is no launcher, if the launcher comes from
the user's choice of image, which may be too old to generate it, or if the template refers to it. Otherwise the launcher
generates it from the pattern of the addresses, because the manifests of a gang would grow with the square of its size.
A TF_CONFIG longer than Linux allows in the environment of a new process is never in a manifest: the launcher sets it
inside the Python interpreter, and a job in which it cannot is invalid.
"""

from collections.abc import Sequence

from tftraining.launch.in_user_process.shared.python_command import imports_sitecustomize
from tftraining.launch.in_user_process.shared.tf_config import LONGEST, NAME, Cluster, size_of
from tftraining.launch.roles import GANG_ROLES, ROLES, RoleName
from tftraining_api.model.names import CONTAINER, Key, Replica, address_pattern
from tftraining_api.model.spec import JobSpec, Manifest

IN_MANIFEST = 16384
_REFERENCE = f"$({NAME})"


def cluster_of(key: Key, spec: JobSpec) -> Cluster:
    """The roles of the gang in the form that `tftraining.launch.in_user_process.shared.tf_config` uses."""
    roles = ((role, own) for role in GANG_ROLES if (own := spec.role(role)) is not None and own.replicas)
    return tuple((role, own.replicas, address_pattern(key, role, own.port)) for role, own in roles)


def in_manifest(key: Key, spec: JobSpec, replica: Replica) -> bool:
    """Whether the pod's manifest contains the replica's TF_CONFIG; otherwise the launcher generates it."""
    size = size_of(cluster_of(key, spec), replica.role, replica.index)
    pinned = spec.launcher.image is not None
    return size <= IN_MANIFEST or not spec.in_place or (size <= LONGEST and (pinned or _refers(spec, replica.role)))


def why_not_settable(key: Key, spec: JobSpec) -> str | None:
    """Why the TF_CONFIG of some replica cannot be set, for users; None if all can be set."""
    cluster = cluster_of(key, spec)
    for role in ROLES:
        own = spec.role(role)
        if own is None or not own.replicas:
            continue
        longest = Replica(role, own.replicas - 1)
        if (size := size_of(cluster, role, longest.index)) > LONGEST and (why := _hindrance(spec, role)):
            return (
                f"{NAME} of {longest} would have {size} bytes, more than the {LONGEST} that Linux allows for an "
                f"environment variable; only a launcher can set it, inside the Python that it starts, but {why}: "
                "use fewer replicas, or shorten the names of the job and its namespace"
            )
    return None


def _hindrance(spec: JobSpec, role: RoleName) -> str:
    """Why no TF_CONFIG longer than Linux's limit can be set for the role; "" if it can."""
    if not spec.in_place:
        return f"there is no launcher with spec.restartPolicy.mode: {spec.restart_policy.mode}"
    if _refers(spec, role):
        return f"the template refers to {_REFERENCE}"
    command = _words(spec, role)
    if not imports_sitecustomize(command):
        return f"the command ({' '.join(command)[:100]}) is not python, or one with the option -E, -I or -S"
    return ""


def _container(spec: JobSpec, role: RoleName) -> Manifest:
    containers: Sequence[Manifest] = (spec.template_of(role).get("spec") or {}).get("containers") or ()
    return next((each for each in containers if each.get("name") == CONTAINER), {})


def _words(spec: JobSpec, role: RoleName) -> list[str]:
    container = _container(spec, role)
    return [str(word) for part in ("command", "args") for word in container.get(part) or ()]


def _refers(spec: JobSpec, role: RoleName) -> bool:
    """Whether the kubelet has to expand $(TF_CONFIG) in the command, the arguments or a variable."""
    values = [str(each.get("value")) for each in _container(spec, role).get("env") or ()]
    return any(_REFERENCE in text for text in (*_words(spec, role), *values))
