"""Two workers share the input of a tf.data service of two servers, of which one is killed in between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.trainer.gang import Gang

READY = "of tf.data service: ready"


@contextmanager
def server(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server of tf.data service, once it listens."""
    command = [sys.executable, "-m", "tftraining.lib.data_service", *arguments]
    with log.open("wb") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file) as process:
        try:
            assert process.stdout is not None
            assert READY in process.stdout.readline().decode(), log.read_text()
            yield process
        finally:
            process.kill()


@pytest.mark.slow_fault
def test_two_workers_train_on_the_batches_of_one_service(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    dispatcher = ("dispatcher", "--port", str(port), "--work-dir", str(tmp_path / "journal"))
    worker = ("worker", "--dispatcher", address, "--host", "127.0.0.1")
    arguments = ["--epochs", "4", "--records", "4", "--data-service", address]
    with (
        server(tmp_path / "log-0", *dispatcher),
        server(tmp_path / "log-1", *worker),
        server(tmp_path / "log-2", *worker) as victim,
        Gang(tmp_path / "job", arguments) as gang,
    ):
        gang.start()
        gang.wait_for_line(0, "epoch 2/")
        victim.kill()
        gang.wait_for_line(0, "epoch 3/")
        gang.kill(1)
        gang.kill_all()
        gang.start()
        assert gang.wait() == [0, 0]
    result = json.loads((tmp_path / "job" / "result.json").read_text())
    assert result["resumed_from"] >= 2
    assert result["accuracy"] > 0.85
