"""Parameter servers as real processes: a worker is killed and comes back, and the chief trains on all the while.

Each test with processes runs four TensorFlows for 20 to 40 s on two cores.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from tests.support.ports import free_ports
from tests.support.trainer.programs import Program, check_picture, history, run
from tftraining.cluster import Task
from tftraining.examples import parameter_server as program
from tftraining.lib import data
from tftraining.lib.options import UsageError

NAME = "parameter_server"
GOOD = 0.9  # test accuracy after 5 epochs of digits; undisturbed runs reach 0.94 to 0.97
MANY = 20  # epochs, so that a worker that was killed is back before the end
CLUSTER = {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4"]}


class Cluster:
    """Chief, one parameter server and two workers of one job; `with` ends them all."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
        self.addresses = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
        self.directory = directory
        self.arguments = (*arguments, "--linger", "3")
        self._all = ExitStack()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self._all.close()

    def start(self, role: str, index: int = 0) -> Program:
        config: dict[str, Any] = {"cluster": self.addresses, "task": {"type": role, "index": index}}
        return self._all.enter_context(Program(NAME, self.directory, *self.arguments, tf_config=config))

    def start_all(self) -> tuple[Program, Program, Program, Program]:
        return self.start("chief"), self.start("ps"), self.start("worker", 0), self.start("worker", 1)


def epochs(chief: Program) -> list[int]:
    return [int(found[1]) for line in chief.lines() if (found := re.match(r"epoch (\d+)/", line))]


@pytest.mark.parametrize("loop", ["custom", pytest.param("fit", marks=pytest.mark.slow_fault)])
def test_a_killed_worker_stops_nothing(tmp_path: Path, loop: str) -> None:
    """The chief goes on with the other worker, and takes the killed one back; at the end all end well."""
    with Cluster(tmp_path / "job", "--epochs", str(MANY), "--loop", loop) as cluster:
        chief, server, worker, victim = cluster.start_all()
        chief.wait_for_line("epoch 2/")
        victim.kill()
        back = cluster.start("worker", 1)
        chief.wait_for_line(f"epoch {max(epochs(chief)) + 2}/")
        back.wait_for_line("worker-1: serving")
        result = chief.result()
        assert epochs(chief) == list(range(1, MANY + 1))
        assert result["resumed_from"] == 0
        assert result["accuracy"] > GOOD
        assert history(tmp_path / "job")[-1]["test_accuracy"] == pytest.approx(result["accuracy"])
        assert "recovered" in chief.errors()
        for each in (server, worker, back):
            assert each.process.wait(timeout=60) == 0
            assert each.lines()[-1].endswith("the chief has gone")


@pytest.mark.slow_fault
@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_a_killed_parameter_server_costs_an_epoch(tmp_path: Path, loop: str) -> None:
    """It takes the weights with it, so the whole cluster starts anew from the backup."""
    with Cluster(tmp_path / "job", "--epochs", "6", "--loop", loop) as cluster:
        chief, server, *workers = cluster.start_all()
        chief.wait_for_line("epoch 3/")
        server.kill()
        assert chief.process.wait(timeout=90) != 0
        done = max(epochs(chief))
        for worker in workers:
            worker.kill()
        chief, *_ = cluster.start_all()
        resumed = chief.result()["resumed_from"]
        assert resumed in (done - 1, done), "the last one that it told of may not have been saved yet"
        assert epochs(chief) == list(range(resumed + 1, 7))


SHARDED = ("--loop", "custom", "--shard-variables", "--ps", "2")


@pytest.mark.slow_fault  # the gang above trains to the same accuracy
@pytest.mark.parametrize("options", [("--loop", "fit"), SHARDED])
def test_a_cluster_in_one_process_trains(tmp_path: Path, options: tuple[str, ...]) -> None:
    """And the saved model, loaded without any strategy, says what the workers have measured after the last epoch."""
    result = run(NAME, tmp_path, *options, "--plot", str(tmp_path / "curves.png"))
    assert result["accuracy"] > GOOD
    assert history(tmp_path)[-1]["test_accuracy"] == pytest.approx(result["accuracy"])
    assert history(tmp_path)[-1]["test_loss"] == pytest.approx(result["loss"], rel=1e-4)
    check_picture(tmp_path / "curves.png", tmp_path)
    model = keras.models.load_model(tmp_path / "model")
    digits = data.load("digits").test
    found = np.mean(np.argmax(model.predict(digits.images, verbose=0), axis=1) == digits.labels)
    assert found == pytest.approx(result["accuracy"])


@pytest.mark.parametrize(
    ("task", "cluster", "arguments", "message"),
    [
        (Task(), {"chief": ["a:1"], "worker": ["a:2"]}, [], "TF_CONFIG has no ps"),
        (Task(), {"worker": ["a:2"], "ps": ["a:3"]}, [], "TF_CONFIG has no chief"),
        (Task("evaluator"), CLUSTER, [], "the roles chief, worker and ps, not evaluator-0"),
        (Task(), CLUSTER, ["--jit"], "--jit is not supported"),
        (Task(), CLUSTER, ["--logdir", "logs", "--profile-steps", "10:20"], "--profile-steps needs --loop custom"),
        (Task(), CLUSTER, ["--loop", "custom", "--precision", "mixed_float16"], "mixed_bfloat16"),
    ],
)
def test_what_cannot_work_is_said(
    task: Task, cluster: dict[str, list[str]], arguments: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        program.check(program.parse(arguments), task, cluster)


def test_a_server_waits_for_a_chief_that_is_late_and_for_one_that_is_away_for_a_moment() -> None:
    times = iter([False] * 50 + [True] + [False] * 8 + [True] + [False] * 100)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    program.wait_for_the_end(lambda: next(times), 10, lambda: clock[0], sleep)
    assert clock[0] == pytest.approx(50 + 1 + 8 + 10, abs=1)
