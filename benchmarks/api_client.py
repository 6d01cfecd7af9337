"""A bare concurrent client of the API server, and a watch that sees when objects appear.

The client is the floor for the operator, so it only sends bytes that were encoded beforehand. The operator must never
use this module, and the module must never list in a loop: that would slow down the measured operator.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import yaml

Manifest = dict[str, Any]
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"


class Client:
    """`async with Client(kubeconfig) as client:`. An answer other than 2xx raises RuntimeError with its text."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._ssl = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl), timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        """Send one request; the body of the answer. Pass headers as `content_type="…"`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Content-Type": "application/json", **self._headers, **named}
        async with self._session.request(method, self._server + path, data=body, headers=sent) as answer:
            text = await answer.read()
            if not answer.ok:
                raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
            return text

    async def send_all(self, requests: Iterable[tuple[str, str, bytes]], concurrency: int) -> None:
        """Send requests (method, path, body), `concurrency` of them at a time. A PATCH is a merge patch."""
        waiting = iter(requests)

        async def sender() -> None:
            for method, path, body in waiting:
                kind = MERGE_PATCH if method == "PATCH" else "application/json"
                await self.request(method, path, body, content_type=kind)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(sender())

    async def stream(self, path: str, accept: str, version: str = "") -> aiohttp.ClientResponse:
        """Open a watch from `version` on, or from now on; when this returns, the server has accepted the watch."""
        if not version:
            listed = msgspec.json.decode(await self.request("GET", f"{path}?limit=1", accept=METADATA_ONLY_LIST))
            version = listed["metadata"]["resourceVersion"]
        url = f"{self._server}{path}?watch=true&resourceVersion={version}"
        answer = await self._session.get(url, headers={**self._headers, "Accept": accept}, read_bufsize=2**21)
        if not answer.ok:
            raise RuntimeError(f"watching {path}: {answer.status} {await answer.text()}")
        return answer


class Watch:
    """The present objects of one kind in a namespace: `async with Watch(client, path) as seen:`.

    The API server ends the watch of a client that falls behind, so a watch that ends goes on where it was.
    """

    def __init__(self, client: Client, path: str, accept: str = METADATA_ONLY) -> None:
        self._client = client
        self._path = path
        self._accept = accept
        self._changed = asyncio.Event()
        self.objects: dict[str, Manifest] = {}

    async def __aenter__(self) -> Self:
        self._answer = await self._client.stream(self._path, self._accept)
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._answer.close()

    async def _read(self) -> None:
        version = ""
        while True:
            async for line in self._answer.content:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(f"watching {self._path}: {event['object'].get('message')}")
                version = event["object"]["metadata"]["resourceVersion"]
                self._take(event)
            self._answer.close()
            print(f"the watch of {self._path} has ended; it goes on after {version or 'now'}", flush=True)
            self._answer = await self._client.stream(self._path, self._accept, version)

    def check(self) -> None:
        """Raise the error with which the watch has ended for good."""
        if self._reader.done():
            self._reader.result()

    def _take(self, event: Manifest) -> None:
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = event["object"]
        self._changed.set()

    async def until(self, reached: Callable[[dict[str, Manifest]], bool], seconds: float = 120.0) -> float:
        """Wait until `reached` is true of the objects; the time (time.perf_counter) of that. TimeoutError if never."""
        async with asyncio.timeout(seconds):
            while not reached(self.objects):
                self._changed.clear()
                self.check()
                await self._changed.wait()
        return time.perf_counter()
