"""Whether a program trains without the other members of its gang."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tftraining.launch.in_user_process.peers import SERVER_MODULE, Peers


def config(role: str = "worker", **cluster: int) -> str:
    addresses = {name: [f"{name}:{index}" for index in range(count)] for name, count in cluster.items()}
    return json.dumps({"cluster": addresses, "task": {"type": role, "index": 0}})


def server_def(tasks: int) -> Any:
    return SimpleNamespace(cluster=SimpleNamespace(job=[SimpleNamespace(tasks=dict.fromkeys(range(tasks), "x:1"))]))


def peers(tf_config: str, watched: bool = True) -> Peers:
    found = Peers(tf_config)
    found.is_watched = watched
    return found


@pytest.mark.parametrize(
    ("tf_config", "left_out"),
    [
        (config(worker=2), True),
        (config("chief", chief=1, worker=1), True),
        (config(worker=1), False),
        (config("evaluator", worker=2), False),
        (config("ps", chief=1, worker=2, ps=1), False),
        ("", False),
        ("[]", False),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', False),
    ],
)
def test_who_has_peers(tf_config: str, left_out: bool) -> None:
    assert peers(tf_config).are_left_out() is left_out
    assert not peers(tf_config, watched=False).are_left_out(), "an unknown TensorFlow"


@pytest.mark.parametrize(("tasks", "left_out"), [(1, True), (2, False)])
def test_a_cluster_of_one_is_none(tasks: int, left_out: bool) -> None:
    found = peers(config(worker=2))
    found.join(server_def(tasks))
    assert found.are_left_out() is left_out


def test_what_cannot_be_read_accuses_nobody() -> None:
    found = peers(config(worker=2))
    found.join(None)
    assert not found.are_left_out()


@pytest.mark.parametrize("module", ["horovod", "torch", "mpi4py"])
def test_another_way_to_connect_accuses_nobody(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    assert not peers(config(worker=2)).are_left_out()


def test_a_server_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        pass

    module = ModuleType(SERVER_MODULE)
    module.Server = Server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, SERVER_MODULE, module)
    assert peers(config(worker=2)).are_left_out()
    server = Server()
    assert not peers(config(worker=2)).are_left_out(), server
