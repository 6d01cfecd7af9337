"""Run an example program as a process of its own, as a person does, and look at what it left.

Must leave no process behind: each is the leader of its own process group, which is killed at the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tftraining.lib.plots import make_figure

PATIENCE = 300.0  # seconds; everything waited for takes a few on an idle machine


class Program:
    """One run of `tftraining.examples.<name>` into `directory`; `with` ends it."""

    def __init__(self, name: str, directory: Path, *arguments: str, tf_config: dict[str, Any] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._out, self._err = (directory / f"{kind}-{time.monotonic_ns()}" for kind in ("out", "err"))
        environment = {key: value for key, value in os.environ.items() if key not in ("TFTRAINING_DIR", "TF_CONFIG")}
        environment |= {"TMPDIR": str(directory)} | ({"TF_CONFIG": json.dumps(tf_config)} if tf_config else {})
        command = [sys.executable, "-m", f"tftraining.examples.{name}", "--directory", str(directory), *arguments]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=err, start_new_session=True)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def lines(self) -> list[str]:
        """What it has printed so far."""
        return self._out.read_text().splitlines()

    def errors(self) -> str:
        """Its standard error output so far."""
        return self._err.read_text()

    def wait_for_line(self, start: str) -> None:
        """Wait until it has printed a line that begins so."""
        deadline = time.monotonic() + PATIENCE
        while not any(line.startswith(start) for line in self.lines()):
            assert self.process.poll() is None, f"ended ({self.process.returncode}):\n{self.errors()[-3000:]}"
            assert time.monotonic() < deadline, f"never printed {start!r}: {self.lines()}"
            time.sleep(0.02)

    def result(self) -> dict[str, Any]:
        """What is in its result file, once it has ended well."""
        code = self.process.wait(timeout=PATIENCE)
        assert code == 0, f"ended ({code}):\n{self.errors()[-3000:]}"
        found: dict[str, Any] = json.loads((self.directory / "result.json").read_text())
        return found


def run(name: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """The result of a run to the end."""
    with Program(name, directory, *arguments) as program:
        return program.result()


def history(directory: Path) -> list[dict[str, float]]:
    """The curves of a training, without its times."""
    records = json.loads((directory / "history.json").read_text())
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def check_picture(path: Path, directory: Path) -> None:
    """It is a PNG, and not an empty one; a training in this directory has a curve of the training and one of the test,
    each with all epochs.
    """
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5_000
    records = history(directory)
    for axes in make_figure(records).axes:
        assert [line.get_label() for line in axes.lines] == ["training", "test"]
        assert [len(np.asarray(line.get_xdata())) for line in axes.lines] == [len(records)] * 2


def check_histograms(path: Path) -> bytes:
    """TensorBoard finds histograms; the content of its file."""
    (events,) = path.glob("events.out.tfevents*")
    content = events.read_bytes()
    assert b"histograms" in content
    return content


def check_logs(path: Path) -> None:
    """TensorBoard finds a scalar and a histogram of each epoch, and one profile."""
    assert b"test_accuracy" in check_histograms(path)
    assert len(list(path.rglob("*.xplane.pb"))) == 1
