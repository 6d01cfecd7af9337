"""The archive of a large program goes into the storage of the job that is about to be created.

A pod of its own with the volume takes the archive through a port-forward (tftraining_client/code/receive_upload.py).
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from posixpath import join
from typing import Any

import aiohttp

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.manifests.code_upload_pod import NAME, code_upload_pod
from tftraining_api.model.spec import Manifest
from tftraining_client.cluster.helper_pod import (
    START_SECONDS,
    STORAGE_REMEDIES,
    container_state,
    delete_left,
    ended,
    helper_pod,
    states,
    until_running,
    waits_for,
)
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.paths import core_path, object_path
from tftraining_client.cluster.port_forward import connected, received, send
from tftraining_client.cluster.watching import Watch
from tftraining_client.code import receive_upload
from tftraining_client.code.package import Package, mebibytes
from tftraining_client.errors import UserError

WHAT = "the upload"
SCRIPT = Path(receive_upload.__file__)
# The program in the pod listens soon after the container's start; on a busy node that takes seconds.
ANSWER_SECONDS, PAUSE_SECONDS = 60.0, 0.3
ATTEMPTS = 5  # after an interruption
LAST_SECONDS = 5.0
CHUNK = 128 << 10
REMEDIES = {
    **STORAGE_REMEDIES,
    "ELOOP": "a link in the place of the archives is not followed, remove it",
    "ENOTDIR": "a link or a file in the place of the directory of the archives is not followed, remove it",
}
# In place of the state of a pod: the program has ended with 0, so the archive is in the storage.
STORED = "stored"
Progress = Callable[[int, int], None]
Watches = Callable[[str, str], tuple[Watch, Watch]]


class _ClosedError(Exception):
    """The connection has ended: nothing listens in the pod yet, or the network fails."""


class _CutError(Exception):
    """The connection ended while the archive was sent."""


class _ProgressError(Exception):
    """The function `progress` of the caller has raised the cause."""


async def upload(
    api: Api, job: Job, package: Package, notify: Callable[[str], None], progress: Progress, watches: Watches
) -> None:
    """Put the archive where `spec.code.storage` of the job says. `progress` is called with the bytes sent and those of
    the archive; `watches` gives the watches of a pod and of its events. ApiError, or UserError with the cause."""
    manifest, collection = upload_pod(job, package), core_path(job.namespace, "pods")
    # The API server has filled in the time of the creation, though it has only checked the job.
    await delete_left(api, job.namespace, manifest["metadata"]["labels"], job.created)
    async with helper_pod(api, job.namespace, manifest) as name:
        notify(f"pod {name} takes the code ({mebibytes(len(package.data))}) into the storage of the job")
        pods, events = watches(collection, name)
        async with aclosing(states(pods, WHAT, pod_state)) as running:
            await until_running(running, events, WHAT, notify, START_SECONDS)
            state = await _while_running(running, send_package(api, object_path(collection, name), package, progress))
    if state == "present":
        notify("the storage has this code already")


def upload_pod(job: Job, package: Package) -> Manifest:
    """The manifest of the pod. UserError for a job without the fields that name the place of the archive."""
    spec = job.spec
    if spec is None or spec.storage is None or spec.code is None or spec.code.storage is None:
        raise UserError(f"job {job.name} has no spec.code.storage in a spec.storage: the code cannot be uploaded")
    path = join(spec.storage.mount_path, spec.code.storage.path)
    arguments = [path, package.digest, str(len(package.data))]
    return code_upload_pod(job.name, spec, spec.storage, SCRIPT.read_text(encoding="utf-8"), arguments)


def pod_state(pod: Manifest) -> str:
    """What the pod waits for; "" if its program runs, STORED if it has ended with 0; UserError if it has failed."""
    state = container_state(pod, NAME).get("state") or {}
    if (state.get("terminated") or {}).get("exitCode") == 0:
        return STORED
    if how := ended(pod, NAME):
        raise _failed(how)
    if "running" in state:
        return ""
    return waits_for(pod, NAME, WHAT) or "it starts"


def _failed(how: str) -> UserError:
    """The error of a pod that has failed: that in its last line, if its answer to the client was lost."""
    with suppress(ValueError, AttributeError, KeyError):
        return _refusal(json.loads(how.partition(": ")[2]))
    hint = "" if how.endswith("submit again") else "; the image needs Python 3.9 or later"
    return UserError(f"the pod of {WHAT} has ended: {how}{hint}")


async def _while_running(states: AsyncGenerator[str, None], sending: Coroutine[Any, Any, str]) -> str:
    """The result of sending. If the pod ends before, its own: the answer may be lost."""
    task, watching = asyncio.create_task(sending), asyncio.create_task(_until_stored(states))
    try:
        await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
        # The pod ends as soon as it has answered: the answer may be on its way.
        await asyncio.wait({task}, timeout=LAST_SECONDS)
        if watching.done() and (not task.done() or task.exception()):
            return watching.result()
        return await task
    finally:
        for each in (task, watching):
            each.cancel()
        await asyncio.gather(task, watching, return_exceptions=True)


async def _until_stored(states: AsyncGenerator[str, None]) -> str:
    async for state in states:
        if state == STORED:
            break
    return STORED


async def send_package(api: Api, pod: str, package: Package, progress: Progress) -> str:
    """Send the archive, again after an interruption; the state of the storage before: `present` or `stored`."""
    deadline, cuts = time.monotonic() + ANSWER_SECONDS, 0
    while True:
        try:
            return await _send_once(api, pod, package, progress)
        except _ProgressError as error:
            raise error.__cause__ or error from None
        except _CutError as error:
            deadline, cuts = time.monotonic() + ANSWER_SECONDS, cuts + 1
            if cuts == ATTEMPTS:
                raise UserError(
                    f"the upload was cut {cuts} times ({error}): the storage has no usable part of it; try again"
                ) from error
        except (_ClosedError, ApiError, aiohttp.ClientError, OSError) as error:
            if isinstance(error, ApiError) and error.status == 401:
                raise
            if time.monotonic() > deadline:
                raise UserError(f"the pod of {WHAT} does not answer for {ANSWER_SECONDS:.0f} s: {error}") from error
        await asyncio.sleep(PAUSE_SECONDS)


async def _send_once(api: Api, pod: str, package: Package, progress: Progress) -> str:
    """_CutError if the connection ends after its first answer."""
    async with connected(api, pod, receive_upload.PORT) as socket, aclosing(_answers(received(socket))) as answers:
        if (state := _state(await anext(answers))) != "wanted":
            return state
        sending = asyncio.create_task(_send_all(socket, package.data, progress))
        answering = asyncio.ensure_future(anext(answers))
        try:
            # An error in the pod, such as a full volume, comes while the archive is sent.
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await sending
            return _state(await answering)
        except (_ClosedError, aiohttp.ClientError, OSError) as error:
            raise _CutError(str(error)) from error
        finally:
            for each in (sending, answering):
                each.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)


async def _send_all(socket: aiohttp.ClientWebSocketResponse, data: bytes, progress: Progress) -> None:
    """_ProgressError; an end of the connection is told by the reader of the answers."""
    for start in range(0, len(data), CHUNK):
        try:
            await send(socket, data[start : start + CHUNK])
        except (aiohttp.ClientError, OSError):
            return
        try:
            progress(min(start + CHUNK, len(data)), len(data))
        except Exception as error:
            raise _ProgressError from error


async def _answers(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[Any, None]:
    """The lines of JSON from the pod. _ClosedError at the end."""
    rest = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)
    raise _ClosedError("the connection to the pod has ended")


def _state(answer: dict[str, str]) -> str:
    """The state in an answer; UserError for an error."""
    if "error" in answer:
        raise _refusal(answer)
    return answer["state"]


def _refusal(answer: dict[str, str]) -> UserError:
    remedy = REMEDIES.get(answer.get("errno", ""))
    text = f"the storage of the job does not take the code: {answer['error']}"
    return UserError(text + (f": {remedy}" if remedy else ""))
