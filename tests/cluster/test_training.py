"""The main road on a real cluster: TensorFlow trains on two nodes, is hit in the middle, resumes, ends, is tidied up.

The undisturbed run is the yardstick: a training that was hit must reach the same epoch and, within noise, its accuracy.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.binaries import NATIVE_GANGS
from testbed.cluster import Cluster
from tests.support.cluster.api_server import connected
from tests.support.cluster.training import Manifest, Training, condition, example
from tftraining_operator.cluster.launcher_reports import LauncherEndpoint, through_api_server
from tftraining_operator.model.launcher_report import Report, parse_report

EPOCHS = 6
STEPS = 60
START_SECONDS = 180
TRAIN_SECONDS = 300
NOISE = 0.05
# Kubernetes' own scheduler places the pods of the second as a whole.
GANGS = [{}, *([{"runPolicy": {"scheduling": {"gang": "Native"}}}] if NATIVE_GANGS else [])]


@pytest.fixture
def training(
    cluster: Cluster, operator: object, namespace: str, directory: Path, request: pytest.FixtureRequest
) -> Training:
    """A training of two workers that has just been applied; its parameter changes fields of the spec."""
    arguments = [f"--epochs={EPOCHS}", f"--steps-per-epoch={STEPS}"]
    changes = getattr(request, "param", {})
    if "restartPolicy" in changes:  # without launchers `fit` of Keras 3 cannot train a gang
        arguments += ["--keras", "legacy"]
    manifest = example(cluster.images[1], *arguments, **changes)
    manifest["metadata"]["namespace"] = namespace
    _leave_traps(directory)
    cluster.kube.apply(manifest)
    return Training(cluster.kube, namespace, "digits")


def _leave_traps(directory: Path) -> None:
    """Put there what the cleanup must not touch: other jobs' directories, other indices, what a link leads to."""
    for name in ("other/workertemp_1", "digits/workertemp_0", "digits/workertemp_7", "digits/deeper/workertemp_1"):
        (directory / name).mkdir(parents=True)
    (directory / "digits" / "backup").mkdir()
    (directory / "precious").mkdir()
    (directory / "digits" / "workertemp_9").symlink_to("/training/precious")
    for each in (directory / "digits", *(directory / "digits").iterdir()):
        if not each.is_symlink():
            each.chmod(0o777)


def _assert_tidy(training: Training, directory: Path) -> None:
    """The temporary directory of worker 1 is gone, and nothing else is."""
    status = training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    assert status["cleanup"]["removed"] >= 1, status
    left = {str(each.relative_to(directory)) for each in directory.rglob("workertemp_*")}
    assert left == {
        "other/workertemp_1",
        "digits/workertemp_0",
        "digits/workertemp_7",
        "digits/deeper/workertemp_1",
        "digits/workertemp_9",
    }
    labels = "tftraining.dev/role=cleanup"
    training.wait_for("rid of the cleanup pod", lambda _: not _names(training, "pods", labels), 30)
    assert not _names(training, "services", f"tftraining.dev/job-name={training.name}")


def _names(training: Training, kind: str, selector: str) -> list[str]:
    found = training.kube.get(kind, "--namespace", training.namespace, "--selector", selector)["items"]
    return [each["metadata"]["name"] for each in found]


def _assert_trained(training: Training, directory: Path, accuracy: float) -> None:
    """The job has reached its last epoch and a model that any single process can load, as good as it should be."""
    result = json.loads((directory / "digits" / "result.json").read_text())
    assert result["epochs"] == EPOCHS
    assert f"epoch {EPOCHS}/{EPOCHS} " in training.log("worker-0")
    assert abs(result["accuracy"] - accuracy) < NOISE, result
    saved = directory / "digits" / "model.keras"
    model = saved if saved.exists() else saved.with_suffix("")  # a directory of tf_keras
    command = [sys.executable, "-m", "tftraining.lib.verify_model", "--model", str(model)]
    proof = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    measured = json.loads(proof.stdout.splitlines()[-1])
    assert measured["accuracy"] == pytest.approx(result["accuracy"], abs=1e-3)


def _hit_in_the_middle(training: Training) -> None:
    """Return when the third epoch has begun."""
    training.wait_for_line("worker-0", f"^epoch 2/{EPOCHS} ", START_SECONDS)


async def _heard_from_outside(training: Training) -> Report:
    """What an operator outside the cluster hears of the chief's launcher: through the API server's pod proxy."""
    chief = LauncherEndpoint(
        uid="", job="", namespace=training.namespace, pod=training.pod("worker-0"), ip="", job_state=""
    )
    async with connected(training.kube) as api:
        return parse_report(await through_api_server(api)(chief, "x.0"))  # that is no revision of this launcher


@pytest.fixture(scope="session")
def accuracies() -> dict[str, float]:
    """What the undisturbed run reached."""
    return {}


@pytest.mark.slow_fault  # those that are hit do all of it, too
def test_undisturbed(training: Training, directory: Path, accuracies: dict[str, float]) -> None:
    status = training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    assert status["restarts"] == {"counted": 0}, status
    assert status["attempt"] == 1
    assert status["progress"]["display"] == f"epoch {EPOCHS}/{EPOCHS}", status
    result = json.loads((directory / "digits" / "result.json").read_text())
    assert result["accuracy"] > 0.85
    accuracies["undisturbed"] = result["accuracy"]
    _assert_trained(training, directory, result["accuracy"])
    _assert_tidy(training, directory)


