"""docs/migration.md: the translated manifest is valid and trains, and its rules restart what TFJob restarts."""

import re

import pytest
import yaml

from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.documented_jobs import running

DOCUMENT = (REPOSITORY / "docs" / "migration.md").read_text(encoding="utf-8")

MANIFEST_AFTER = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)[1])


def test_the_manifest_after_is_valid_and_trains() -> None:
    cluster = running(MANIFEST_AFTER)
    assert (cluster.pods, cluster.status.ready) == (["chief-0", "worker-0", "worker-1"], "3/3")
    for pod in cluster.api.pods.values():
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["priorityClassName"] == "high"
        assert container["image"] == "example.com/mnist:7"
        assert {"name": "tftraining-storage", "mountPath": "/training"}.items() <= container["volumeMounts"][0].items()
    (group,) = (each for each in cluster.api.auxiliary_objects.values() if each["kind"] == "PodGroup")
    assert group["spec"] == {"minMember": 3, "queue": "research", "priorityClassName": "high"}


@pytest.mark.parametrize(("code", "phase"), [(1, "Failed"), (127, "Failed"), (130, "Running"), (137, "Running")])
def test_the_rules_of_the_manifest_after_restart_the_exit_codes_that_tfjob_restarts(code: int, phase: str) -> None:
    assert running(MANIFEST_AFTER).exit("worker-1", code=code).run_timers().status.phase == phase
