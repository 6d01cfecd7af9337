"""The address of a tf.data service is checked before TensorFlow waits for it without a word."""

from __future__ import annotations

import socket

import pytest

from tests.support.ports import free_ports
from tftraining.lib.data_service import parse, wait_for
from tftraining.lib.options import UsageError


def test_an_address_without_a_dispatcher_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(UsageError, match=f"--data-service 127.0.0.1:{port}: no dispatcher listens there"):
        wait_for(f"127.0.0.1:{port}", patience=0)


@pytest.mark.parametrize("address", ["data-service", ":5050", "host:port", ""])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(UsageError, match="give the dispatcher's host and port"):
        wait_for(address, patience=0)


def test_a_dispatcher_that_listens_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wait_for(f"127.0.0.1:{server.getsockname()[1]}", patience=0)


def test_the_options_of_the_servers() -> None:
    assert parse(["dispatcher"]).port == 5050
    assert parse(["worker", "--dispatcher", "a:1"]).port == 0
    with pytest.raises(SystemExit):
        parse(["worker"])
