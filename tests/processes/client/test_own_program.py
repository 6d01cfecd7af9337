"""README's "Your own program" as it is written: its program from its ConfigMap, the real TensorFlow, and a kill."""

import re
from pathlib import Path

import yaml

from tests.support.client.false_alarms import false_alarms
from tests.support.client.local_run import Run
from tests.support.repository import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "own-program.yaml"


def test_a_program_in_a_config_map_resumes_after_a_kill(tmp_path: Path) -> None:
    config_map, job = yaml.safe_load_all(EXAMPLE.read_text())
    with Run(tmp_path, job, "--env", "EPOCHS=6", "--kill", "worker-1@epoch=3", others=[config_map]) as run:
        assert run.wait() == 0
        log = run.log
    assert re.search(r"^tftj +\| training, .* \(warm\)$", log, re.MULTILINE), log
    # From the backup at the end of epoch 2, or from a copy in memory that is newer.
    source = r"(epoch 2|memory at step (2[0-9][0-9]|300)), "
    assert re.search(rf"^ +worker-1 was killed \(SIGKILL\), resumed from {source}", log, re.MULTILINE), log
    assert "  trained   epoch 6 of 6, step 600" in log
    assert false_alarms(log) == []
    assert "  cleanup   1 temporary save directory removed" in log
    assert (run.job / "model.keras").stat().st_size > 0
    assert list(run.job.rglob("workertemp_*")) == []
