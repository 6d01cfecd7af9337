"""The short-lived pod of a command: created, followed until it runs, and deleted at the end, also after Ctrl-C.

A claim that one node has at a time (ReadWriteOnce) can be mounted on that node only, which the scheduler does not see:
the pod goes where the pods are that use the claim.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.manifests.storage import job_directory
from tftraining_api.model.job import parse_job
from tftraining_api.model.spec import Manifest, Storage
from tftraining_client.cluster.models import Event, Job
from tftraining_client.cluster.paths import core_path, object_path
from tftraining_client.cluster.watching import Watch
from tftraining_client.code.submission import OF_ONE_POD
from tftraining_client.errors import UserError

T = TypeVar("T")
START_SECONDS = 900.0  # the image of a training may be large
# Reasons of a waiting container that time does not mend.
HOPELESS = (
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
)
OWNER = "set securityContext.runAsUser or fsGroup of the job's template to an owner of the volume"
# What helps where the storage takes no file, by the name of the error.
STORAGE_REMEDIES = {
    "ENOSPC": "delete files in it, or use a larger volume",
    "EDQUOT": "delete files in it, or ask for a larger quota",
    "EROFS": "the volume must be writable",
    "EACCES": OWNER,
    "EPERM": OWNER,
}
SHARED = {"ReadWriteMany", "ReadOnlyMany"}
OF_ONE = ["ReadWriteOncePod"]


@asynccontextmanager
async def helper_pod(api: Api, namespace: str, manifest: Manifest) -> AsyncIterator[str]:
    """Create the pod; its name. The pod is deleted at the end, with its own grace period: its program may tidy up."""
    collection = core_path(namespace, "pods")
    placed = await _beside_users(api, namespace, manifest)
    pod = await api.request("POST", collection, placed, [("fieldValidation", "Strict")])
    name = pod["metadata"]["name"]
    try:
        yield name
    finally:
        with suppress(ApiError):
            await api.request("DELETE", object_path(collection, name))


async def _beside_users(api: Api, namespace: str, manifest: Manifest) -> Manifest:
    """The manifest with the node of its claim, if pods use that one now. Who may not read them gets the plain one."""
    volumes = manifest["spec"].get("volumes") or ()
    name = next((claim_of(each) for each in volumes if claim_of(each)), "")
    with suppress(ApiError):
        if name:
            claim = await api.request("GET", object_path(core_path(namespace, "persistentvolumeclaims"), name))
            pods, _ = await api.list(core_path(namespace, "pods"), [])
            return placed(manifest, claim, pods)
    return manifest


def claim_of(volume: Manifest) -> str:
    """The claim of a pod's volume, "" if it is of another kind."""
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def placed(manifest: Manifest, claim: Manifest, pods: list[Manifest]) -> Manifest:
    """The manifest of a pod that mounts the claim, on the node of those that use it, unless nodes share the claim.
    UserError if one pod has it alone."""
    modes = (claim.get("spec") or {}).get("accessModes") or []
    name = claim["metadata"]["name"]
    users = [each for each in pods if uses(each, name)]
    if not users or SHARED & set(modes):
        return manifest
    if modes == OF_ONE:
        raise UserError(
            f"the claim {name} is ReadWriteOncePod, and pod {users[0]['metadata']['name']} has it: wait until that one "
            "has ended, or suspend its job"
        )
    nodes = sorted({each["spec"]["nodeName"] for each in users})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": nodes[:1]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    # Another selector could only contradict.
    spec = {field: value for field, value in manifest["spec"].items() if field != "nodeSelector"}
    return {**manifest, "spec": {**spec, "affinity": {"nodeAffinity": required}}}


