"""The client's transport. TCP finds a connection whose other end is silently gone (a laptop that slept, a NAT that
forgot): a followed log may be silent for hours, so its reader cannot tell."""

import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

IDLE_SECONDS, PROBE_SECONDS, PROBES = 15, 5, 3
DESCRIPTORS = Path("/dev/fd")


class Transport(RESTClientObject):  # type: ignore[misc]  # the library is untyped
    """The library's transport, with TCP keepalive: a dead connection ends after 30 s of silence."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=self.maxsize, ssl=self.ssl_context, socket_factory=keepalive_socket)

    def use_certificate(self, certificate: bytes, key: bytes) -> None:
        """Present this certificate (PEM) in new connections. OSError if it cannot be read."""
        load_certificate(self.ssl_context, certificate, key)

    async def reconnect(self) -> None:
        """Close the connections: each knows the certificate with which it began."""
        await self.close()
        self.pool_manager = None


def traced(told: Callable[[str], None]) -> aiohttp.TraceConfig:
    """Tell each request and how it was answered: the method, the path, the code and the time until the head of the
    answer. No header is told, which may have a token."""
    trace = aiohttp.TraceConfig()

    async def started(session: Any, context: SimpleNamespace, request: Any) -> None:
        context.began = time.monotonic()

    async def ended(session: Any, context: SimpleNamespace, request: Any) -> None:
        outcome = f"{request.response.status}" if hasattr(request, "response") else f"failed: {request.exception!r}"
        milliseconds = 1000 * (time.monotonic() - context.began)
        told(f"{request.method} {request.url.raw_path_qs} {outcome} in {milliseconds:.0f} ms")

    trace.on_request_start.append(started)
    trace.on_request_end.append(ended)
    trace.on_request_exception.append(ended)
    return trace


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key, which OpenSSL takes from files only, without a file of the key."""
    with _readable(certificate) as one, _readable(key) as other:
        context.load_cert_chain(one, other, password=_no_password)


def _no_password() -> str:
    """OpenSSL would ask the terminal for the password of an encrypted key, and wait."""
    raise OSError("the client key is encrypted, which kubectl does not take either")


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path at which the content can be read once: that of a pipe, so that a program that is killed leaves no key."""
    if not DESCRIPTORS.is_dir():  # Windows
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pem"
            path.write_bytes(content)
            yield str(path)
        return
    reader, writer = os.pipe()
    thread = threading.Thread(target=_write, args=(writer, content))
    thread.start()
    try:
        yield str(DESCRIPTORS / str(reader))
    finally:
        os.close(reader)
        thread.join()


def _write(descriptor: int, content: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(content)


def keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for the address, with keepalive. Each system names the options its own way."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    for option, value in (
        (idle, IDLE_SECONDS),
        (getattr(socket, "TCP_KEEPINTVL", None), PROBE_SECONDS),
        (getattr(socket, "TCP_KEEPCNT", None), PROBES),
    ):
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
