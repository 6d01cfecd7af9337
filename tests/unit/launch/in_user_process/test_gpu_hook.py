"""The number of GPUs that TensorFlow lists reaches the launcher through the progress page."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.in_user_process import gpu_hook, progress_page
from tftraining.launch.in_user_process.tracker import Tracker
from tftraining.launch.process import progress_reader
from tftraining.launch.progress import Snapshot


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = progress_reader.create(tmp_path / "page")
    yield fd
    os.close(fd)


def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str] | None) -> Any:
    """A Context as TensorFlow has one, extended; None: it cannot say which GPUs there are."""

    class Context:
        def _initialize_logical_devices(self) -> str:
            return "initialized"

        def list_physical_devices(self, device_type: str) -> list[str]:
            assert device_type == "GPU"
            if gpus is None:
                raise RuntimeError("no driver")
            return gpus

    module = types.SimpleNamespace(context=types.SimpleNamespace(Context=Context))
    monkeypatch.setattr(gpu_hook, "after_import", lambda names, extend: extend(module))
    gpu_hook.install(Tracker(str(tmp_path / "page")))
    return Context()


@pytest.mark.parametrize("gpus", [[], ["GPU:0"], ["GPU:0", "GPU:1"]])
def test_the_gpu_count_is_reported_after_tensorflow_lists_its_devices(
    tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch, gpus: list[str]
) -> None:
    context = installed(tmp_path, monkeypatch, gpus)
    assert progress_reader.read_gpu_count(fd) is None, "nobody has asked TensorFlow to look"
    assert context._initialize_logical_devices() == "initialized"
    assert progress_reader.read_gpu_count(fd) == len(gpus)
    assert progress_reader.read(fd) == Snapshot(), "it is no progress"


def test_an_error_of_the_hook_does_not_disturb_the_program(
    tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed(tmp_path, monkeypatch, None)._initialize_logical_devices() == "initialized"
    assert progress_reader.read_gpu_count(fd) is None
    assert "RuntimeError: no driver" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module",
    [
        types.SimpleNamespace(),
        types.SimpleNamespace(context=types.SimpleNamespace()),
        types.SimpleNamespace(context=types.SimpleNamespace(Context=object)),
    ],
)
def test_a_tensorflow_without_the_methods_stays_unchanged(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setattr(gpu_hook, "after_import", lambda names, extend: extend(module))
    gpu_hook.install(Tracker(""))


@pytest.mark.parametrize("written", [0, -1, -(2**63)])
def test_an_impossible_gpu_count_is_unknown(fd: int, written: int) -> None:
    os.pwrite(fd, progress_page.GPUS.pack(written), progress_page.GPUS_AT)
    assert progress_reader.read_gpu_count(fd) is None
    os.ftruncate(fd, 10)
    assert progress_reader.read_gpu_count(fd) is None
