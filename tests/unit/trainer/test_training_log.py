"""The lines, curves and result of a training, also of one that was interrupted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tftraining.lib.options import write_atomically
from tftraining.lib.training_log import TrainingLog, read_history


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(
        directory=str(tmp_path), plot=str(tmp_path / "plots" / "curves.png"), logdir=None, profile_steps=None
    )


def test_a_training_in_lines(options: argparse.Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    training_log = TrainingLog(2, options)
    training_log.resume(0, 0)
    for epoch in (1, 2):
        training_log.begin()
        training_log.end(epoch, {"loss": 1 / epoch, "accuracy": 0.25 * epoch})
    training_log.finish({"accuracy": 0.5, "loss": 0.51234})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in lines[:2]] == [
        "epoch 1/2 loss 1.0000 accuracy 0.2500",
        "epoch 2/2 loss 0.5000 accuracy 0.5000",
    ]
    assert lines[2].startswith("result: epochs=2 accuracy=0.5 loss=0.5123 resumed_from=0 seconds=")
    result = json.loads((Path(options.directory) / "result.json").read_text())
    assert (result["epochs"], result["loss"]) == (2, 0.51234)
    assert Path(options.plot).read_bytes().startswith(b"\x89PNG")


def test_curves_go_on_where_the_training_does(options: argparse.Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    """An epoch that was recorded but not saved is trained, and recorded, again."""
    first = TrainingLog(4, options)
    for epoch in (1, 2, 3):
        first.end(epoch, {"loss": float(epoch)})
    second = TrainingLog(4, options)
    second.resume(2, 20)
    second.end(3, {"loss": 30.0})
    assert "resumed from epoch 2 (step 20 of the training)" in capsys.readouterr().out.splitlines()
    assert second.resumed_from == 2
    assert [each["loss"] for each in read_history(Path(options.directory) / "history.json")] == [1.0, 2.0, 30.0]


def test_the_launcher_is_told_how_a_loop_of_ones_own_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it goes on from step 140, each step that it sees, and those that it does not see at the end of the epoch."""
    told: list[dict[str, object]] = []
    monkeypatch.setattr("tftraining.begin", lambda **values: told.append({"begin": values}))
    monkeypatch.setattr("tftraining.report", lambda **values: told.append(values))
    training_log = TrainingLog(4)
    training_log.start(2, 140, 70)
    training_log.begin()
    assert list(training_log.follow("ab")) == ["a", "b"]
    training_log.end(3, {"loss": 0.5})
    training_log.begin()
    assert told == [
        {"begin": {"step": 140, "epochs": 4, "steps_per_epoch": 70}},
        {"epoch": 3},
        {"step": 141},
        {"step": 142},
        {"step": 210},
        {"epoch": 3, "metrics": {"loss": 0.5}},
        {"epoch": 4},
    ]


def test_of_fit_the_launcher_knows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tftraining.report", lambda **values: pytest.fail("told twice"))
    training_log = TrainingLog(4)
    training_log.resume(2, 140)
    training_log.begin()
    training_log.end(3, {"loss": 0.5})


def test_a_process_that_is_not_in_charge_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training_log = TrainingLog(1)
    training_log.resume(1, 5)
    training_log.finish({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, "", "{", "{}"])
def test_a_damaged_history_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "history.json"
    if content is not None:
        path.write_text(content)
    assert read_history(path) == []


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for content in ("first", b"second"):
        write_atomically(tmp_path / "result.json", content)
        expected = content if isinstance(content, bytes) else content.encode()
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [expected]
