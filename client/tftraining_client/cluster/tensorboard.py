"""TensorBoard over a job's storage: a pod of its own, reached through a port-forward, deleted at the end."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from tftraining_api.kube.api import Api
from tftraining_api.manifests.tensorboard import NAME, PORT, tensorboard_pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.spec import Manifest
from tftraining_client.cluster.helper_pod import (
    container_state,
    ended,
    first,
    helper_pod,
    states,
    until_ended,
    volume_of,
    waits_for,
)
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.paths import core_path, object_path
from tftraining_client.cluster.port_forward import HOST, forwarded
from tftraining_client.cluster.watching import Watch
from tftraining_client.errors import UserError

# The pod ends then, also if the client was killed.
HOURS = 8
BY_BUCKET = "run tensorboard --logdir {}"


async def serve(
    api: Api, job: Job, image: str, port: int, notify: Callable[[str], None], watch: Callable[[str, str], Watch]
) -> AsyncGenerator[str, None]:
    """The address, once TensorBoard answers. Ends when the pod has ended; the pod goes when the generator is closed."""
    storage, parsed = volume_of(job, "TensorBoard", BY_BUCKET), parse_job(job.raw)
    assert parsed.spec is not None
    manifest = tensorboard_pod(parsed, parsed.spec, storage, image, HOURS * 3600)
    collection = core_path(job.namespace, "pods")
    async with helper_pod(api, job.namespace, manifest) as name:
        notify(f"pod {name} is created; it goes with this command, at the latest after {HOURS} h")
        async with aclosing(states(watch(collection, name), "TensorBoard", pod_state)) as changes:
            async for waiting in changes:
                if not waiting:
                    break
                notify(f"pod {name}: {waiting}")
            async with forwarded(api, object_path(collection, name), PORT, port) as (local, forward):
                yield f"http://{HOST}:{local}/"
                await first(until_ended(changes), forward.failed)


def pod_state(pod: Manifest) -> str:
    """What the pod waits for; "" if TensorBoard answers; UserError if the pod has ended."""
    if how := ended(pod, NAME):
        raise UserError(f"TensorBoard has ended: {how}; choose an image with TensorBoard by --image")
    return (
        "" if container_state(pod, NAME).get("ready") else waits_for(pod, NAME, "TensorBoard") or "TensorBoard starts"
    )
