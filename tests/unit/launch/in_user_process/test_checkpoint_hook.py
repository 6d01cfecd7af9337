"""Who is told that a restarted program restores none of its checkpoints."""

from __future__ import annotations

import sys
import types

import pytest

from tftraining.launch.in_user_process import checkpoint_hook

PREFIX = "/job/checkpoints/ckpt"


def run(
    monkeypatch: pytest.MonkeyPatch, *calls: str, again: str = "2", reports: bool = False, earlier: bool = True
) -> None:
    """A program that makes these calls of a checkpoint."""

    class Checkpoint:
        def save(self, file_prefix: object, options: object = None) -> object:
            return self._write(file_prefix, options)

        def _write(self, file_prefix: object, options: object = None) -> object:
            return file_prefix

        def read(self, save_path: object, options: object = None) -> object:
            return save_path

        def restore(self, save_path: object, options: object = None) -> object:
            return self.read(save_path, options)

    latest = types.SimpleNamespace(latest_checkpoint=lambda directory: directory if earlier else None)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(train=latest))
    monkeypatch.setenv("TFTRAINING_ROUND", again)
    checkpoint_hook._extend(lambda: reports, types.SimpleNamespace(Checkpoint=Checkpoint))
    for each in calls:
        assert getattr(Checkpoint(), each)(PREFIX) == PREFIX


def test_one_line_says_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "save", "save", "restore")
    assert capsys.readouterr().err == checkpoint_hook.TOLD.format("/job/checkpoints")


@pytest.mark.parametrize(
    ("calls", "how"),
    [
        (("restore", "save"), {}),
        (("read", "save"), {}),
        (("save",), {"again": "1"}),
        (("save",), {"reports": True}),
        (("save",), {"earlier": False}),
    ],
    ids=["restored", "read", "first start", "reports its progress", "first checkpoint"],
)
def test_others_are_not_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    calls: tuple[str, ...],
    how: dict[str, object],
) -> None:
    run(monkeypatch, *calls, **how)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


def test_another_checkpoint_of_tensorflow_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class Checkpoint:
        def save(self, place: object) -> None:
            """As it may be one day."""

    before = Checkpoint.save
    checkpoint_hook._extend(lambda: False, types.SimpleNamespace(Checkpoint=Checkpoint))
    assert Checkpoint.save is before
    assert checkpoint_hook.SURFACE.lost in capsys.readouterr().err
