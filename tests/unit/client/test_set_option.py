"""--set: what it sets, and what it says to a path that leads to no field."""

from typing import Any

import pytest

from tests.support.control_plane.manifests import minimal
from tftraining_client.errors import UserError
from tftraining_client.set_option import with_set_options
from tftraining_client.validation import validate

CONTAINER = "spec.template.spec.containers[0]"


def changed(*changes: str) -> tuple[dict[str, Any], list[str]]:
    """The minimal job with these changes, and what was told of them."""
    notes: list[str] = []
    return with_set_options(minimal(), changes, notes.append), notes


def container(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("path", [f"{CONTAINER}.command", "spec.template.spec.containers.0.command"])
def test_an_item_of_a_list(path: str) -> None:
    job, notes = changed(f"{path}=[a, b]")
    assert (container(job)["command"], notes) == (["a", "b"], [])
    assert list(job["spec"]["template"]["spec"]) == ["containers"], "nothing else is made"


def test_an_item_of_a_list_in_an_item_of_a_list() -> None:
    job, _ = changed(f"{CONTAINER}.command=[python, a.py]", f"{CONTAINER}.command[1]=b.py")
    assert container(job)["command"] == ["python", "b.py"]


def test_a_field_that_the_manifest_does_not_have() -> None:
    job, notes = changed("spec.runPolicy.suspend=true", "spec.restartPolicy.maxRestarts=3", "spec.minReplicas=1")
    assert job["spec"]["runPolicy"] == {"suspend": True}
    assert job["spec"]["restartPolicy"] == {"maxRestarts": 3}
    assert notes == [] and validate(job)


def test_a_field_whose_parent_is_empty() -> None:
    job, _ = changed("spec.storage=null", "spec.storage.directory=x")
    assert job["spec"]["storage"] == {"directory": "x"}


def test_keys_that_anybody_may_choose() -> None:
    job, notes = changed(
        "metadata.labels.team=vision",
        r"metadata.annotations.example\.com/run='1'",
        r"spec.template.metadata.labels.example\.com/gpu=none",
        r"metadata.labels.a\[0]=brackets",
    )
    assert job["metadata"]["labels"] == {"team": "vision", "a[0]": "brackets"}
    assert job["metadata"]["annotations"] == {"example.com/run": "1"}
    assert job["spec"]["template"]["metadata"] == {"labels": {"example.com/gpu": "none"}}
    assert notes == []


def test_a_number_may_be_a_key() -> None:
    assert changed("metadata.labels.0=a")[0]["metadata"]["labels"] == {"0": "a"}


def test_a_field_of_a_pod_that_only_a_cluster_can_judge_is_told_of() -> None:
    job, notes = changed("spec.template.spec.nodeSelector.disk=fast", f"{CONTAINER}.args=[--fast]")
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
    assert container(job)["args"] == ["--fast"]
    assert notes == [
        "--set spec.template.spec.nodeSelector.disk=fast: cannot validate the new field "
        "spec.template.spec.nodeSelector without a cluster; keeping it",
        f"--set {CONTAINER}.args=[--fast]: cannot validate the new field "
        f"{CONTAINER}.args without a cluster; keeping it",
    ]


def test_a_field_of_a_pod_that_the_manifest_has_is_not() -> None:
    job, notes = changed(f"{CONTAINER}.image=other")
    assert (container(job)["image"], notes) == ("other", [])


def test_a_value_is_yaml_and_may_have_an_equals_sign() -> None:
    job, _ = changed(f"{CONTAINER}.command=[a, x=1]", "spec.successPolicy=AllWorkers")
    assert container(job)["command"] == ["a", "x=1"]
    assert job["spec"]["successPolicy"] == "AllWorkers"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", "must be PATH=VALUE, such as"),
        ("spec", "must be PATH=VALUE, such as"),
        ("=1", "must be PATH=VALUE, such as"),
        ("spec.=1", "a path has names separated by dots"),
        ("spec..storage=1", "a path has names separated by dots"),
        ("spec.template.spec.containers[name=tensorflow].image=x", "a path has names separated by dots"),
        ("spec.template.spec.containers[-1].image=x", "a path has names separated by dots"),
        ("spec.minReplicas=[", "the value is not YAML: "),
        ("kind=Job", "only fields of metadata and of spec can be set, not kind"),
        ("status.phase=Failed", "only fields of metadata and of spec can be set, not status"),
        ("replicas=1", "only fields of metadata and of spec can be set, not replicas"),
        ("spec.replicaSpec.worker.replicas=1", "spec has no field replicaSpec; did you mean replicaSpecs?"),
        ("spec.runpolicy.suspend=true", "spec has no field runpolicy; did you mean runPolicy?"),
        ("spec.replicaSpecs.workers.replicas=1", "spec.replicaSpecs has no field workers; did you mean worker?"),
        ("spec.replicaSpecs.xyz.replicas=1", "spec.replicaSpecs has no field xyz; it has chief, evaluator, ps, worker"),
        (
            "spec.replicaSpecs.worker.replicas.min=1",
            "spec.replicaSpecs.worker.replicas is a number, which has no fields",
        ),
        ("spec.minReplicas.x=1", "spec.minReplicas is a number, which has no fields"),
        ("metadata.lables.a=b", "metadata has no field lables; did you mean labels?"),
        ("metadata.name.x=b", "metadata.name is a string, which has no fields"),
        (f"{CONTAINER}.comand=[a]", f"{CONTAINER} has no field comand; did you mean command?"),
        (f"{CONTAINER}.Command=[a]", f"{CONTAINER} has no field Command; did you mean command?"),
        ("spec.template.spec.contaners[0].command=[a]", "spec has no field contaners; did you mean containers?"),
        ("spec.template.spec.containers[7].image=x", "spec.template.spec.containers has 1 item, the last is [0]"),
        ("spec.template.spec.containers.1.image=x", "spec.template.spec.containers has 1 item, the last is [0]"),
        ("spec.template.spec.containers.image=x", "containers is a list: write spec.template.spec.containers[0].image"),
        ("spec.template[0]=x", "spec.template is not a list"),
        ("spec.storage.saveDirs[0]=x", "spec.storage.saveDirs is not in the manifest: set the whole list"),
    ],
)
def test_a_path_that_leads_nowhere(change: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        changed(change)
    assert str(error.value).startswith(f"--set {change}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
