"""The lessons, each with its manifest as it is written, and with its program killed after its third epoch.

One run shows that the program resumes from its last save, and that it reaches the figure of docs/programs.md.
"""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.client.false_alarms import false_alarms
from tests.support.client.local_run import Run
from tests.support.trainer.lessons import ACCURACY, FOURTH_EPOCH, LESSONS, RESUMED, manifest

# Half a minute each. `make test` has the loop that reports no progress, here, a `fit` of two workers in
# test_own_program.py, and a program that is alone in tests/exact.
SLOW = ("multi-worker-fit", "mirrored-custom-loop", "dtensor-mlp", "transfer-learning")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow_fault] if each in SLOW else []) for each in LESSONS]
)
def test_it_runs_as_written_and_survives_a_kill(tmp_path: Path, name: str) -> None:
    lesson = LESSONS[name]
    with Run(tmp_path, manifest(name)) as run:
        run.wait_for(rf"worker-0 +\| {FOURTH_EPOCH}")
        os.kill(run.program(lesson.victim, f"tftraining.lessons.{name.replace('-', '_')}"), signal.SIGKILL)
        assert run.wait() == 0
        log = run.log
    assert re.search(rf"^ +{lesson.victim} was killed \(SIGKILL\)", log, re.MULTILINE), log
    assert RESUMED.search(log), log
    assert false_alarms(log) == []
    assert float(ACCURACY.findall(log)[-1]) > lesson.good, log
    assert (run.job / lesson.saved).exists()
    assert list(run.job.rglob("workertemp_*")) == []
