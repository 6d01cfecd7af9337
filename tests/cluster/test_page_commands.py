"""The commands of kubectl and `tftj` on the pages that need kubelets, run as they are written, on jobs that train.

Each job has the name that the commands use. ELSEWHERE are the commands that cannot run here. Commands that need no
kubelet run in test_page_commands.py and test_page_tftj.py of tests/control_plane.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import binaries
from testbed.cluster import Cluster
from testbed.kube import Kube
from tests.control_plane import test_page_commands as without_kubelets
from tests.control_plane.test_page_tftj import JOB, ON_KUBELETS, arguments, of_tftj
from tests.support.cluster.training import Manifest, Training, example
from tests.unit.docs.test_commands import is_tftj, of

JOBS = (JOB, "my-training")
START_SECONDS = 240
COMMAND_SECONDS = 120
Words = tuple[str, ...]
# The commands that do not run here, and why.
ELSEWHERE = {
    "kubectl exec on-gpus-worker-0 -- nvidia-smi": "there is no GPU",
    "kubectl exec digits-worker-1 -- pkill -KILL -f ^python -m tftraining.examples": (
        "the trainer image has no pkill; without a pod: tests/processes/launch/test_kill_by_hand.py"
    ),
}


def needing_kubelets() -> list[Words]:
    """The words of each complete command, what kills a program last."""
    of_kubectl = [
        each.words
        for each in of("kubectl")
        if not is_tftj(each)
        and each.words[1] in without_kubelets.NEED_KUBELETS
        and (each.whole or without_kubelets.is_complete(each))
    ]
    of_client = [words for words in of_tftj() if " ".join(words) in ON_KUBELETS]
    return sorted(dict.fromkeys([*of_client, *of_kubectl]), key=lambda words: words[1] == "exec")


def here() -> list[Words]:
    return [words for words in needing_kubelets() if " ".join(words) not in ELSEWHERE]


def job_of(words: Words) -> str:
    """The job that the command is about; empty if it names none."""
    if words[0] != "kubectl":
        return JOB
    selected = [word.partition("=")[2] for word in words if word.startswith("tftraining.dev/job-name=")]
    pods = [word.rsplit("-", 2)[0] for word in without_kubelets.objects_of(words) if word.count("-") >= 2]
    return next(iter([*selected, *pods]), "")


class Reader:
    """Types the commands in the namespace of the training, which is that of the context."""

    def __init__(self, training: Training, directory: Path) -> None:
        self.training = training
        self._kubeconfig = directory / "kubeconfig"
        shutil.copy(training.kube.kubeconfig, self._kubeconfig)
        where = f"--namespace={training.namespace}"
        Kube(self._kubeconfig, training.kube.cache).kubectl("config", "set-context", "--current", where)

    def run(self, words: Words) -> str:
        """What a command prints that ends by itself."""
        done = subprocess.run(
            self._command(words),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def interrupt(self, words: Words, look: Callable[[str], None]) -> None:
        """Have a look at the first line of a command that goes on, and press Ctrl-C."""
        with subprocess.Popen(
            self._command(words),
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                first = process.stdout.readline()
                if first:
                    look(first)
                    process.send_signal(signal.SIGINT)
                _, told = process.communicate(timeout=COMMAND_SECONDS)
            finally:
                process.kill()
        assert first and process.returncode == 130 and "Traceback" not in told, (first, process.returncode, told)

    def _command(self, words: Words) -> list[str]:
        if words[0] == "kubectl":
            return [str(binaries.ensure("kubectl") / "kubectl"), *words[1:]]
        return [sys.executable, "-m", "tftraining_client", *arguments(words)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self._kubeconfig)}


def kubectl_logs(reader: Reader, words: Words) -> None:
    """The logs of both workers."""
    told = reader.run(words)
    for pod in ("worker-0", "worker-1"):
        assert f"[pod/{reader.training.pod(pod)}/tensorflow] " in told, told[-2000:]


def kubectl_exec(reader: Reader, words: Words) -> None:
    """The kill of the program of worker-1."""
    reader.run(words)

    def resumed(now: Manifest) -> bool:
        last = now.get("lastRestart", {})
        return bool(now.get("phase") == "Running" and last.get("resumedFrom") and last.get("signal") == 9)

    status = reader.training.wait_for("training again after the kill", resumed, START_SECONDS)
    assert status["lastRestart"]["pod"] == reader.training.pod("worker-1"), status


def tftj_logs(reader: Reader, words: Words) -> None:
    """The logs of both workers, or the first line."""
    if "-f" in words:
        reader.interrupt(words, is_log_line)
        return
    told = reader.run(words).splitlines()
    assert {line.partition(" ")[0] for line in told} == {"worker-0", "worker-1"}, told[-20:]


def is_log_line(line: str) -> None:
    assert line.startswith(("worker-0 | ", "worker-1 | ")), line


def tftj_tensorboard(reader: Reader, words: Words) -> None:
    """TensorBoard at the address that the page names."""

    def serves(line: str) -> None:
        assert line == "http://127.0.0.1:6006/\n", line
        with urllib.request.urlopen(f"{line.strip()}data/environment", timeout=60) as answer:
            assert json.load(answer)["data_location"] == f"/training/{reader.training.name}"

    reader.interrupt(words, serves)


RUN = {
    ("kubectl", "logs"): kubectl_logs,
    ("kubectl", "exec"): kubectl_exec,
    ("tftj", "logs"): tftj_logs,
    ("tftj", "tensorboard"): tftj_tensorboard,
}


def test_each_command_that_needs_kubelets_has_its_test_or_its_reason() -> None:
    commands = needing_kubelets()
    assert {*ELSEWHERE} - {" ".join(words) for words in commands} == set()
    assert [words for words in here() if words[:2] not in RUN or not job_of(words)] == []
    assert {job_of(words) for words in here()} == {*JOBS}


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", JOBS)
def test_the_commands_about_a_job(
    cluster: Cluster, operator: object, namespace: str, directory: Path, tmp_path: Path, name: str
) -> None:
    manifest = example(cluster.images[1], "--epochs=1000")
    manifest["metadata"] |= {"name": name, "namespace": namespace}
    manifest["spec"]["storage"].pop("directory", None)
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, name)
    training.wait_for("trained for two epochs", lambda now: now.get("progress", {}).get("epoch", 0) > 2, START_SECONDS)
    reader = Reader(training, tmp_path)
    for words in here():
        if job_of(words) == name:
            RUN[words[0], words[1]](reader, words)
