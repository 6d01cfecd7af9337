"""Manifests made from the schema of the custom resource: whatever it allows, nobody crashes over.

Each manifest goes two ways. The client judges it: it is stored, or refused with a message that names a field. The
operator parses and plans it all the same, as if the API server had stored it under a definition of another version:
pods are created, or the status says in one message why not. Templates are half the time such as people write them:
the schema allows any object there.
"""

import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
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
# For each manifest, once the free lists of the interpreter are full: less than anything that is kept of it.
GROWTH_BYTES = 100
MEASURED, ROUNDS = 100, 20
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
    """The operator's step for the manifest that may create pods, with these built: the one after the status of a job
    with launchers has its Keras."""
    job = parse_job({**manifest, "metadata": {**manifest["metadata"], **STORED}})
    step = plan(job, Observed(), NOW, "operator:1")
    if step.status.keras is not None and step.patch_condition is None:
        step = plan(msgspec.structs.replace(job, status=step.status), Observed(), NOW, "operator:1")
    for pod in islice(step.create_pods, PODS):
        json.dumps(pod)
    return step


def judged(manifest: Manifest) -> tuple[str, str]:
    """What the client and the operator make of the manifest: `stored` or `refused`, and `planned` or `told`."""
    try:
        stored, client = validate(json.loads(json.dumps(manifest))), "stored"
    except InvalidManifest as error:
        stored, client = manifest, "refused"
        assert str(error).startswith((f'The {KIND} "made" is invalid: ', f"{KIND} in version")), str(error)
        assert "Traceback" not in str(error)
    step = planned({**stored, **({"status": manifest["status"]} if "status" in manifest else {})})
    if step.create_pods or step.status.phase in ("Suspended", "Running", "Restarting", "Succeeded"):
        return client, "planned"
    another_controllers = not parse_job({**stored, "metadata": {**IDENTITY, **STORED}}).ours
    has_ended = manifest.get("status", {}).get("phase") == "Failed"  # with the words of that time
    if not another_controllers and not has_ended:
        said = step.patch_condition.message if step.patch_condition else step.status.message
        assert said and "Traceback" not in said, step.status
    return client, "told"


@pytest.mark.parametrize("count", COUNTS)
def test_whatever_the_schema_allows_nobody_crashes_over(count: int) -> None:
    seen = Counter[str]()
    for_each(count, lambda manifest: seen.update(judged(manifest)))
    print(dict(seen))
    assert set(seen) == {"stored", "refused", "planned", "told"}, f"a way that no manifest went: {seen}"


@pytest.mark.slow_fault
@pytest.mark.timeout(1800)
def test_manifests_leave_no_memory_behind() -> None:
    made: list[Manifest] = []

    def keep(manifest: Manifest) -> None:
        made.append(manifest)

    for_each(MEASURED, keep)
    taken = []
    tracemalloc.start()
    try:
        for _ in range(ROUNDS):
            for each in made:
                judged(each)
            gc.collect()
            taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    half = ROUNDS // 2
    grown = (taken[-1] - taken[half - 1]) / (len(made) * (ROUNDS - half))
    print(f"{grown:.1f} bytes a manifest in the second half: {[size - taken[0] for size in taken]}")
    assert grown < GROWTH_BYTES
