"""Requests to the API server with raw JSON in and out, through the official client's transport.

The client's generated models are not used: they cost memory and time per object, and drop unknown fields. Nor is its
ApiClient, which is there for them, and imports pydantic.
"""

import asyncio
import ipaddress
import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import yaml
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from multidict import CIMultiDict

from tftraining_api.kube.denials import is_denial
from tftraining_api.kube.pages import AT_ONCE, FIRST_PAGE, Page, next_limit
from tftraining_api.kube.server_clock import ServerClock
from tftraining_api.kube.server_warnings import ServerWarnings
from tftraining_api.model.spec import Manifest

TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
# Bookmarks come every minute: a longer silence means a dead connection, not a quiet cluster.
WATCH_SILENCE = 90
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SILENCE)
# A program may be silent for hours, and so may a dead connection: after this silence the reader opens the log again.
LOG_SILENCE = 300
STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=LOG_SILENCE)
# A request that an overloaded API server puts off is sent again after the pause that the server asks for, as client-go
# does. A longer pause is left to the caller.
TRIES = 5
LONGEST_PAUSE = 10.0
PAUSE_JITTER = 0.2
# What a caller is told at most: a proxy in front of the API server may ask for an hour.
MOST_ASKED = 60.0
# For connections that a cancelled request has left in their TLS handshake, at the end.
SECONDS_TO_CLOSE = 0.1
USER_AGENT = {"User-Agent": "tftraining"}
JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
# Decoding a larger answer holds the event loop for a millisecond and more.
LARGE_ANSWER = 2**17
Query = list[tuple[str, str]]
Decoded = TypeVar("Decoded")


