"""A program's progress: its form in frames, and whether the program trains."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tftraining.launch import progress
from tftraining.launch.progress import Snapshot


def test_times_in_frames_are_ages() -> None:
    there = Snapshot(epoch=2, step=7, first_step_time=10.0, last_step_time=19.0, updated=1e9, metrics={"loss": 0.5})
    frame = json.loads(json.dumps(progress.to_frame(there, 20.0)))
    assert not {"connecting", "alone"} & frame.keys(), "what is not so takes no place"
    here = progress.from_frame(frame, 1000.0)
    assert (here.first_step_time, here.last_step_time) == (990.0, 999.0)
    assert (here.epoch, here.step, here.metrics, here.epochs) == (2, 7, {"loss": 0.5}, None)


@pytest.mark.parametrize("at", [-1e30, 0.0, 1e30])
def test_any_time_has_an_rfc3339_form(at: float) -> None:
    assert progress.rfc3339(at).endswith("Z")


def test_a_program_without_reports_counts_as_training_after_30_seconds() -> None:
    assert not progress.is_training(Snapshot(), 0.0, 29.9)
    assert progress.is_training(Snapshot(), 0.0, 30.0)
    assert not progress.is_training(Snapshot(updated=1.0), 0.0, 31.0)
    assert not progress.is_training(Snapshot(connecting=True), 0.0, 31.0)
    assert progress.is_training(Snapshot(updated=1.0, first_step_time=2.0), 0.0, 3.0)


def test_the_metrics_of_another_fit_are_not_those_of_this_one() -> None:
    earlier = Snapshot(epoch=2, step=80, fit_start=40, metrics={"accuracy": 0.9})
    assert progress.carry_over(earlier, Snapshot(step=60, fit_start=40)).metrics == {"accuracy": 0.9}
    assert progress.carry_over(earlier, Snapshot(step=10)).metrics == {}
    told = Snapshot(step=60, fit_start=40, metrics={"accuracy": 0.9}, metrics_step=40, updated=1.0, fit=2)
    assert ((progress.to_status(told) or {})["metrics"], (progress.to_status(told) or {})["fit"]) == ({}, 2)
    assert (progress.to_status(replace(told, metrics_step=60)) or {})["metrics"] == {"accuracy": 0.9}
