"""The client's transport. TCP finds a connection whose other end is silently gone (a laptop that slept, a NAT that
forgot): a followed log may be silent for hours, so its reader cannot tell."""

import socket
from typing import Any

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

IDLE_SECONDS, PROBE_SECONDS, PROBES = 15, 5, 3


class Transport(RESTClientObject):  # type: ignore[misc]  # the library is untyped
    """The library's transport, with TCP keepalive: a dead connection ends after 30 s of silence."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=self.maxsize, ssl=self.ssl_context, socket_factory=keepalive_socket)


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
