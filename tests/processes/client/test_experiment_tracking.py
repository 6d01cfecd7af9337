"""The recipe of docs/integrations.md with the real MLflow: one run for a job whose programs and pods are killed."""

import re
from pathlib import Path

import pytest

from tests.support.client.local_run import Run, manifest
from tests.support.repository import REPOSITORY

EPOCHS, STEPS = 6, 5
TRAINING = f"""
import sys, time, tftraining
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("digits")
backup = os.path.join(os.environ["TFTRAINING_DIR"], "backup")
done = int(open(backup).read()) if os.path.exists(backup) else 0
run_of_this_job()
mlflow.log_metric("round", int(os.environ["TFTRAINING_ROUND"]), step=int(os.environ["TFTRAINING_ATTEMPT"]))
for epoch in range(done + 1, {EPOCHS} + 1):
    for step in range(1, {STEPS} + 1):
        tftraining.report(step=(epoch - 1) * {STEPS} + step, epoch=epoch, epochs={EPOCHS})
        time.sleep(0.1)
    mlflow.log_metric("loss", 1 / epoch, step=epoch)
    with open(backup, "w") as file:
        file.write(str(epoch))
mlflow.end_run()
"""


def recipe() -> str:
    """The first Python block of the page's part on MLflow."""
    page = (REPOSITORY / "docs" / "integrations.md").read_text(encoding="utf-8").partition("\n### MLflow\n")[2]
    found = re.search(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


ONE = ["worker-0@epoch=2"]
# The launcher that has counted the rounds dies with the only pod.
THREE = [*ONE, "pod/worker-0@epoch=3", "worker-0@epoch=5"]


@pytest.mark.parametrize(
    ("kills", "rounds"),
    [(ONE, [1, 2]), pytest.param(THREE, [1, 2, 1, 2], marks=pytest.mark.slow_fault)],
    ids=["one kill", "three kills"],
)
def test_mlflow_keeps_one_run(tmp_path: Path, kills: list[str], rounds: list[int]) -> None:
    work = tmp_path / "work"
    store = work / "tracking"
    work.mkdir()
    program = work / "train.py"
    program.write_text(recipe() + TRAINING)
    job = manifest(workers=1)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", str(program), store.as_uri()]
    # MLflow refuses its file store, which needs no server, unless it is asked for.
    options = ["--env", "MLFLOW_ALLOW_FILE_STORE=true", *(word for kill in kills for word in ("--kill", kill))]
    with Run(tmp_path, job, *options) as run:
        assert run.wait() == 0, run.log
        log = run.log
    assert log.count("SIGKILL for") == len(kills), log
    runs = list(store.glob("*/*/meta.yaml"))
    assert len(runs) == 1, "all starts of the program use one run"
    (metadata,) = runs
    assert "run_name: digits" in metadata.read_text() and "status: 3" in metadata.read_text()  # FINISHED
    values = [line.split() for line in (metadata.parent / "metrics" / "loss").read_text().splitlines()]
    assert sorted({int(step) for _, _, step in values}) == list(range(1, EPOCHS + 1))
    starts = [line.split() for line in (metadata.parent / "metrics" / "round").read_text().splitlines()]
    assert [(int(float(value)), step) for _, value, step in starts] == [(each, "1") for each in rounds]
