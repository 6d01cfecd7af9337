"""TensorBoard over a job's storage: a pod of its own, reached through a port-forward, deleted at the end."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.manifests.tensorboard import NAME, PORT, tensorboard_pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.spec import Manifest, Storage
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.pod_logs import pods_path
from tftraining_client.cluster.port_forward import HOST, forwarded
from tftraining_client.cluster.watching import Watch
from tftraining_client.errors import UserError

# The pod ends then, also if the client was killed.
HOURS = 8
OF_ONE_POD = ("emptyDir", "ephemeral")


def storage_of(job: Job) -> Storage:
    """The job's storage; UserError if it has none that another pod can mount."""
    if job.spec is None:
        raise UserError(f"the spec of job {job.name} cannot be read by this version of the client")
    storage = job.spec.storage
    if storage is None:
        raise UserError(f"job {job.name} has no spec.storage for TensorBoard to read: set it, and log below it")
    if set(storage.volume) & set(OF_ONE_POD):
        raise UserError(f"the storage of job {job.name} belongs to one pod: TensorBoard needs a volume that pods share")
    return storage


async def serve(
    api: Api, job: Job, image: str, port: int, notify: Callable[[str], None], watch: Callable[[str, str], Watch]
) -> AsyncGenerator[str, None]:
    """The address, once TensorBoard answers. Ends when the pod has ended; the pod goes when the generator is closed."""
    storage, parsed = storage_of(job), parse_job(job.raw)
    assert parsed.spec is not None
    manifest = tensorboard_pod(parsed, parsed.spec, storage, image, HOURS * 3600)
    collection = pods_path(job.namespace)
    pod = await api.request("POST", collection, manifest, [("fieldValidation", "Strict")])
    name = pod["metadata"]["name"]
    notify(f"pod {name} is created; it goes with this command, at the latest after {HOURS} h")
    try:
        async with aclosing(_states(watch(collection, name))) as states:
            async for waiting in states:
                if not waiting:
                    break
                notify(f"pod {name}: {waiting}")
            async with forwarded(api, f"{collection}/{name}", PORT, port) as (local, forward):
                yield f"http://{HOST}:{local}/"
                await _first(_ended(states), forward.failed)
    finally:
        with suppress(ApiError):
            await api.request("DELETE", f"{collection}/{name}", {"gracePeriodSeconds": 0})


async def _first(work: Any, failed: "asyncio.Future[None]") -> None:
    """Wait until the work is done; raises the error of `failed` if that comes first."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        task.cancel()
        # The generator that the work reads can be closed only afterwards.
        await asyncio.gather(task, return_exceptions=True)


async def _ended(states: AsyncGenerator[str, None]) -> None:
    async for _ in states:
        pass


async def _states(watch: Watch) -> AsyncGenerator[str, None]:
    """What the pod waits for, at each change, and "" while TensorBoard answers. UserError if the pod ends or fails."""
    told = None
    async with aclosing(watch.changes()) as changes:
        async for change in changes:
            if change.type == "LISTED":
                continue
            if change.type == "DELETED":
                raise UserError("the pod of TensorBoard was deleted")
            state = pod_state(change.object)
            if state != told:
                told = state
                yield state


def pod_state(pod: Manifest) -> str:
    """What the pod waits for; "" if TensorBoard answers; UserError if the pod has ended."""
    status = pod.get("status") or {}
    container: Manifest = next((each for each in status.get("containerStatuses") or () if each["name"] == NAME), {})
    state = container.get("state") or {}
    if ended := state.get("terminated"):
        last = str(ended.get("message") or ended.get("reason") or "").strip().splitlines()[-1:]
        raise UserError(
            f"TensorBoard has ended with exit code {ended.get('exitCode')}: {' '.join(last)}; choose an image with "
            "TensorBoard by --image"
        )
    if status.get("phase") in ("Failed", "Succeeded"):
        raise UserError(f"the pod of TensorBoard has ended: {status.get('message') or status.get('reason')}")
    if container.get("ready"):
        return ""
    waiting = state.get("waiting") or {}
    unscheduled: Manifest = next((each for each in status.get("conditions") or () if each.get("status") == "False"), {})
    texts = (waiting.get("message"), waiting.get("reason"), unscheduled.get("message"), "TensorBoard starts")
    return str(next(text for text in texts if text))
