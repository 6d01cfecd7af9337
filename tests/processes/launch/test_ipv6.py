"""A gang in an IPv6-only network: the names of the pods have IPv6 addresses only, and IPv4 has only the loopback.

As the operator does, the launchers get names, and listen on all addresses of the pod. TensorFlow finds its peers by the
names in TF_CONFIG.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launchers.copying_gang import EVERY, CopyingGang
from tests.support.launchers.gang import LocalGang
from tests.support.own_network import own_network

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")
ADDRESSES = {"worker-0": "fd00::10", "worker-1": "fd00::11"}
PATIENCE = 240.0  # seconds, for TensorFlow
PROGRAM = """
import os, signal
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
print("sum", float(strategy.experimental_local_results(total)[0]), flush=True)
if os.environ["TFTRAINING_ROUND"] == "1" and os.environ["STANDIN"] == "worker-1":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def network() -> Iterator[None]:
    """This thread and the processes that it starts, in a network of their own; it goes with the last of them."""
    with own_network(ADDRESSES.values()):
        yield


def on_ipv6(gang: LocalGang, place: Path) -> None:
    """Names with IPv6 addresses in place of 127.0.0.1. Each launcher sees a file of hosts of its own."""
    hosts = place / "hosts"
    hosts.write_text("".join(f"{address} {name}.job.tests.svc\n" for name, address in ADDRESSES.items()))
    script = f"mount --bind '{hosts}' /etc/hosts && exec \"$@\""
    for name in gang.names:
        gang.wrappers[name] = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    ports = [address.rpartition(":")[2] for address in gang.cluster["worker"]]
    gang.cluster["worker"] = [f"{name}.job.tests.svc:{port}" for name, port in zip(gang.names, ports, strict=True)]
    gang.hosts = {name: f"[{address}]" for name, address in ADDRESSES.items()}
    gang.options |= {"host": "", "rendezvous": f"worker-0.job.tests.svc:{gang.rendezvous}"}


def test_a_killed_program_restarts_the_gang(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "10", "--steps", "10", "--step-seconds", "0.01") as gang:
        on_ipv6(gang, tmp_path)
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("worker-1")
        assert gang.wait_for_phase("Training", 2)["lastRestart"]["member"] == "worker-1"
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}


def test_a_new_pod_fetches_the_copy_from_its_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    with CopyingGang(tmp_path) as gang:
        on_ipv6(gang, tmp_path)
        gang.start()
        gang.wait_for_step(100)
        gang.delete_pods("worker-1")
        reached = gang.steps()[-1]
        gang.start("worker-1")
        gang.finish()
        ((step, source),) = gang.resumptions("worker-1")
        assert source == "Peer" and step >= reached - 2 * EVERY


@pytest.mark.slow_fault
def test_tensorflow_finds_its_peers_before_and_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with LocalGang(tmp_path, {"worker": 2}) as gang:
        on_ipv6(gang, tmp_path)
        gang.command = [sys.executable, "-c", PROGRAM]
        gang.start()
        assert gang.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}, gang.describe()
        for name in gang.names:
            assert re.findall(r"sum ([\d.]+)", gang.log(name))[-1:] == ["2.0"], gang.log(name)
        assert gang.message("worker-1")["verdict"] == "Succeeded"
        assert gang.log("worker-1").count("sum 2.0") == 2
