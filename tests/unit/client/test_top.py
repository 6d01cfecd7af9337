"""What the pods of a job use, beside their requests and limits."""

import copy
from typing import Any

import pytest

from tests.support.client.cluster_objects import a_pod
from tftraining_api.model.quantity import in_milli
from tftraining_client.cluster.models import Pod
from tftraining_client.commands.output import table_lines
from tftraining_client.commands.top import as_object, usage, usage_table


def pod(*resources: dict[str, Any]) -> Pod:
    raw = a_pod(0).raw
    return Pod.of({**raw, "spec": {**raw["spec"], "containers": [{"resources": each} for each in resources]}})


def metrics(*usages: dict[str, str]) -> dict[str, Any]:
    return {"containers": [{"usage": each} for each in usages]}


# Two jobs of two namespaces, the second with a pod that the metrics server does not know yet.
TABLE_40 = """\
JOB      REPLICA    CPU     MEMORY
digits   worker-0   1236m   1.9Gi
mnist    worker-1   -       -
"""
TABLE_80 = """\
NAMESPACE   JOB      REPLICA    CPU     LIMIT   MEMORY   REQUEST   LIMIT
team        digits   worker-0   1236m   -       1.9Gi    2Gi       2Gi
team        mnist    worker-1   -       -       -        -         -
"""
TABLE_200 = """\
NAMESPACE   JOB      REPLICA    CPU     REQUEST   LIMIT   MEMORY   REQUEST   LIMIT   GPUS   POD               NODE
team        digits   worker-0   1236m   1500m     -       1.9Gi    2Gi       2Gi     2      digits-worker-0   node-1
team        mnist    worker-1   -       -         -       -        -         -       -      digits-worker-1   node-1
"""
TRAINS = {"requests": {"cpu": "1500m"}, "limits": {"memory": "2Gi", "nvidia.com/gpu": "2"}}
USED = metrics({"cpu": "1234567890n", "memory": "1992294Ki"}, {"cpu": "1m", "memory": "10Mi"})


def test_the_containers_of_a_pod_are_added_up() -> None:
    found = as_object(usage(pod(TRAINS, {"limits": {"cpu": 1, "memory": "1Gi"}}), USED))
    assert found["usage"] == {"cpuMilli": 1236, "memoryBytes": 1992294 * 1024 + 10 * 2**20}
    assert found["requests"] == {"cpuMilli": 2500, "memoryBytes": 3 * 2**30}
    assert found["limits"] == {"cpuMilli": None, "memoryBytes": 3 * 2**30}, "a container without a limit has no bound"
    assert (found["gpus"], found["replica"], found["node"]) == (2, "worker-0", "node-1")


def test_the_table_marks_memory_that_is_nearly_used_up() -> None:
    columns, rows = usage_table([usage(pod(TRAINS), USED), usage(pod({}), None)], wide=False)
    lines = ["".join(text for text, _ in line).split() for line in table_lines(columns, rows, None)]
    assert lines == [
        ["REPLICA", "CPU", "REQUEST", "LIMIT", "MEMORY", "REQUEST", "LIMIT", "GPUS"],
        ["worker-0", "1236m", "1500m", "-", "1.9Gi", "2Gi", "2Gi", "2"],
        ["worker-0", "-", "-", "-", "-", "-", "-", "-"],
    ]
    assert [row[4][1] for row in rows] == ["red", ""]
    for width in (40, 80):
        assert max(len("".join(text for text, _ in line)) for line in table_lines(columns, rows, width)) <= width


@pytest.mark.parametrize(
    ("quantity", "milli"), [("250m", 250), ("2", 2000), ("1n", 1), ("0", 0), (1.5, 1500), (None, None), ("x", None)]
)
def test_cores_are_read(quantity: object, milli: int | None) -> None:
    assert in_milli(quantity) == milli


@pytest.mark.parametrize(("width", "table"), [(40, TABLE_40), (80, TABLE_80), (200, TABLE_200), (None, TABLE_200)])
def test_the_table_of_all_jobs(width: int | None, table: str) -> None:
    def of(job: str, index: int, *resources: dict[str, Any]) -> Pod:
        raw = copy.deepcopy(a_pod(index).raw)
        raw["metadata"] |= {"namespace": "team"}
        raw["metadata"]["labels"]["tftraining.dev/job-name"] = job
        raw["spec"]["containers"] = [{"resources": each} for each in resources]
        return Pod.of(raw)

    usages = [usage(of("digits", 0, TRAINS), USED), usage(of("mnist", 1, {}), None)]
    columns, rows = usage_table(usages, wide=True, jobs=True, namespaces=True)
    lines = ["".join(text for text, _ in line).rstrip() for line in table_lines(columns, rows, width)]
    assert "".join(f"{line}\n" for line in lines) == table