def uses(pod: Manifest, claim: str) -> bool:
    """Whether the pod has the claim on a node."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    return claim in map(claim_of, spec.get("volumes") or ())


async def delete_left(api: Api, namespace: str, labels: dict[str, str], now: datetime) -> None:
    """Delete the pods with these labels whose command was killed."""
    collection = core_path(namespace, "pods")
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    pods, _ = await api.list(collection, [("labelSelector", selector)])
    for pod in pods:
        if is_left(pod, now):
            with suppress(ApiError):
                await api.request("DELETE", object_path(collection, pod["metadata"]["name"]))


def is_left(pod: Manifest, now: datetime) -> bool:
    """Whether no command waits for the pod any more: it has ended, or has not started in the time that one waits."""
    phase = (pod.get("status") or {}).get("phase")
    age = now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return phase in ("Failed", "Succeeded") or (phase == "Pending" and age.total_seconds() > START_SECONDS)


def volume_of(job: Job, what: str, by_bucket: str) -> Storage:
    """The job's storage; UserError if it has none that a pod of `what` can mount. `by_bucket` is what to do with a
    bucket, with its URL in place of {}."""
    if job.spec is None:
        raise UserError(f"the spec of job {job.name} cannot be read by this version of the client")
    storage = job.spec.storage
    if storage is None:
        raise UserError(f"job {job.name} has no spec.storage for {what}: set it, and write below it")
    if storage.volume is None:
        url = job_directory(parse_job(job.raw), storage)
        raise UserError(
            f"the storage of job {job.name} is {storage.uri}, which no pod mounts: {by_bucket.format(url)} with your "
            "own credentials"
        )
    if set(storage.volume) & set(OF_ONE_POD):
        raise UserError(f"the storage of job {job.name} belongs to one pod: {what} needs a volume that pods share")
    return storage


async def first(work: Coroutine[Any, Any, T], failed: "asyncio.Future[None]") -> T:
    """The result of the work; the error of `failed` if that comes first."""
    task = asyncio.ensure_future(work)
    both: set[asyncio.Future[Any]] = {task, failed}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            failed.result()
        return await task
    finally:
        task.cancel()
        # A generator that the work reads can be closed only afterwards.
        await asyncio.gather(task, return_exceptions=True)


async def states(watch: Watch, what: str, state_of: Callable[[Manifest], str]) -> AsyncGenerator[str, None]:
    """The state of the pod, at each change of the state. UserError if the pod is deleted, or from `state_of`."""
    told = None
    async with aclosing(watch.changes()) as changes:
        async for change in changes:
            if change.type == "LISTED":
                continue
            if change.type == "DELETED":
                raise UserError(f"the pod of {what} was deleted")
            state = state_of(change.object)
            if state != told:
                told = state
                yield state


async def until_ended(states: AsyncGenerator[str, None]) -> None:
    """Returns when the states end, and raises the error of a pod that has ended."""
    async for _ in states:
        pass


async def until_running(
    pods: AsyncGenerator[str, None],
    events: Watch,
    what: str,
    notify: Callable[[str], None],
    quiet: float,
) -> None:
    """Wait until the state of the pod is "", and tell what it waits for: by its status, and by the warnings about it,
    each `quiet` seconds later. UserError with the last of these when the time is over."""
    told, later = [""], list[asyncio.TimerHandle]()

    def tell(text: str) -> None:
        if text not in told:
            told.append(text)
            later.append(asyncio.get_running_loop().call_later(quiet, notify, f"the pod of {what} waits: {text}"))

    warnings = asyncio.create_task(_tell_warnings(events, tell))
    try:
        async with asyncio.timeout(START_SECONDS):
            async for state in pods:
                if not state:
                    return
                tell(state)
    except TimeoutError:
        raise UserError(f"the pod of {what} does not run after {START_SECONDS:.0f} s: {told[-1]}") from None
    finally:
        for each in later:
            each.cancel()
        warnings.cancel()
        await asyncio.gather(warnings, return_exceptions=True)


async def _tell_warnings(events: Watch, tell: Callable[[str], None]) -> None:
    # Without the right to read events the status of the pod alone tells.
    with suppress(ApiError):
        async with aclosing(events.changes()) as changes:
            async for change in changes:
                if change.object.get("type") == "Warning":
                    tell(" ".join(Event.of(change.object).message.split()))


def container_state(pod: Manifest, name: str) -> Manifest:
    """The status of the pod's container, empty before there is one."""
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((each for each in found if each["name"] == name), {})


def ended(pod: Manifest, name: str) -> str:
    """How the container or the pod has ended; "" if it has not."""
    status = pod.get("status") or {}
    if stopped := (container_state(pod, name).get("state") or {}).get("terminated"):
        last = str(stopped.get("message") or stopped.get("reason") or "").strip().splitlines()[-1:]
        return f"exit code {stopped.get('exitCode')}: {' '.join(last)}"
    if status.get("phase") in ("Failed", "Succeeded"):
        return str(status.get("message") or status.get("reason"))
    return ""


def waits_for(pod: Manifest, name: str, what: str) -> str:
    """What the container waits for; "" if nothing tells. UserError if it would wait for ever."""
    waiting = (container_state(pod, name).get("state") or {}).get("waiting") or {}
    conditions = (pod.get("status") or {}).get("conditions") or ()
    unscheduled: Manifest = next((each for each in conditions if each.get("status") == "False"), {})
    text = str(waiting.get("message") or waiting.get("reason") or unscheduled.get("message") or "")
    if (reason := waiting.get("reason")) in HOPELESS:
        raise UserError(f"the pod of {what} cannot start: {reason}: {text}")
    return text
