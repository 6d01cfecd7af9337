"""A dashboard over invented jobs, for the tests of its page, and for the pictures of the documentation:

python -m tests.support.client.dashboard_page docs/pictures
"""

import asyncio
import math
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support import fake_api_server
from tests.support.browser import Page, chromium
from tests.support.fake_api_server import Answer, FakeServer
from tftraining_client import AsyncClient
from tftraining_client.cluster.connection import Connection
from tftraining_client.commands.dashboard.feeds import Feeds
from tftraining_client.commands.dashboard.server import serving

JOBS = "/apis/tftraining.dev/v1/namespaces/team/tftrainingjobs"
CORE = "/api/v1/namespaces/team"
EPOCHS, STEPS = 40, 100
RESTARTS = ((9, "Killed"), (23, "PodDeleted"), (31, "Error"))
SECONDS = 20


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds").replace("+00:00", "Z")


def job(name: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", "creationTimestamp": ago(900)}
    return {
        "metadata": metadata,
        "spec": {"replicaSpecs": {"worker": {"replicas": 2}}},
        "status": {"phase": phase, "startTime": ago(890), "attempt": 1, **status},
    }


def digits(text: str = "") -> dict[str, Any]:
    """A job that has trained for a while; `text` stands wherever a user or a program may write."""
    epochs = list(range(1, 34))
    began = len(epochs) * SECONDS
    history = {
        "startTime": ago(began),
        "steps": [epoch * STEPS for epoch in epochs],
        "epochs": epochs,
        "seconds": [epoch * SECONDS for epoch in epochs],
        "metrics": {
            f"accuracy{text}": [round(0.98 - 0.7 * math.exp(-epoch / 7), 4) for epoch in epochs],
            f"loss{text}": [
                round(2.2 * math.exp(-epoch / 6) + 0.05 + 0.02 * math.sin(epoch * 2), 4) for epoch in epochs
            ],
        },
        "restarts": [
            {"time": ago(began - at * SECONDS), "step": at * STEPS + 40, "reason": reason} for at, reason in RESTARTS
        ],
    }
    at, _ = RESTARTS[-1]
    return job(
        "digits",
        reason="Training",
        message=f"2 replicas training{text}",
        ready="2/2",
        restarts={"counted": 2, "disruptions": 1, "inPlace": 2},
        replicas={"worker": {"desired": 2, "active": 2, "ready": 2}},
        history=history,
        lastRestart={
            "time": ago(began - at * SECONDS),
            "pod": "digits-worker-1",
            "reason": "Error",
            "exception": f"ValueError: boom{text}",
            "downSeconds": 1.3,
            "lostSteps": 4,
            "resumedFromStep": 3136,
        },
        progress={
            "display": f"epoch 33/{EPOCHS}",
            "epoch": 33,
            "epochs": EPOCHS,
            "step": 33 * STEPS,
            "stepsPerEpoch": STEPS,
            "stepsPerSecond": 5.1,
            "metrics": {f"accuracy{text}": 0.9737, f"loss{text}": 0.0641},
        },
    )


def pod(index: int, text: str = "") -> dict[str, Any]:
    labels = {"job-name": "digits", "role": "worker", "index": str(index), "attempt": "1"}
    return {
        "metadata": {
            "name": f"digits-worker-{index}",
            "uid": f"pod-{index}",
            "resourceVersion": "1",
            "creationTimestamp": ago(880 - 500 * index),
            "labels": {f"tftraining.dev/{name}": value for name, value in labels.items()},
        },
        "spec": {"nodeName": f"node-{index + 1}{text}"},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "tensorflow", "ready": True, "state": {"running": {}}}],
        },
    }


def event(number: int, seconds: float, kind: str, reason: str, message: str) -> dict[str, Any]:
    metadata = {"name": f"event-{number}", "uid": f"event-{number}", "resourceVersion": "1"}
    return {"metadata": metadata, "lastTimestamp": ago(seconds), "type": kind, "reason": reason, "message": message}


