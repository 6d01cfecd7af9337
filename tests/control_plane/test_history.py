"""The history on a real API server: one curve in the status, for a person who may only look."""

import json
import time
from pathlib import Path
from typing import Any

from tests.control_plane.test_client import VIEW, service_account, tftj
from tests.control_plane.test_operator_in_place import IN_PLACE, launcher, now, train
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import ChiefLauncher
from tests.support.control_plane.jobs import NewJob, wait_until
from tftraining.launch.history import Mark, Series
from tftraining_client import Client

__all__ = ["launcher"]


def history(steps: range, resumed: int, value: float) -> dict[str, Any]:
    """The history of a launcher whose program has reported at these steps, as its `/status` has it."""
    series, began = Series(), time.time() - 5000
    for step in steps:
        metrics = {"loss": value, "accuracy": step / 1e5, **{f"höhe {number}": -step / 7 for number in range(4)}}
        series.record(step, step // 100 + 1, began + step, metrics, resumed if step == steps[0] else None)
    series.mark(Mark(began + steps[-1], steps[-1], "Killed"))
    return {**series.cut().to_json(), "after": series.after}


def test_the_history_is_one_curve_for_a_viewer_over_a_new_launcher(
    new_job: NewJob, control_plane: ControlPlane, launcher: ChiefLauncher, tmp_path: Path
) -> None:
    progress = {"epoch": 3, "epochs": 99, "step": 999, "metrics": {"loss": 0.5}}
    launcher.say(progress={**progress, "updatedTime": now()}, history=history(range(1, 1000), 0, 0.5))
    job = new_job(**IN_PLACE)
    train(job, launcher)
    wait_until(lambda: job.status().get("history"), "the history")
    launcher.say(
        progress={**progress, "epoch": 9, "step": 1500, "updatedTime": now()},
        history=history(range(901, 1501), 900, 0.25),
    )
    wait_until(lambda: job.status()["history"]["steps"][-1] == 1500, "the history of the new launcher")
    stored = job.status()["history"]
    assert 2 * 1024 < len(json.dumps(stored, separators=(",", ":"), ensure_ascii=False).encode()) <= 8 * 1024

    person = service_account(control_plane, job.namespace, VIEW, tmp_path)
    plotted = tftj(person, "plot", "job", "--metric", "loss")
    assert plotted.stdout.startswith("loss: 0.25 at 1500") and "Killed" in plotted.stdout, plotted.stderr
    with Client(kubeconfig=str(person)) as viewer:
        found = viewer.history("job")
        assert viewer.history("job", namespace=job.namespace) == found
    steps = [point.step or 0 for point in found.metrics["loss"]]
    assert steps == sorted(set(steps)) and (steps[0], steps[-1]) == (1, 1500)
    assert {point.value for point in found.metrics["loss"] if (point.step or 0) <= 900} == {0.5}
    assert {point.value for point in found.metrics["loss"] if (point.step or 0) > 900} == {0.25}
    assert found.metrics.keys() == {"loss", "accuracy", *(f"höhe {number}" for number in range(4))}
    assert [mark.reason for mark in found.restarts] == ["Killed", "Killed"]

    job.succeed_pod("job-worker-0")
    assert job.wait_for("Succeeded")["history"] == stored
