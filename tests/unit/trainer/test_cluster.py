"""What TF_CONFIG says about a process, for every mix of roles and for what people get wrong."""

from __future__ import annotations

import json

import pytest

from tftraining.cluster import Task, TFConfigError, scaled, task_from_environment


def environment(role: str, index: object, **cluster: int) -> dict[str, str]:
    addresses = {name: [f"{name}-{number}:2222" for number in range(count)] for name, count in cluster.items()}
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": {"type": role, "index": index}})}


@pytest.mark.parametrize("value", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_without_tf_config_a_process_is_alone(value: dict[str, str]) -> None:
    assert task_from_environment(value) == Task("worker", 0, 1, True)


@pytest.mark.parametrize(
    ("role", "index", "cluster", "workers", "is_chief", "rank"),
    [
        ("worker", 0, {"worker": 1}, 1, True, 0),
        ("worker", 0, {"worker": 3}, 3, True, 0),
        ("worker", 2, {"worker": 3}, 3, False, 2),
        ("chief", 0, {"chief": 1}, 1, True, 0),
        ("chief", 0, {"chief": 1, "worker": 2}, 3, True, 0),
        ("worker", 0, {"chief": 1, "worker": 2}, 3, False, 1),
        ("worker", 0, {"chief": 0, "worker": 2}, 2, True, 0),
        ("worker", 1, {"chief": 1, "worker": 2, "ps": 4}, 3, False, 2),
        ("ps", 0, {"chief": 1, "worker": 2, "ps": 1}, 3, False, 0),
        ("evaluator", 0, {"worker": 2}, 2, False, 2),
        ("evaluator", 0, {"worker": 2, "evaluator": 1}, 2, False, 2),
        ("evaluator", 0, {"chief": 1}, 1, False, 1),
    ],
)
def test_exactly_one_member_of_the_gang_is_chief(
    role: str, index: int, cluster: dict[str, int], workers: int, is_chief: bool, rank: int
) -> None:
    assert task_from_environment(environment(role, index, **cluster)) == Task(role, index, workers, is_chief, rank)


def test_an_index_may_be_written_as_a_string() -> None:
    assert task_from_environment(environment("worker", "1", worker=2)).name == "worker-1"


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", environment("worker", 1, worker=2)["TF_CONFIG"])
    assert task_from_environment() == Task("worker", 1, 2, False, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"cluster": {"worker": []}}', '"task"'),
        ('{"task": {"type": "worker"}}', '"cluster"'),
        ('{"cluster": {"worker": "a:1"}, "task": {"type": "worker"}}', '"cluster"'),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}', "worker 1"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}', "chief 0"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}', "0, 1, 2"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "x"}}', "0, 1, 2"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": null}}', "0, 1, 2"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(TFConfigError, match=message) as error:
        task_from_environment({"TF_CONFIG": text})
    assert "\n" not in str(error.value)


def test_the_rate_is_proportional_to_the_workers_of_the_round() -> None:
    assert scaled(0.1, {}) == 0.1
    assert scaled(0.1, {"TFTRAINING_WORKERS": "2"}) == 0.1  # of a launcher without the other variable
    assert scaled(0.1, {"TFTRAINING_WORKERS": "3", "TFTRAINING_MAX_WORKERS": "4"}) == pytest.approx(0.075)
