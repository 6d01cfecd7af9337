"""Manifests made from the schema of the custom resource: whatever it allows, nobody crashes over.

Each manifest goes two ways. The client judges it: it is stored, or refused with a message that names a field. The
operator parses and plans it all the same, as if the API server had stored it under a definition of another version:
pods are created, or the status says in one message why not. Templates are half the time such as people write them:
the schema allows any object there.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.crd_values import values
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import KIND
from tftraining_client.validation import InvalidManifest, validate
from tftraining_client.validation.crd import custom_resource
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.step import Step

Manifest = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
IDENTITY = {"name": "made", "namespace": "ml"}
STORED = {"uid": "0a1b2c3d-0000", "generation": 1, "resourceVersion": "7", "creationTimestamp": "2026-03-01T12:00:00Z"}
CONTAINER = {"name": "tensorflow", "image": "trainer:1", "command": ["python", "train.py"]}
GOOD = {"template": {"spec": {"containers": [CONTAINER]}}, "replicaSpecs": {"worker": {"replicas": 2}}}
# More of a job's pods are alike.
PODS = 40
# In a test run for every change, and among the slow faults.
COUNTS = [40, pytest.param(10_000, marks=[pytest.mark.slow_fault, pytest.mark.timeout(3600)])]


def templates() -> st.SearchStrategy[Manifest]:
    """Pod templates as people write them, with a mistake here and there."""
    text = st.sampled_from(["", "x", "tensorflow", "side-car"])
    resources = st.sampled_from(
        [{}, {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}}, {"requests": {"cpu": "x"}}, None]
    )
    container = st.fixed_dictionaries(
        {"name": text},
        optional={
            "image": text,
            "command": st.lists(text, max_size=2),
            "resources": resources,
            "env": st.lists(st.fixed_dictionaries({"name": text, "value": text}), max_size=2),
            "securityContext": st.sampled_from([{}, None, {"runAsUser": 0}, {"privileged": True}]),
        },
    )
    spec = st.fixed_dictionaries(
        {"containers": st.lists(container | st.just(CONTAINER), max_size=3)},
        optional={"volumes": st.lists(st.fixed_dictionaries({"name": text}), max_size=2), "hostNetwork": st.booleans()},
    )
    return st.fixed_dictionaries({"spec": spec | st.just({"containers": [CONTAINER]})})


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    fields = custom_resource().schema["properties"]
    if draw(st.booleans()):  # a good job with one field, or two, of any value
        names = draw(st.lists(st.sampled_from(sorted(fields["spec"]["properties"])), unique=True, max_size=2))
        spec = GOOD | {name: draw(values(fields["spec"]["properties"][name])) for name in names}
    else:
        spec = draw(values(fields["spec"]))
        if draw(st.booleans()):
            spec["template"] = draw(templates())
    manifest = {"apiVersion": "tftraining.dev/v1", "kind": KIND, "metadata": dict(IDENTITY), "spec": spec}
    if draw(st.integers(0, 3)) == 0:
        manifest["status"] = draw(values(fields["status"]))
    return manifest


def for_each(count: int, check: Callable[[Manifest], None]) -> None:
    """Check so many manifests, the same in every run."""
    profile = settings(
        derandomize=True,
        database=None,
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    profile(given(manifests())(check))()


def planned(manifest: Manifest) -> Step:
    """The operator's first step for the manifest, with its pods built."""
    step = plan(parse_job({**manifest, "metadata": {**manifest["metadata"], **STORED}}), Observed(), NOW, "operator:1")
    for pod in islice(step.create_pods, PODS):
        json.dumps(pod)
    return step


@pytest.mark.parametrize("count", COUNTS)
def test_whatever_the_schema_allows_nobody_crashes_over(count: int) -> None:
    seen = {"stored": 0, "refused": 0, "planned": 0, "told": 0}

    def check(manifest: Manifest) -> None:
        try:
            stored = validate(json.loads(json.dumps(manifest)))
            seen["stored"] += 1
        except InvalidManifest as error:
            stored = manifest
            seen["refused"] += 1
            assert str(error).startswith((f'The {KIND} "made" is invalid: ', f"{KIND} in version")), str(error)
            assert "Traceback" not in str(error)
        step = planned({**stored, **({"status": manifest["status"]} if "status" in manifest else {})})
        if step.create_pods or step.status.phase in ("Suspended", "Running", "Restarting", "Succeeded"):
            seen["planned"] += 1
        else:
            seen["told"] += 1
            if not parse_job({**stored, "metadata": {**IDENTITY, **STORED}}).ours:
                return  # another controller's job
            if manifest.get("status", {}).get("phase") == "Failed":
                return  # it has ended before, with the words of that time
            said = step.patch_condition.message if step.patch_condition else step.status.message
            assert said and "Traceback" not in said, step.status

    for_each(count, check)
    print(seen)
    assert min(seen.values()) > 0, f"a way that no manifest went: {seen}"
