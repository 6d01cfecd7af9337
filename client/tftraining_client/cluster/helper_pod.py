"""The short-lived pod of a command: created, followed until it runs, and deleted at the end, also after Ctrl-C."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.spec import Manifest
from tftraining_client.cluster.models import Event
from tftraining_client.cluster.paths import object_path
from tftraining_client.cluster.watching import Watch
from tftraining_client.errors import UserError

# Reasons of a waiting container that time does not mend.
HOPELESS = (
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
)


@asynccontextmanager
async def helper_pod(api: Api, collection: str, manifest: Manifest) -> AsyncIterator[str]:
    """Create the pod; its name. The pod is deleted at the end, with its own grace period: its program may tidy up."""
    pod = await api.request("POST", collection, manifest, [("fieldValidation", "Strict")])
    name = pod["metadata"]["name"]
    try:
        yield name
    finally:
        with suppress(ApiError):
            await api.request("DELETE", object_path(collection, name))


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


async def until_running(
    pods: AsyncGenerator[str, None], events: Watch, what: str, notify: Callable[[str], None], seconds: float
) -> None:
    """Wait until the state of the pod is "", and tell what it waits for: by its status, and by the warnings about it.
    UserError with the last of these when the time is over."""
    told = [""]

    def tell(text: str) -> None:
        if text not in told:
            told.append(text)
            notify(f"the pod of {what} waits: {text}")

    warnings = asyncio.create_task(_tell_warnings(events, tell))
    try:
        async with asyncio.timeout(seconds):
            async for state in pods:
                if not state:
                    return
                tell(state)
    except TimeoutError:
        raise UserError(f"the pod of {what} does not run after {seconds:.0f} s: {told[-1]}") from None
    finally:
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
