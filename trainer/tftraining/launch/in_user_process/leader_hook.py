"""Keeps TensorFlow from connecting to the leader of a multi-worker strategy before the leader listens.

gRPC retries only a second after a refused connection, and members start in random order: a restart of 1.1 s would often
take 2 s. So in every other member the connecting call waits until the leader's port is open. It must never fail. It
gives up after PATIENCE_SECONDS; then TensorFlow's own timeouts apply. In all members the progress page shows that the
program is in such a call, because TensorFlow itself waits there for ever without a sign.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .import_hook import after_import
from .peers import Peers
from .surface import Part, Surface

MODULE = "tensorflow.python.eager.context"
SURFACE = Surface(
    "cannot wait for the TensorFlow leader, restarts may take longer",
    tuple(
        Part(MODULE, f"Context.{method}")
        for method in ("enable_collective_ops", "set_server_def", "ensure_initialized")
    ),
)
PATIENCE_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 0.1
CONNECT_SECONDS = 1.0


def install(
    connects: Callable[[bool], None], environment: Mapping[str, str] = os.environ, peers: Peers | None = None
) -> None:
    """Extend TensorFlow, now or when it is imported. `connects` is called with True before this process connects to its
    peers, with False afterwards; it must not raise. `peers` are those of a TF_CONFIG that is gone from the environment,
    perhaps; they hear whom this process connects to."""
    if environment.get("TF_CONFIG") or peers is not None:
        leader = leader_address(environment.get("TF_CONFIG", ""))
        after_import(frozenset({MODULE}), functools.partial(_extend, leader, connects, peers))


def leader_address(tf_config: str) -> tuple[str, int] | None:
    """Host and port of the leader task (the chief, otherwise worker 0); None for the leader itself."""
    try:
        config = json.loads(tf_config)
        role = "chief" if config["cluster"].get("chief") else "worker"
        task = config["task"]
        if task["type"] not in ("chief", "worker") or (task["type"], int(task["index"])) == (role, 0):
            return None
        host, _, port = config["cluster"][role][0].rpartition(":")
        return host.strip("[]"), int(port)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None  # an invalid TF_CONFIG: TensorFlow reports it


def _extend(leader: tuple[str, int] | None, connects: Callable[[bool], None], peers: Peers | None, module: Any) -> None:
    if SURFACE.holds({MODULE: module}):
        _wrap(module.Context, "enable_collective_ops", leader, connects, peers)  # MultiWorkerMirroredStrategy
        _wrap(module.Context, "set_server_def", None, connects, peers)  # ParameterServerStrategy
        if peers is not None:
            peers.is_watched = True


def _wrap(
    cls: Any, name: str, leader: tuple[str, int] | None, connects: Callable[[bool], None], peers: Peers | None
) -> None:
    """Wrap the connecting method of `cls` to wait for the leader, and to call `connects`."""
    dial = getattr(cls, name)

    @functools.wraps(dial)
    def dialling(self: Any, *args: Any, **kwargs: Any) -> Any:
        if peers is not None:
            peers.join(args[0] if args else kwargs.get("server_def"))
        with _reporting(connects):
            if leader is not None:
                wait_for_leader(leader)
            result = dial(self, *args, **kwargs)
        _report_next_call(self, "ensure_initialized", connects)
        return result

    setattr(cls, name, dialling)


def _report_next_call(context: Any, name: str, connects: Callable[[bool], None]) -> None:
    """Wrap only the next call of a method of `context` to call `connects`. TensorFlow connects to its peers in that
    call, and calls the method again with every operation."""
    method = getattr(context, name)
    if name in vars(context):
        return

    @functools.wraps(method)
    def telling(*args: Any, **kwargs: Any) -> Any:
        vars(context).pop(name, None)
        with _reporting(connects):
            return method(*args, **kwargs)

    setattr(context, name, telling)


@contextlib.contextmanager
def _reporting(connects: Callable[[bool], None]) -> Iterator[None]:
    connects(True)
    try:
        yield
    finally:
        connects(False)


def wait_for_leader(leader: tuple[str, int], patience: float = PATIENCE_SECONDS) -> bool:
    """Wait until a server listens at `leader` (host, port), at most `patience` seconds; whether one does."""
    deadline, pause = time.monotonic() + patience, FIRST_PAUSE_SECONDS
    while True:
        try:
            socket.create_connection(leader, CONNECT_SECONDS).close()
            return True
        except OSError:
            if time.monotonic() + pause > deadline:
                return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