def _assert_resumed(training: Training, *workers: str) -> None:
    for worker in workers:
        resumed = training.wait_for_line(worker, r"^resumed from epoch \d+", 60)
        assert 0 < int(resumed.split()[-1]) < EPOCHS


@pytest.mark.parametrize("training", GANGS, indirect=True, ids=lambda spec: "gang" if spec else "")
@pytest.mark.parametrize("victim", ["worker-1", pytest.param("worker-0", marks=pytest.mark.slow_fault)])
def test_a_killed_program_is_started_again_in_its_pod_and_a_deleted_pod_comes_back_alone(
    training: Training, directory: Path, accuracies: dict[str, float], victim: str
) -> None:
    _hit_in_the_middle(training)
    heard = asyncio.run(_heard_from_outside(training))
    assert (heard.phase, heard.progress and heard.progress.epochs) == ("Training", EPOCHS)
    pods = training.uids()
    training.kill_program(victim)
    status = _wait_until_resumed(training, "inPlace")
    assert (status["restarts"]["counted"], status["restarts"]["inPlace"]) == (1, 1), status
    assert "recreated" not in status["restarts"], status
    last = status["lastRestart"]
    assert (last["pod"], last["signal"]) == (training.pod(victim), 9) and last["downSeconds"] < 30, status
    assert training.condition("Resumed") == "True"
    assert training.uids() == pods

    training.delete("worker-1")
    status = _wait_until_resumed(training, "recreated")
    assert status["lastRestart"]["pod"] == training.pod("worker-1"), status
    status = training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    assert (status["restarts"]["counted"], status["restarts"]["disruptions"]) == (1, 1), "the deletion is not charged"
    assert status["restarts"]["recreated"] == 1 and status["attempt"] == 1, status
    after = training.uids()
    assert after[training.pod("worker-0")] == pods[training.pod("worker-0")]
    new = training.kube.get("pod", training.pod("worker-1"), "--namespace", training.namespace)
    assert ("schedulingGroup" in new["spec"]) == ("scheduling" in training.job()["spec"]["runPolicy"])
    assert after[training.pod("worker-1")] != pods[training.pod("worker-1")]
    _assert_resumed(training, "worker-0", "worker-1")
    _assert_trained(training, directory, accuracies.get("undisturbed", 0.95))
    _assert_tidy(training, directory)


def _wait_until_resumed(training: Training, count: str) -> Manifest:
    """The status, once this restart is counted and the gang trains again from an epoch that it had saved."""

    def resumed(now: Manifest) -> bool:
        last = now.get("lastRestart", {})
        return bool(now.get("phase") == "Running" and now["restarts"].get(count) and "resumedFromEpoch" in last)

    status = training.wait_for("resumed", resumed, START_SECONDS)
    assert 0 < status["lastRestart"]["resumedFromEpoch"] < EPOCHS, status
    return status


@pytest.mark.slow_fault
def test_a_dead_launcher_is_one_pod_made_anew(cluster: Cluster, training: Training, directory: Path) -> None:
    _hit_in_the_middle(training)
    pods = training.uids()
    cluster.kill(training.namespace, training.pod("worker-0"))
    training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    status = training.status()
    assert (status["restarts"]["counted"], status["restarts"]["recreated"]) == (1, 1), status
    assert training.uids()[training.pod("worker-1")] == pods[training.pod("worker-1")]
    _assert_resumed(training, "worker-0", "worker-1")
    _assert_tidy(training, directory)


@pytest.mark.parametrize("victim", ["worker-1", pytest.param("worker-0", marks=pytest.mark.slow_fault)])
@pytest.mark.parametrize("training", [{"restartPolicy": {"mode": "Recreate"}}], indirect=True, ids=["Recreate"])
def test_without_a_launcher_the_gang_is_made_anew(
    cluster: Cluster, training: Training, directory: Path, accuracies: dict[str, float], victim: str
) -> None:
    _hit_in_the_middle(training)
    cluster.kill(training.namespace, training.pod(victim))
    restarted = training.wait_for("restarted", lambda now: now.get("attempt") == 2, 30)
    assert restarted["failure"]["pod"] == training.pod(victim)
    training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    status = training.status()
    assert (status["restarts"]["counted"], status["restarts"]["recreated"]) == (1, 1), status
    assert (status["lastRestart"]["exitCode"], status["lastRestart"]["signal"]) == (137, 9), status
    _assert_resumed(training, "worker-0", "worker-1")
    _assert_trained(training, directory, accuracies.get("undisturbed", 0.95))
    _assert_tidy(training, directory)


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [{"restartPolicy": {"mode": "Recreate"}}], indirect=True, ids=["Recreate"])
def test_without_a_launcher_a_deleted_pod_resumes_and_is_not_counted(training: Training, directory: Path) -> None:
    _hit_in_the_middle(training)
    training.delete("worker-1")
    training.wait_for("restarted", lambda now: now.get("attempt") == 2, 30)
    training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    status = training.status()
    assert (status["restarts"]["counted"], status["restarts"]["disruptions"]) == (0, 1), status
    _assert_resumed(training, "worker-0")
    _assert_tidy(training, directory)
