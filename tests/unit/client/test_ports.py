"""Ports that are held: the job can listen on them, nobody else is given them."""

import socket

from tftraining_client.local.ports import HOST, Ports


def listen(port: int, reuse: bool = True) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    server.bind((HOST, port))
    server.listen()
    return server


def test_the_job_can_listen_there_again_and_again() -> None:
    with Ports() as ports:
        port = ports.reserve()
        for _ in range(3):
            with listen(port), socket.create_connection((HOST, port), timeout=5):
                pass


def test_no_two_are_the_same_and_nobody_who_asks_for_any_port_gets_one() -> None:
    with Ports() as ports:
        taken = {ports.reserve() for _ in range(200)}
        assert len(taken) == 200
        others = [listen(0) for _ in range(200)]
        assert taken.isdisjoint(each.getsockname()[1] for each in others)
        for each in others:
            each.close()


def test_afterwards_they_are_free() -> None:
    with Ports() as ports:
        port = ports.reserve()
    listen(port, reuse=False).close()
