"""A member waits for its leader before TensorFlow connects to it."""

from __future__ import annotations

import json
import socket
import threading
import time
import types
from collections.abc import Iterator

import pytest

from tftraining.launch.in_user_process import leader_hook

WORKERS = {"worker": ["a:2222", "b:2222"]}
CHIEF = {"chief": ["c:1"], **WORKERS}


def config(cluster: object, role: str, index: object) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


@pytest.mark.parametrize(
    ("tf_config", "leader"),
    [
        (config(WORKERS, "worker", 1), ("a", 2222)),
        (config(WORKERS, "worker", 0), None),
        (config(CHIEF, "worker", 0), ("c", 1)),
        (config(CHIEF, "chief", 0), None),
        (config({**CHIEF, "ps": ["p:3"]}, "ps", 0), None),
        (config(CHIEF, "evaluator", 0), None),
        (config({"worker": ["[::1]:7", "b:7"]}, "worker", "1"), ("::1", 7)),
        (config({"worker": []}, "worker", 1), None),
        (config({"worker": ["no-port"]}, "worker", 1), None),
        (config(WORKERS, "worker", None), None),
        ("{}", None),
        ("[]", None),
        ("", None),
        ("no JSON", None),
    ],
)
def test_the_address_of_the_leader(tf_config: str, leader: tuple[str, int] | None) -> None:
    assert leader_hook.leader_address(tf_config) == leader


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """A port that is held and that nobody listens on yet."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held


def test_the_wait_ends_when_the_leader_listens(port: socket.socket) -> None:
    opened: list[float] = []

    def listen() -> None:
        opened.append(time.monotonic())
        port.listen()

    later = threading.Timer(0.1, listen)
    later.start()
    assert leader_hook.wait_for_leader(port.getsockname(), patience=10)
    assert time.monotonic() >= opened[0]
    later.join()


def test_the_wait_for_the_leader_is_bounded(port: socket.socket) -> None:
    assert not leader_hook.wait_for_leader(port.getsockname(), patience=0.03)


class Context:
    """As much of TensorFlow's as is extended."""

    def __init__(self, happened: list[object]) -> None:
        self.happened = happened

    def enable_collective_ops(self, server_def: str, more: int = 0) -> str:
        self.happened.append((server_def, more))
        return "done"

    def ensure_initialized(self) -> None:
        self.happened.append("connected")

    def set_server_def(self, server_def: str) -> None:
        raise ValueError(server_def)


def extended(monkeypatch: pytest.MonkeyPatch, happened: list[object], index: int) -> Context:
    """The context of a worker in which the hook is installed; what happens in it is noted."""
    module = types.SimpleNamespace(Context=type("Context", (Context,), {}))
    monkeypatch.setattr(leader_hook, "wait_for_leader", happened.append)
    monkeypatch.setattr(leader_hook, "after_import", lambda names, extend: extend(module))
    leader_hook.install(happened.append, {"TF_CONFIG": config(WORKERS, "worker", index)})
    context: Context = module.Context(happened)
    return context


@pytest.mark.parametrize(("index", "waited"), [(0, []), (1, [("a", 2222)])])
def test_the_connecting_call_waits_for_the_leader_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, index: int, waited: list[object]
) -> None:
    happened: list[object] = []
    assert extended(monkeypatch, happened, index).enable_collective_ops("server", more=2) == "done"
    assert happened == [True, *waited, ("server", 2), False]


def test_the_first_initialization_after_the_call_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[object] = []
    context = extended(monkeypatch, happened, 0)
    context.enable_collective_ops("server")
    happened.clear()
    for _ in range(3):
        context.ensure_initialized()
    assert happened == [True, "connected", False, "connected", "connected"]


def test_a_failed_connecting_call_is_reported_as_over(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[object] = []
    with pytest.raises(ValueError, match="server"):
        extended(monkeypatch, happened, 1).set_server_def("server")
    assert happened == [True, False]


def test_a_program_without_tf_config_is_not_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[object] = []
    monkeypatch.setattr(leader_hook, "after_import", lambda *_: happened.append("extended"))
    leader_hook.install(happened.append, {})
    assert happened == []


def test_a_tensorflow_without_the_methods_stays_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leader_hook, "after_import", lambda names, extend: extend(types.SimpleNamespace()))
    leader_hook.install(lambda _: None, {"TF_CONFIG": config(WORKERS, "worker", 1)})
    assert capsys.readouterr().err.startswith("tftraining: cannot wait for the TensorFlow leader")
