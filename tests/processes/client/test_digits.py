"""The first command of the README: the example's manifest as it is, with the real TensorFlow and a kill."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.client.false_alarms import false_alarms
from tests.support.client.local_run import Run
from tests.support.repository import REPOSITORY
from tftraining.launch.failure.cause import is_log
from tftraining_client.commands.plot import read_history

EXAMPLE = REPOSITORY / "examples" / "multi-worker-digits.yaml"
SHORTER = 'spec.template.spec.containers.0.args=[--epochs, "4", --steps-per-epoch, "40"]'
QUIET = ("--env", "TF_CPP_MIN_LOG_LEVEL=3")  # as in `make demo`
GOOD = 0.85  # test accuracy; undisturbed runs of 160 steps reach 0.91 to 0.95


@pytest.mark.slow_fault
def test_a_killed_worker_costs_a_few_steps_and_no_import(tmp_path: Path) -> None:
    job = yaml.safe_load(EXAMPLE.read_text())
    with Run(tmp_path, job, "--kill", "worker-1@epoch=3", "--set", SHORTER, *QUIET) as run:
        assert run.wait() == 0
        log = run.log
    assert re.search(r"^tftj +\| training, .* \(warm\)$", log, re.MULTILINE), log
    assert len(re.findall(r"resumed from epoch 2 \(step \d+ of the training\)", log)) == 2
    # From the backup at the end of epoch 2, or from a copy in memory that is newer or as new.
    source = r"(epoch 2|memory at step (8[0-9]|9[0-9]|1[01][0-9])), "
    assert re.search(rf"^ +worker-1 was killed \(SIGKILL\), resumed from {source}", log, re.MULTILINE), log
    assert "  trained   epoch 4 of 4, step 160" in log  # the proof of the model takes seconds: it was surely seen
    assert f"  model     {run.job / 'model'}" in log
    assert false_alarms(log) == []
    assert [line for line in log.splitlines() if is_log(line.partition(" | ")[2])] == []
    result = json.loads((run.job / "result.json").read_text())
    assert (result["resumed_from"], result["workers"]) == (2, 2)
    assert result["accuracy"] > GOOD
    assert list(run.job.rglob("workertemp_*")) == []
    history = read_history(run.job)
    points = [(point.epoch or 0, point.step or 0) for point in history.metrics["loss"]]
    assert points == sorted({(epoch, 40 * epoch) for epoch, _ in points})
    assert points[-1] == (4, 160) and {"loss", "accuracy"} <= history.metrics.keys()
    assert [mark.reason for mark in history.restarts] == ["Killed"]
