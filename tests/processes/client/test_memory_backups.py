"""Backups in memory of `tftj run`, with the real TensorFlow: what a kill costs with them and without them."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.client.local_run import Run
from tests.support.repository import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "multi-worker-digits.yaml"
SHORTER = 'spec.template.spec.containers.0.args=[--epochs, "4", --steps-per-epoch, "100"]'


def run_example(tmp_path: Path, *options: str) -> str:
    """The log of the example with a kill in the middle of its third epoch."""
    job = yaml.safe_load(EXAMPLE.read_text())
    with Run(tmp_path, job, "--set", SHORTER, "--kill", "worker-1@step=250", *options) as run:
        assert run.wait() == 0
        log = run.log
    assert "  trained   epoch 4 of 4, step 400" in log
    return log


@pytest.mark.slow_fault
def test_a_kill_costs_the_steps_since_the_newest_copy(tmp_path: Path) -> None:
    # With any share of the time a busy machine copies often enough, too.
    log = run_example(tmp_path, "--set", "spec.launcher.memoryBackup.maxOverheadPercent=100")
    found = re.search(r"worker-1 was killed \(SIGKILL\), resumed from memory at step (\d+), .* lost(.*)$", log, re.M)
    assert found and int(found[1]) > 200, log
    assert re.search(r"^tftj +\| backups in memory: the first at step \d+$", log, re.MULTILINE), log
    assert re.search(r"^  backups   in memory, last seen at step \d+", log, re.MULTILINE), log


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    "option", ['spec.launcher.memoryBackup.mode="Off"', "spec.launcher.memoryBackup.sizeLimit=1k"], ids=["off", "small"]
)
def test_without_them_a_kill_costs_the_epoch(tmp_path: Path, option: str) -> None:
    log = run_example(tmp_path, "--set", option)
    assert re.search(r"^ +worker-1 was killed \(SIGKILL\), resumed from epoch 2, ", log, re.MULTILINE), log
    assert ("  backups   none in memory: two copies need" in log) == ("sizeLimit" in option), log
