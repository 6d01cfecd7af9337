"""Which Docker engine runs the nodes: the lab's own if it runs, else the machine's, else a private one started now.

It must never stop an engine that others still use.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from . import packages, private_engine
from .docker import Engine, answers
from .shell import Impossible, lock, say, step, use, used


def running() -> Engine | None:
    """Return the engine that the lab would use, if one runs already."""
    return next((Engine(host) for host in (private_engine.host(), None) if answers(host)), None)


@contextmanager
def started() -> Iterator[Engine]:
    """Give a running engine, which goes on for as long as the block runs and for as long as it has containers.

    It is the lab's if that runs, else the machine's, else a private one that is started now. Raises Impossible where
    there is none and none can be started.
    """
    with use("engine"):
        yield _start()


def _start() -> Engine:
    with lock("engine"):
        engine = running()
        if engine is None:
            if os.geteuid() != 0:
                raise Impossible("no Docker engine answers, and only root can start one: start Docker or run as root")
            say("no Docker engine answers: starting a private one")
            packages.need("dockerd", "docker", "iptables", "runc")
            engine = private_engine.start()
    return engine


def stop_if_unused() -> bool:
    """Stop the private engine if none of its containers runs, and say whether it did.

    The engine's files outside the cache are removed too.
    """
    with lock("engine"):
        if not private_engine.runtime_dir().exists():
            return False
        containers = answers(private_engine.host()) and Engine(private_engine.host()).docker("ps", "-q").strip()
        if containers or used("engine"):
            say("keeping the private Docker engine: other clusters use it")
            return False
        with step("stopping the Docker engine"):
            private_engine.stop()
        return True
