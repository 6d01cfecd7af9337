"""TF_CONFIG for every mix of roles: each process learns who its peers are and which of them it is."""

import json
from typing import Any

import pytest

from tests.unit.operator.builders import JobBuilder, a_job
from tftraining_operator.build.tf_config import tf_config
from tftraining_operator.model.names import Replica, Role


def config(job: JobBuilder, role: Role, index: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(tf_config(*job.parsed(), Replica(role, index)))
    return result


def at(role: str, *indices: int, port: int = 2222) -> list[str]:
    return [f"mnist-{role}-{index}.mnist.ml.svc:{port}" for index in indices]


MIXES: list[tuple[str, JobBuilder, dict[str, list[str]]]] = [
    ("workers", a_job().workers(3), {"worker": at("worker", 0, 1, 2)}),
    ("one worker", a_job().workers(1), {"worker": at("worker", 0)}),
    ("chief", a_job().without("worker").chief(), {"chief": at("chief", 0)}),
    ("chief and workers", a_job().chief(), {"chief": at("chief", 0), "worker": at("worker", 0, 1)}),
    ("chief and no worker", a_job().chief().workers(0), {"chief": at("chief", 0)}),
    (
        "parameter servers",
        a_job().chief().role("ps", replicas=2),
        {"chief": at("chief", 0), "worker": at("worker", 0, 1), "ps": at("ps", 0, 1)},
    ),
    ("evaluator", a_job().role("evaluator"), {"worker": at("worker", 0, 1)}),
    (
        "ports",
        a_job().role("worker", port=3333).chief(),
        {"chief": at("chief", 0), "worker": at("worker", 0, 1, port=3333)},
    ),
]


@pytest.mark.parametrize(("job", "cluster"), [mix[1:] for mix in MIXES], ids=[mix[0] for mix in MIXES])
def test_the_cluster(job: JobBuilder, cluster: dict[str, list[str]]) -> None:
    role: Role = "chief" if "chief" in cluster else "worker"
    assert config(job, role) == {"cluster": cluster, "task": {"type": role, "index": 0}}


@pytest.mark.parametrize(("role", "index"), [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 1), ("evaluator", 0)])
def test_everybody_sees_the_same_cluster_and_itself(role: Role, index: int) -> None:
    job = a_job().chief().role("ps", replicas=2).role("evaluator")
    mine = config(job, role, index)
    assert mine["task"] == {"type": role, "index": index}
    assert mine["cluster"] == config(job, "chief")["cluster"]
    assert "evaluator" not in mine["cluster"]


def test_the_chief_is_the_task_named_so_otherwise_worker_0() -> None:
    assert a_job().chief().parsed()[1].chief == Replica("chief", 0)
    assert a_job().parsed()[1].chief == Replica("worker", 0)
