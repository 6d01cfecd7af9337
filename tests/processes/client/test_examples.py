"""The manifests of the other training programs, each as it is written, and each with its program killed in the middle.

One run shows that the manifest works, that the program goes on from what it saved, and that it learns all the same.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.client.false_alarms import false_alarms
from tests.support.client.local_run import Run
from tests.support.repository import REPOSITORY

# What undisturbed runs reach of the test is higher by 0.02 to 0.05.
GOOD = {
    "mirrored-custom-loop": ("worker-0@epoch=4", 0.9),
    "dtensor-mlp": ("worker-0@epoch=4", 0.9),
    "transfer-learning": ("worker-0@epoch=3", 0.8),
    "multi-worker-custom-loop": ("worker-1@epoch=3", 0.9),
    "multi-worker-evaluator": ("evaluator-0@seconds=4", 0.9),
    # Thirty steps: it learns its pictures, not those of the test. Ten steps are an epoch.
    "resnet50": ("worker-1@step=25", 0.0),
}


# The other manifests, each without a kill. `minimal` has no storage, and loses its backup and its model with its pods.
OTHERS = {
    "chief": [],
    "first-job": ["--env", "EPOCHS=3"],
    "minimal": [],
    "parameter-server": [],
    "queued": [],
}


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_told_of_a_training_that_is_as_it_should_be(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))  # `minimal` writes where it stands
    documents = [*yaml.safe_load_all((REPOSITORY / "examples" / f"{name}.yaml").read_text())]
    (job,) = (each for each in documents if each["kind"] == "TFTrainingJob")
    others = [each for each in documents if each["kind"] == "ConfigMap"]
    with Run(tmp_path, job, *OTHERS[name], others=others) as run:
        assert run.wait() == 0
        log = run.log
    assert [line for line in false_alarms(log) if name != "minimal" or "outside the job's storage" not in line] == []


# Half a minute and more each. `make test` has a kill of one of two workers of a manifest, in test_own_program.py and
# test_lessons.py, and of a program that is alone, in tests/exact.
@pytest.mark.slow_fault
@pytest.mark.parametrize("name", GOOD)
def test_it_runs_as_written_and_survives_a_kill(tmp_path: Path, name: str) -> None:
    job = yaml.safe_load((REPOSITORY / "examples" / f"{name}.yaml").read_text())
    kill, good = GOOD[name]
    with Run(tmp_path, job, "--kill", kill) as run:
        assert run.wait() == 0
        log = run.log
    assert f"(--kill {kill})" in log
    assert false_alarms(log) == []
    result = json.loads((run.job / "result.json").read_text())
    assert result["accuracy"] > good
    history = json.loads((run.job / "history.json").read_text())
    assert len(history) == result["epochs"]
    assert history[-1]["accuracy"] > history[0]["accuracy"]
    assert (run.job / "model" / "saved_model.pb").exists()
    if kill.startswith("worker"):
        assert 0 < result["resumed_from"] < result["epochs"]
        # From the backup at the end of an epoch, or from a copy in memory that is newer or as new.
        source = r"(epoch|memory at step) [1-9]"
        assert re.search(rf"^ +worker-\d was killed \(SIGKILL\), resumed from {source}", log, re.MULTILINE), log
    else:
        (*_, last) = json.loads((run.job / "evaluation.json").read_text())
        assert (last["epoch"], last["test_accuracy"]) == (result["epochs"], pytest.approx(result["accuracy"]))
    assert list(run.job.rglob("workertemp_*")) == []