def many_jobs(number: int) -> list[dict[str, Any]]:
    """Jobs with long names and messages, of all phases: every tenth has failed."""
    phases = ("Running", "Succeeded", "Running", "Suspended", "Starting", "Running", "Pending", "Restarting", "Running")
    return [
        job(
            f"image-classification-with-a-long-name-of-a-team-number-{place:03}",
            "Failed" if place % 10 == 9 else phases[place % 10],
            reason="PodsNotReady",
            message=f"worker-{place}: the image registry.example/team/{'very-long-' * 6}name:1.2.3 cannot be pulled",
            ready=f"{place}/128",
            restarts={"counted": place * 7 % 100},
            progress={"display": f"epoch {place}/100", "epoch": place, "epochs": 100},
        )
        for place in range(number)
    ]


def tell(fake: FakeServer, text: str = "", more: int = 0) -> None:
    """Let the API server have the jobs, and the pods, events and logs of one of them."""

    def listed(*items: Any) -> Answer:
        return Answer({"metadata": {"resourceVersion": "1"}, "items": list(items)})

    others = (
        job("mnist", "Succeeded", message="the chief has succeeded", ready="0/3", progress={"display": "epoch 10/10"}),
        job("resnet", "Failed", reason="SameFailure", message="worker-1: OOMKilled three times in a row", ready="0/8"),
        job("wide-and-deep", "Starting", reason="PodsStarting", message="waiting for ps-0 to start", ready="3/4"),
    )
    hold = Answer(b"", hold=True)
    fake.on(f"GET {JOBS}", listed(digits(text), *others, *many_jobs(more)))
    fake.on(f"GET {JOBS}?metadata.name=digits", listed(digits(text)))
    fake.on(f"GET {JOBS}/digits", Answer(digits(text)))
    fake.on(f"GET {CORE}/pods", listed(pod(0, text), pod(1, text)))
    events = (
        event(1, 885, "Normal", "Started", "creating the Service and the pods"),
        event(2, 40, "Warning", "Error", f"worker-1: ValueError: boom{text}; the gang restarts from its last backup"),
        event(3, 38, "Normal", "Training", "the gang trains again after 1.3 s; 4 steps lost"),
    )
    fake.on(f"GET {CORE}/events", listed(*events))
    for path in (JOBS, f"{CORE}/pods", f"{CORE}/events"):
        fake.on(f"WATCH {path}", hold)
    for index in (0, 1):
        lines = [f"{ago(30 - 10 * each)} epoch {each + 31}/{EPOCHS} {text}\n".encode() for each in range(3)]
        fake.on(f"GET {CORE}/pods/digits-worker-{index}/log", Answer(b"".join(lines), hold=True))


@asynccontextmanager
async def served(text: str = "", more: int = 0) -> AsyncIterator[tuple[str, Feeds]]:
    """The address of a dashboard over these jobs, and its feeds."""
    async with fake_api_server.serving() as (fake, api):
        tell(fake, text, more)
        client = AsyncClient(namespace="team")
        client._connection = Connection(api, "https://cluster.example", "production", "team")
        async with Feeds(client, "team", "production") as feeds, serving(feeds, 0) as url:
            yield url, feeds


@asynccontextmanager
async def dashboard(text: str = "", more: int = 0) -> AsyncIterator[str]:
    """The address of a dashboard over these jobs."""
    async with served(text, more) as (url, _):
        yield url


async def follow_log(page: Page) -> None:
    """Press the button, and wait for lines of both replicas."""
    await page.value("document.getElementById('follow').click()")
    await page.wait_for("document.querySelectorAll('#log .replica').length >= 6")


async def pictures(scratch: Path) -> dict[str, bytes]:
    """The pictures of the documentation by name."""
    found = {}
    async with dashboard() as url, chromium(scratch) as page:
        for name, width, dark in (("dashboard", 1000, False), ("dashboard-dark", 400, True)):
            await page.open("about:blank")
            await page.open(f"{url}#/team/digits", width, 900, dark)
            await page.wait_for("document.querySelectorAll('figure').length === 2")
            found[name] = await page.picture()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        for name, picture in asyncio.run(pictures(Path(directory))).items():
            (Path(sys.argv[1]) / f"{name}.png").write_bytes(picture)
