"""The pod of a replica: the user's template, and what TensorFlow and the operator need added to it."""

import json
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import UID, JobBuilder, a_job, a_launched_job
from tftraining_api.manifests.affinity import PREFERRED
from tftraining_api.manifests.pod import pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Manifest


def made(job: JobBuilder, index: int = 1) -> Manifest:
    return pod(*job.parsed(), Replica("worker", index), "operator:1")


def main(job: JobBuilder) -> Manifest:
    container: Manifest = made(job)["spec"]["containers"][0]
    return container


def env(job: JobBuilder) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in main(job)["env"]}


def test_name_hostname_and_subdomain_give_its_address() -> None:
    manifest = made(a_job())
    assert manifest["metadata"]["name"] == manifest["spec"]["hostname"] == "mnist-worker-1"
    assert (manifest["metadata"]["namespace"], manifest["spec"]["subdomain"]) == ("ml", "mnist")


def test_the_template_stays_as_it_is() -> None:
    """The pods share parts of it."""
    builder = a_launched_job().workers(3).storage()
    job, spec = builder.parsed()
    before = json.dumps(spec.template)
    for index in range(3):
        pod(job, spec, Replica("worker", index), "operator:1")
    assert json.dumps(spec.template) == before


def test_names_cannot_be_changed_by_the_template() -> None:
    spec = made(a_job().pod(hostname="mine", subdomain="mine"))["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("mnist-worker-1", "mnist")


def test_the_owner_is_the_job_and_nothing_blocks_its_deletion() -> None:
    (owner,) = made(a_job())["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "tftraining.dev/v1",
        "kind": "TFTrainingJob",
        "name": "mnist",
        "uid": UID,
        "controller": True,
    }


def test_labels() -> None:
    labels = made(a_job())["metadata"]["labels"]
    ours = {key: value for key, value in labels.items() if key.startswith("tftraining.dev/")}
    assert ours == {
        "tftraining.dev/job-name": "mnist",
        "tftraining.dev/role": "worker",
        "tftraining.dev/index": "1",
        "tftraining.dev/attempt": "0",
    }
    assert labels["app.kubernetes.io/instance"] == "mnist"


def test_label_values_fit_whatever_the_jobs_name() -> None:
    labels = made(a_job().named("a" * 63))["metadata"]["labels"]
    assert max(len(value) for value in labels.values()) == 63


def test_the_templates_own_metadata_is_kept_where_it_does_not_collide() -> None:
    job = a_job().template_metadata(
        labels={"team": "vision", "tftraining.dev/role": "boss", "tftraining.dev/job-name": "other"},
        annotations={"note": "mine"},
        name="mine",
    )
    metadata = made(job)["metadata"]
    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["tftraining.dev/role"] == "worker"
    assert metadata["labels"]["tftraining.dev/job-name"] == "mnist"
    annotations = metadata["annotations"]
    assert (annotations["note"], annotations["tftraining.dev/gang"]) == ("mine", "worker=2")
    assert metadata["name"] == "mnist-worker-1"


def test_a_roles_own_template_is_used_instead_of_the_common_one() -> None:
    own = {"spec": {"containers": [{"name": "tensorflow", "image": "own:1"}], "nodeSelector": {"gpu": "yes"}}}
    manifest = made(a_job().role("worker", template=own))
    assert manifest["spec"]["containers"][0]["image"] == "own:1"
    assert manifest["spec"]["nodeSelector"] == {"gpu": "yes"}


def test_restarts_are_the_operators() -> None:
    assert made(a_job())["spec"]["restartPolicy"] == "Never"


def test_secure_by_default() -> None:
    spec = made(a_job())["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_every_container_is_restricted() -> None:
    job = a_job().beside(name="logs", image="logs:1").pod(initContainers=[{"name": "fetch", "image": "x"}])
    spec = made(job)["spec"]
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_what_the_template_says_wins() -> None:
    job = a_job().pod(
        automountServiceAccountToken=True,
        terminationGracePeriodSeconds=120,
        securityContext={"runAsUser": 2000, "fsGroup": 3000},
    )
    job.container(securityContext={"allowPrivilegeEscalation": True}, terminationMessagePolicy="File")
    spec = made(job)["spec"]
    assert spec["automountServiceAccountToken"] is True
    assert spec["terminationGracePeriodSeconds"] == 120
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]) == (2000, 3000)
    assert spec["securityContext"]["runAsGroup"] == 1000
    assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is True
    assert spec["containers"][0]["terminationMessagePolicy"] == "File"


