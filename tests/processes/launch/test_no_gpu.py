"""A launcher reports that TensorFlow lists none of the requested GPUs, in its log and in the chief's status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

# TensorFlow as far as the launcher knows it: it has looked at its devices when this has returned.
TENSORFLOW = {
    "tensorflow/__init__.py": "",
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/eager/__init__.py": "",
    "tensorflow/python/eager/context.py": """
class Context:
    def _initialize_logical_devices(self):
        pass
    def enable_collective_ops(self, server_def):
        pass
    def list_physical_devices(self, device_type):
        import os
        return ["GPU:0"] * int(os.environ["TEST_GPUS"])
""",
    "tensorflow/python/framework/__init__.py": "",
    "tensorflow/python/framework/config.py": "from tensorflow.python.eager import context\n",
    "train.py": """
import time
import tftraining
from tensorflow.python.framework import config
config.context.Context()._initialize_logical_devices()
for step in range(1, 10**6):
    tftraining.report(step=step)
    time.sleep(0.05)
""",
}
WORD = "tftraining: NoGPU: the container requests GPUs (2), but TensorFlow sees none"


@pytest.mark.parametrize(("asked", "there", "lacks"), [(2, 0, True), (2, 2, False), (0, 0, False)])
def test_a_container_that_requests_gpus_and_sees_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, there: int, lacks: bool
) -> None:
    for name, text in TENSORFLOW.items():
        path = tmp_path / "program" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("TEST_GPUS", str(there))
    with LocalGang(tmp_path, {"worker": 2}) as gang:
        gang.command = [sys.executable, str(tmp_path / "program" / "train.py")]
        gang.start("worker-0")
        gang.start("worker-1", **({"gpus": asked} if asked else {}))
        status = gang.wait_for_phase("Training")
        assert status["noGpu"] == (["worker-1"] if lacks else [])
        assert [gang.status(name)["gpus"] for name in gang.names] == [there, there]
        assert gang.log("worker-1").count(WORD) == lacks
        assert "NoGPU" not in gang.log("worker-0")
        gang.kill_program("worker-0")
        assert gang.wait_for_phase("Training", 2)["noGpu"] == status["noGpu"]
        assert gang.log("worker-1").count("NoGPU") == lacks, "once, not in each round"
