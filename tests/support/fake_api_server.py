"""An HTTP server that answers as a test tells it to, for the faults that a real API server does not show on demand.

It knows nothing of Kubernetes: what is right behaviour is tested on a real API server (tests/control_plane).
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from tftraining_api.kube.api import Api

Manifest = dict[str, Any]


class Answer(NamedTuple):
    """A body (JSON unless it is bytes). `hold` keeps the answer open after its body, as a watch does."""

    body: Any = b""
    status: int = 200
    hold: bool = False


class FakeServer:
    """Answers each path in the order given; the last answer is repeated. `asked` holds method, path and query, `sent`
    what came with a PATCH or a DELETE. `url` is its address."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.sent: list[Manifest] = []
        self._answers: defaultdict[str, list[Answer]] = defaultdict(list)

    def on(self, what: str, *answers: Answer) -> None:
        """Answer `GET /path`, or `WATCH /path` for a GET with watch=true; `GET /path?SELECTOR` for a field selector."""
        self._answers[what] = list(answers)

    def count(self, what: str) -> int:
        """How often that was asked."""
        return sum(1 for method, path, _ in self.asked if f"{method} {path}" == what)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        method = "WATCH" if request.query.get("watch") == "true" else request.method
        self.asked.append((method, request.path, dict(request.query)))
        if method in ("PATCH", "DELETE") and request.can_read_body:
            self.sent.append(await request.json())
        what = f"{method} {request.path}"
        selected = f"{what}?{request.query.get('fieldSelector')}"
        answers = self._answers[selected if selected in self._answers else what]
        answer = answers.pop(0) if len(answers) > 1 else answers[0] if answers else Answer({}, 404)
        response = web.StreamResponse(status=answer.status)
        await response.prepare(request)
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        await response.write(body)
        if answer.hold:
            await asyncio.sleep(60)
        return response


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[FakeServer, Api]]:
    """A running server, and the operator's connection to it."""
    fake, app = FakeServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    api = Api(RESTClientObject(Configuration(host=fake.url)))
    try:
        yield fake, api
    finally:
        await api.close()
        await runner.cleanup()


def pod(name: str, version: int, uid: str = "", job: str = "job") -> Manifest:
    """A pod of the job, as short as the store takes it."""
    labels = {"tftraining.dev/job-name": job}
    meta = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version), "labels": labels}
    return {"kind": "Pod", "metadata": meta}


def job(name: str, version: int, uid: str = "") -> Manifest:
    """A job, as short as `Jobs` takes it."""
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version)}}


def listing(items: Sequence[Manifest], version: int, more: str = "") -> Answer:
    """One page of a list."""
    return Answer({"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)})


def events(*pairs: tuple[str, Manifest], hold: bool = False) -> Answer:
    """The lines of a watch."""
    lines = [json.dumps({"type": kind, "object": raw}) for kind, raw in pairs]
    return Answer("\n".join([*lines, ""]).encode(), hold=hold)


GONE = ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