@pytest.mark.parametrize(
    "job",
    [
        a_job().pod(securityContext={"runAsUser": 0}),
        a_job().container(securityContext={"runAsUser": 0}),
        a_job().pod(initContainers=[{"name": "chown", "image": "x", "securityContext": {"runAsUser": 0}}]),
    ],
    ids=["pod", "container", "init container"],
)
def test_a_template_that_asks_for_root_can_start(job: JobBuilder) -> None:
    # With runAsNonRoot the kubelet would refuse the container for ever.
    spec = made(job)["spec"]
    of_pod = spec["securityContext"].get("runAsNonRoot", False)
    asking = [*spec["containers"], *spec.get("initContainers", ())]
    contexts = [each["securityContext"] for each in asking]
    root = [each for each in contexts if each.get("runAsUser", spec["securityContext"]["runAsUser"]) == 0]
    assert root
    assert not any(each.get("runAsNonRoot", of_pod) for each in root)


def test_root_in_one_container_is_not_root_in_all() -> None:
    job = a_job().beside(name="logs", image="logs:1", securityContext={"runAsUser": 0})
    assert made(job)["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "runAsNonRoot" not in main(job)["securityContext"]


def test_a_template_that_forbids_root_keeps_its_word() -> None:
    job = a_job().pod(securityContext={"runAsNonRoot": True}).container(securityContext={"runAsUser": 0})
    assert made(job)["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "runAsNonRoot" not in main(job)["securityContext"]


def test_a_privileged_container_is_what_it_says() -> None:
    job = a_job().container(securityContext={"privileged": True})
    assert main(job)["securityContext"] == {"privileged": True}


def test_the_grace_is_the_jobs() -> None:
    assert made(a_job())["spec"]["terminationGracePeriodSeconds"] == 5
    job = a_job().set("launcher.terminationGraceSeconds", 20)
    assert made(job)["spec"]["terminationGracePeriodSeconds"] == 20


def test_the_priority_class_is_the_jobs_unless_the_template_has_one() -> None:
    job = a_job().set("runPolicy.scheduling", {"priorityClassName": "high"})
    assert made(job)["spec"]["priorityClassName"] == "high"
    assert made(job.pod(priorityClassName="mine"))["spec"]["priorityClassName"] == "mine"
    assert "priorityClassName" not in made(a_job())["spec"]


def test_the_environment_of_the_training_container() -> None:
    job = a_job().storage().container(env=[{"name": "OUT", "value": "$(TFTRAINING_DIR)/out"}])
    names = [each["name"] for each in main(job)["env"]]
    # A variable expands only those before it.
    assert names.index("TFTRAINING_DIR") < names.index("OUT") == len(names) - 1
    assert env(job)["TFTRAINING_DIR"] == "/training/mnist"
    assert {"TF_CONFIG", "PYTHONUNBUFFERED"} <= set(names)


@pytest.mark.parametrize("job", [a_job(), a_launched_job()], ids=["Recreate", "InPlace"])
def test_the_programs_of_a_job_know_its_identity_which_the_user_may_replace(job: JobBuilder) -> None:
    named = {"name": "WANDB_RUN_ID", "value": "$(TFTRAINING_JOB_UID)"}
    told = env(job.container(env=[named, {"name": "TFTRAINING_JOB_NAME", "value": "mine"}]))
    assert (told["TFTRAINING_JOB_UID"], told["TFTRAINING_JOB_NAME"], told["TFTRAINING_ATTEMPT"]) == (UID, "mine", "0")
    assert list(told).index("TFTRAINING_JOB_UID") < list(told).index("WANDB_RUN_ID")


def test_other_containers_get_no_environment_of_ours() -> None:
    other = made(a_job().storage().beside(name="logs", image="logs:1"))["spec"]["containers"][1]
    assert set(other) == {"name", "image", "securityContext"}


@pytest.mark.parametrize(
    ("job", "value"),
    [
        (a_job(), "1"),
        (a_job().workers(1), None),
        (a_job().workers(1).chief(), "1"),
        (a_job().container(env=[{"name": "TF_USE_LEGACY_KERAS", "value": "0"}]), "0"),
    ],
    ids=["two workers", "alone", "chief and worker", "the user's own"],
)
def test_legacy_keras_is_for_more_than_one_unless_the_user_says_otherwise(job: JobBuilder, value: str | None) -> None:
    assert env(job).get("TF_USE_LEGACY_KERAS") == value
    assert [each["name"] for each in main(job)["env"]].count("TF_USE_LEGACY_KERAS") <= 1


def test_shared_memory_is_a_memory_volume() -> None:
    assert {"name": "tftraining-shm", "mountPath": "/dev/shm"} in main(a_job())["volumeMounts"]
    assert {"name": "tftraining-shm", "emptyDir": {"medium": "Memory"}} in made(a_job())["spec"]["volumes"]


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/"])
def test_the_users_own_shared_memory_wins(path: str) -> None:
    job = a_job().container(volumeMounts=[{"name": "mine", "mountPath": path}])
    assert [each["name"] for each in main(job)["volumeMounts"]] == ["mine"]


def test_the_storage_is_mounted_whole() -> None:
    job = a_job().storage(mountPath="/data", directory="runs/7")
    assert {"name": "tftraining-storage", "mountPath": "/data"} in main(job)["volumeMounts"]
    claim = {"name": "tftraining-storage", "persistentVolumeClaim": {"claimName": "training"}}
    assert claim in made(job)["spec"]["volumes"]
    assert env(job)["TFTRAINING_DIR"] == "/data/runs/7"


def test_without_storage_there_is_no_directory() -> None:
    assert "TFTRAINING_DIR" not in env(a_job())
    assert [each["name"] for each in made(a_job())["spec"]["volumes"]] == ["tftraining-shm"]


def test_the_end_of_the_log_travels_in_the_status() -> None:
    assert main(a_job())["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_null_where_the_template_may_have_it() -> None:
    job = a_job().pod(volumes=None, securityContext=None, initContainers=None)
    job.container(env=None, volumeMounts=None, securityContext=None).template_metadata(labels=None, annotations=None)
    spec = made(job)["spec"]
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["containers"][0]["env"]


RACK = {"topologyKey": "example.com/rack"}
NEAR = {
    "weight": 100,
    "podAffinityTerm": {
        "labelSelector": {
            "matchLabels": {"tftraining.dev/job-name": "mnist"},
            "matchExpressions": [{"key": "tftraining.dev/role", "operator": "In", "values": ["chief", "worker", "ps"]}],
        },
        "topologyKey": "example.com/rack",
    },
}


def test_the_pods_of_a_gang_prefer_one_rack_and_the_users_affinity_stays() -> None:
    job = a_job().set("runPolicy.scheduling", RACK)
    assert made(job)["spec"]["affinity"] == {"podAffinity": {PREFERRED: [NEAR]}}
    own = {"weight": 1, "podAffinityTerm": {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}}
    affinity = {"nodeAffinity": {PREFERRED: []}, "podAffinity": {PREFERRED: [own]}}
    with_own = made(job.pod(affinity=affinity))["spec"]["affinity"]
    assert with_own == {**affinity, "podAffinity": {PREFERRED: [own, NEAR]}}


def test_an_evaluator_is_nowhere_near() -> None:
    job = a_job().set("replicaSpecs.evaluator", {"replicas": 1}).set("runPolicy.scheduling", RACK)
    assert "affinity" not in pod(*job.parsed(), Replica("evaluator", 0), "operator:1")["spec"]


def test_in_a_queue_kueue_chooses_the_rack() -> None:
    job = a_job().labelled(**{"kueue.x-k8s.io/queue-name": "research"}).set("runPolicy.scheduling", RACK)
    manifest = made(job)
    assert manifest["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] == "example.com/rack"
    assert "affinity" not in manifest["spec"]


def test_a_preference_changes_no_pod_that_is_there() -> None:
    annotation = "tftraining.dev/spec"
    with_rack = made(a_job().set("runPolicy.scheduling", RACK))["metadata"]["annotations"]
    assert with_rack[annotation] == made(a_job())["metadata"]["annotations"][annotation]


def test_the_attempt_is_the_jobs_present_one() -> None:
    raw = a_job().raw() | {"status": {"phase": "Running", "attempt": 7}}
    job = parse_job(raw)
    assert job.spec is not None
    labels = pod(job, job.spec, Replica("worker", 0), "operator:1")["metadata"]["labels"]
    assert labels["tftraining.dev/attempt"] == "7"


def test_what_a_pod_is_made_from_is_noted_and_the_same_in_every_version() -> None:
    # Whoever changes these values restarts every training when the operator is upgraded.
    assert made(a_job())["metadata"]["annotations"]["tftraining.dev/spec"] == "c9aae30edecb8c5c"
    job = a_launched_job().chief().storage().set("launcher.warmStart", False)
    job.set("runPolicy.scheduling", {"priorityClassName": "high"})
    assert made(job)["metadata"]["annotations"]["tftraining.dev/spec"] == "8ff808b2da4e49ec"


def test_a_bucket_is_not_mounted_and_the_launcher_gets_no_directory() -> None:
    job = a_job().in_place().bucket(directory="runs/7")
    assert env(job)["TFTRAINING_DIR"] == "gs://bucket/team/runs/7"
    assert json.loads(env(job)["TFTRAINING_LAUNCHER"])["directory"] is None
    spec = pod(*job.parsed(), Replica("worker", 0), "operator:1")["spec"]
    assert "tftraining-storage" not in json.dumps(spec)
