"""Programs that cannot reach each other are detected; programs behind a proxy connect.

TensorFlow is slow to start: about half a minute each on two cores.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 150.0
PROGRAM = """
import os, sys, time
if os.environ["STANDIN"] in sys.argv[1:]:
    time.sleep(1000)
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
"""


@pytest.mark.slow_fault
def test_peers_connect_without_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, LocalGang(tmp_path, {"worker": 2}) as gang:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        gang.command = [sys.executable, "-c", PROGRAM]
        gang.start()
        assert gang.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.slow_fault
def test_a_program_that_waits_for_its_peer_does_not_train(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, stallTimeoutSeconds=35) as gang:
        gang.command = [sys.executable, "-c", PROGRAM, "worker-1"]
        gang.start()
        last = gang.wait_for(lambda: gang.status().get("lastRestart"), PATIENCE)
        assert (last["member"], last["reason"]) == ("worker-0", "Stalled")
        assert last["message"].startswith("worker-0: no connection to the other programs for 35 s")
        gang.wait_for(lambda: "ensure_initialized" in gang.log("worker-0"))  # its stacks
