"""The learning rate by `tftraining.scaled`, as in docs/disruptions.md, in a gang that loses a worker for a while."""

import re
from pathlib import Path

import pytest

from tests.support.client.local_run import Run, manifest
from tests.support.repository import REPOSITORY

PROGRAM = REPOSITORY / "tests" / "support" / "trainer" / "scaled_rate_program.py"
RATES = re.compile(r"worker-0 +\| rate (\S+) with (\d) workers")


@pytest.mark.slow_fault
def test_the_rate_follows_the_number_of_workers(tmp_path: Path) -> None:
    """Also after a restart from a backup, which has the rate of the round that wrote it."""
    job = manifest()
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", str(PROGRAM)]
    container["env"] = [{"name": "EPOCHS", "value": "1000000"}]
    # The gang goes on without the worker: the import of TensorFlow in its new launcher takes longer than this second.
    job["spec"]["launcher"] |= {"warmStart": True, "memberTimeoutSeconds": 1}
    with Run(tmp_path, job, "--set", "spec.minReplicas=1", "--kill", "pod/worker-1@epoch=2") as run:
        run.wait_for(r"(?s)with 2 workers.*with 1 workers.*with 2 workers")
        rates = RATES.findall(run.log)
    assert set(rates) == {("0.1000", "2"), ("0.0500", "1")}
