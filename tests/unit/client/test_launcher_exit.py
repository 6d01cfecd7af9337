"""A launcher that dies is judged by the rules of the job, as a pod is in a cluster."""

from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_launched_job
from tftraining_api.model.names import Replica
from tftraining_client.local.launcher_process import LauncherExit

NO_MEMORY: dict[str, Any] = {"action": "FailJob", "onSignals": [9], "role": "worker"}


@pytest.mark.parametrize(
    ("rules", "code", "action"),
    [
        ([], 137, "Restart"),
        ([NO_MEMORY], 137, "FailJob"),
        ([NO_MEMORY], 1, "Restart"),
        ([{**NO_MEMORY, "role": "ps"}], 137, "Restart"),
        ([{"action": "Ignore", "onExitCodes": [137]}, NO_MEMORY], 137, "Ignore"),
    ],
)
def test_what_becomes_of_a_loss(rules: list[dict[str, Any]], code: int, action: str) -> None:
    spec = a_launched_job().set("restartPolicy.rules", rules).parsed()[1]
    assert LauncherExit(code, {}).decide_restart(spec, Replica("worker", 1)).action == action
