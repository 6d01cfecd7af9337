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


@pytest.mark.slow_fault
def test_a_member_that_exits_with_0_before_the_others_have_started_is_named_and_the_start_deadline_fires(
    tmp_path: Path,
) -> None:
    with LocalGang(tmp_path, {"worker": 2}, startDeadlineSeconds=20) as gang:
        gang.command = [sys.executable, "-c", f"import os\nos.environ['STANDIN'] == 'worker-1' and exit()\n{PROGRAM}"]
        gang.start()
        early = "worker-1 exited with code 0 before the others had started"
        told = gang.wait_for(lambda: early in (gang.status().get("message") or "") and gang.status(), PATIENCE)
        assert (told["phase"], told["finished"]) == ("Starting", ["worker-1"])
        assert gang.wait(PATIENCE) == {"worker-0": 1, "worker-1": 1}
        found = gang.message("worker-0")
        limit = "20 s (spec.runPolicy.startDeadlineSeconds)"
        words = f"worker-0: no connection to the other programs within {limit}; {early}"
        assert (found["reason"], found["message"]) == ("StartDeadlineExceeded", words)
