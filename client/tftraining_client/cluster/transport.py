"""The client's transport. TCP finds a connection whose other end is silently gone (a laptop that slept, a NAT that
forgot): a followed log may be silent for hours, so its reader cannot tell."""

import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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