class ApiError(Exception):
    """A request to the API server failed. `status` is the HTTP status, 0 if there was no answer; `retry_after` the
    seconds that the server asks to wait before another try."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.retry_after = retry_after
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def exists(self) -> bool:
        """Whether a creation failed because the name is taken. Concurrent updates of a ResourceQuota cause a 409 too,
        with reason Conflict, though no object has the name (kubernetes#67761)."""
        return self.status == 409 and self.reason != "Conflict" and not is_denial(self.message)

    @property
    def gone(self) -> bool:
        """Whether the object to change or delete does not exist (404), or another object has the name (409 on the UID).
        A webhook's denial with either code does not count."""
        return self.status in (404, 409) and not is_denial(self.message)


class Api:
    """A connection to one API server. `requests` counts the requests sent by HTTP method; `inside` is whether this
    process runs in the cluster. `refused` is called after a 401: whether there is another token to try. `answered` is
    called with the method (WATCH for a watch, PROXY for a request to a pod), the HTTP status of the answer (0 for none)
    and the seconds until its head came. `retry_seconds` is the time that one request may spend in pauses for which the
    server asks; longer pauses are left to the caller. `clock` is the server's time. `headers` go with each request."""

    def __init__(
        self,
        transport: RESTClientObject,
        inside: bool = False,
        refused: Callable[[], Awaitable[bool]] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._transport = transport
        self._refused = refused
        self._own_headers = tuple(headers)
        self.inside = inside
        self.retry_seconds = TRIES * LONGEST_PAUSE
        self.requests: Counter[str] = Counter()
        self.clock = ServerClock()
        self.warnings = ServerWarnings()
        self.answered: Callable[[str, int, float], None] = lambda method, code, seconds: None
        self._cancelled = False
        self._decoding = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()
        # A request that was cancelled may have left a connection in its TLS handshake; asyncio closes the socket only
        # after the answer of the server.
        await asyncio.sleep(SECONDS_TO_CLOSE if self._cancelled else 0)

    async def request(self, method: str, path: str, body: Any = None, query: Query | None = None) -> Manifest:
        """Send one request and return the object in the answer. Raises ApiError for any status but 2xx. A body is an
        object, or its JSON as msgspec.Raw."""
        text = await self._text(method, path, body, query or [])
        if len(text) < LARGE_ANSWER:
            return _decoded(text, Manifest)
        # One in each turn of the event loop: many large answers may arrive at once.
        async with self._decoding:
            await asyncio.sleep(0)
            return _decoded(text, Manifest)

    async def _text(self, method: str, path: str, body: Any, query: Query) -> bytes:
        response = await self._send(method, path, body, query, TIMEOUT)
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, "NoAnswer", _words(error)) from error
        if not 200 <= response.status < 300:
            raise _refusal(response, text)
        return text

    async def list(
        self, path: str, query: Query, lean: Callable[[Manifest], Manifest] = lambda raw: raw
    ) -> tuple[list[Manifest], int]:
        """All objects of a collection, each reduced by `lean`, and the resourceVersion of the list. The list is read
        page by page and yields to the event loop within a page, however large the objects are."""
        raws: list[Manifest] = []
        limit, more = FIRST_PAGE, ""
        while True:
            pages = [("limit", str(limit)), *([("continue", more)] if more else [])]
            text = await self._text("GET", path, None, [*query, *pages])
            page = _decoded(text, Page)
            for number, item in enumerate(page.items or ()):
                raws.append(lean(_decoded(item, Manifest)))
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            if not (more := page.metadata.more):
                return raws, page.metadata.resource_version
            limit = next_limit(len(page.items or ()), len(text))

    async def watch(
        self,
        path: str,
        query: Query,
        patience: aiohttp.ClientTimeout | None = None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[Manifest, None]:
        """The events of one watch request, until the server ends the request. Raises ApiError, 410 included. `opened`
        is called when the server has accepted the request."""
        response = await self._send("GET", path, None, [*query, ("watch", "true")], patience or WATCH_TIMEOUT)
        try:
            if response.status != 200:
                raise _refusal(response, await response.read())
            if opened is not None:
                opened()
            async for line in _lines(response):
                event = _decoded(line, Manifest)
                if event["type"] == "ERROR":
                    raise _error(event["object"].get("code", 500), msgspec.json.encode(event["object"]))
                yield event
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, "NoAnswer", _words(error)) from error
        finally:
            _drop(response)

    async def lines(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        """The lines of a text that the server sends bit by bit, such as a log that is followed. Raises ApiError."""
        response = await self._send("GET", path, None, query, STREAM_TIMEOUT)
        try:
            if response.status != 200:
                raise _refusal(response, await response.read())
            async for line in _lines(response, unfinished=True):
                yield line
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, "NoAnswer", _words(error)) from error
        finally:
            _drop(response)

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Query, protocol: str
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
        """A WebSocket of the API server, such as a port-forward. Raises ApiError if the server refuses it."""
        try:
            socket = await self._websocket_once(path, query, protocol)
        except ApiError as error:
            if error.status != 401 or self._refused is None or not await self._refused():
                raise
            socket = await self._websocket_once(path, query, protocol)
        try:
            yield socket
        finally:
            await socket.close()

    async def _websocket_once(self, path: str, query: Query, protocol: str) -> aiohttp.ClientWebSocketResponse:
        try:
            socket: aiohttp.ClientWebSocketResponse = await self._session().ws_connect(
                self._url(path, query),
                protocols=(protocol,),
                headers=await self._headers({}),
                max_msg_size=0,
                **self._route(),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "", error.message) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, "NoAnswer", _words(error)) from error
        return socket

    async def read(self, path: str, limit: int, patience: aiohttp.ClientTimeout, query: Query | None = None) -> bytes:
        """The bytes at a path that serves no API object, such as a pod's proxy. ApiError; ValueError if too many."""
        response = await self._send("GET", path, None, query or [], patience)
        try:
            text = await read_bounded(response, limit)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, "NoAnswer", _words(error)) from error
        finally:
            response.close()
        if response.status != 200:
            raise _refusal(response, text)
        return text

    async def _send(
        self, method: str, path: str, body: Any, query: Query, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The head of the answer. A request that the server puts off is sent again, some times."""
        left = self.retry_seconds
        for _ in range(TRIES - 1):
            response = await self._send_with_token(method, path, body, query, patience)
            pause = _retry_after(response)
            if not 0 < pause <= min(LONGEST_PAUSE, left):
                return response
            response.close()
            left -= pause
            await asyncio.sleep(pause * random.uniform(1, 1 + PAUSE_JITTER))
            await self._before_resend(method)
        return await self._send_with_token(method, path, body, query, patience)

    async def _before_resend(self, method: str) -> None:
        """Called behind the pause that the server has asked for."""

    async def _send_with_token(
        self, method: str, path: str, body: Any, query: Query, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        response = await self._send_once(method, path, body, query, patience)
        if response.status == 401 and self._refused is not None and await self._refused():
            response.close()
            return await self._send_once(method, path, body, query, patience)
        return response

    async def _send_once(
        self, method: str, path: str, body: Any, query: Query, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        self.requests[method] += 1
        content = MERGE if method == "PATCH" else JSON
        headers = await self._headers({"Accept": "application/json", **content})
        url, data = self._url(path, query), None if body is None else encoded(body)
        began, sent = time.monotonic(), self.clock.seconds()
        try:
            # Not by the transport's own `request`: json.dumps takes ten times as long as msgspec.
            response: aiohttp.ClientResponse = await self._session().request(
                method, url, headers=headers, data=data, timeout=patience, **self._route()
            )
        except asyncio.CancelledError:
            self._cancelled = True
            raise
        except (aiohttp.ClientError, TimeoutError) as error:
            self.answered(_kind(method, path, query), 0, time.monotonic() - began)
            raise ApiError(0, "NoAnswer", _words(error)) from error
        kind = _kind(method, path, query)
        self.answered(kind, response.status, time.monotonic() - began)
        if kind != "PROXY":  # the head of the answer is the pod's own
            self.clock.note(response.headers.get("Date", ""), sent)
            self.warnings.log(response.headers.getall("Warning", ()))
        return response

    def _session(self) -> aiohttp.ClientSession:
        if self._transport.pool_manager is None:
            self._transport.pool_manager = self._transport._create_pool_manager()
        session: aiohttp.ClientSession = self._transport.pool_manager
        return session

    def _route(self) -> Any:
        """The arguments of a request that lead to the API server."""
        transport = self._transport
        name = transport.configuration.tls_server_name or None
        return {"proxy": transport.proxy, "proxy_headers": transport.proxy_headers, "server_hostname": name}

    def _url(self, path: str, query: Query) -> str:
        parameters = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return f"{self._transport.configuration.host}{path}{parameters}"

    async def _headers(self, given: dict[str, str]) -> CIMultiDict[str]:
        """With the name of this program, and the credentials, which are renewed here if they end."""
        credentials = await self._transport.configuration.auth_settings()
        headers = CIMultiDict(given | USER_AGENT)
        headers.extend({each["key"]: each["value"] for each in credentials.values() if each["value"]})
        headers.extend(self._own_headers)
        return headers


async def connect() -> Api:
    """Connect as the pod's service account, or outside by the kubeconfig (KUBECONFIG, otherwise ~/.kube/config).

    RuntimeError with a one-line message if neither is there. No request is sent to the API server yet.
    """
    configuration, inside = Configuration(), True
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        inside = False
        try:
            await config.load_kube_config(client_configuration=configuration)
        except (config.ConfigException, yaml.YAMLError, OSError) as error:
            why = " ".join(str(error).split())
            raise RuntimeError(f"not running in a cluster, and no usable kubeconfig: {why}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # What the loader stumbles over in an empty file, or in one of another form.
            raise RuntimeError("not running in a cluster, and the kubeconfig is empty or no kubeconfig") from error
    try:
        read_environment_once(configuration)
    except ValueError as error:
        raise RuntimeError(f"the proxy of the environment cannot be used: {error}") from error
    # Unlimited: each watched namespace holds three connections while the operator runs, so the watches of 34 namespaces
    # would use up a pool of 100. WORKERS and CONCURRENCY bound the requests.
    configuration.connection_pool_maxsize = 0
    return Api(RESTClientObject(configuration), inside)


def read_environment_once(configuration: Configuration) -> None:
    """Find the proxy now. The client would read the environment and ~/.netrc in a thread before every request.

    ValueError for a proxy of another kind, which aiohttp would speak plain HTTP to.
    """
    server, proxies = urlsplit(configuration.host), getproxies()
    if configuration.proxy is None and not (proxy_bypass(server.netloc) or unproxied(server, proxies.get("no", ""))):
        configuration.proxy = proxies.get(server.scheme)
    scheme = urlsplit(configuration.proxy or "").scheme
    if configuration.proxy and scheme not in ("http", "https"):
        raise ValueError(f"a proxy of the kind {scheme or 'without a scheme'} is not supported, only http and https")
    configuration.client_session_kwargs = {"trust_env": False}


def unproxied(server: SplitResult, listed: str) -> bool:
    """Whether the server is this machine or in a network of NO_PROXY, as Go has it; Python knows names only."""
    name = server.hostname or ""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return address.is_loopback or any(_in_network(address, each.strip()) for each in listed.split(","))


def _in_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, text: str) -> bool:
    try:
        return address in ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body; ValueError as soon as it is longer than `limit` bytes."""
    # A bytearray: `bytes` would be copied for each chunk, and the sender chooses how small the chunks are.
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise ValueError(f"the answer is longer than {limit} bytes")
    return bytes(body)


async def _lines(response: aiohttp.ClientResponse, unfinished: bool = False) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own reader fails on a line longer than its buffer. `unfinished`: also the text
    after the last line feed."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
    if rest and unfinished:
        yield rest


def _drop(response: aiohttp.ClientResponse) -> None:
    """End a response whose rest is of no interest. Closing alone leaves the connection open until the server has
    answered the end of TLS, which may be after the event loop's end."""
    transport = response.connection.transport if response.connection is not None else None
    response.close()
    if transport is not None:
        transport.abort()


def encoded(body: Any) -> bytes:
    """The JSON of an object. Numbers that msgspec does not take are in no field of Kubernetes, but perhaps in an
    unchecked one of a template: the API server is to judge them."""
    try:
        return msgspec.json.encode(body)
    except (OverflowError, UnicodeEncodeError):
        return json.dumps(body).encode()


def _decoded(text: bytes | msgspec.Raw, kind: type[Decoded]) -> Decoded:
    """The object in an answer. Any other text, such as a proxy's error page, is a connection error, to be retried."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(200, "NotAnObject", f"{_words(error)}: {bytes(text)[:200].decode(errors='replace')}") from error


def _refusal(response: aiohttp.ClientResponse, text: bytes) -> ApiError:
    return _error(response.status, text, _retry_after(response))


def _error(status: int, text: bytes, retry_after: float = 0.0) -> ApiError:
    try:
        answer = msgspec.json.decode(text)
        return ApiError(status, answer.get("reason") or "", answer.get("message") or "", retry_after)
    except (msgspec.DecodeError, AttributeError):
        return ApiError(status, "", text[:500].decode(errors="replace"), retry_after)


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """The pause that an overloaded server asks for, in seconds, at most MOST_ASKED; 0 if it asks for none. It is a
    number: Kubernetes sends no dates."""
    given = response.headers.get("Retry-After", "")
    is_overload = response.status == 429 or response.status >= 500
    return min(float(given), MOST_ASKED) if is_overload and given.isascii() and given.isdigit() else 0.0


def _kind(method: str, path: str, query: Query) -> str:
    if ("watch", "true") in query:
        return "WATCH"
    return "PROXY" if "/proxy/" in path else method


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
