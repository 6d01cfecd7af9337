"""The Service of a job, and the pod that cleans up after it."""

from tests.support.simulated_cluster.builders import UID, JobBuilder, a_job
from tftraining_api.manifests.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_api.manifests.pod import pod
from tftraining_api.manifests.service import service
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Manifest


def made(job: JobBuilder, indices: tuple[int, ...] = (1, 2)) -> Manifest:
    parsed, spec = job.parsed()
    assert spec.storage is not None
    return cleanup_pod(parsed, spec, CleanupTask(spec.storage, indices, "operator:1", 2))


def test_the_service_is_headless_and_names_pods_before_they_are_ready() -> None:
    manifest = service(*a_job().parsed())
    assert manifest["metadata"]["name"] == "mnist"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == UID
    assert manifest["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"tftraining.dev/job-name": "mnist"},
        "ports": [{"name": "worker", "port": 2222}],
    }


def test_the_service_has_each_port_once() -> None:
    ports = service(*a_job().chief().role("ps", port=3333).parsed())["spec"]["ports"]
    assert ports == [{"name": "chief", "port": 2222}, {"name": "ps", "port": 3333}]


def test_what_the_cleanup_runs() -> None:
    (container,) = made(a_job().storage(saveDirs=["model", "backup/a"]))["spec"]["containers"]
    assert container["image"] == "operator:1"
    assert container["command"] == [
        "python3",
        "-m",
        "tftraining.cleanup",
        "--root",
        "/training/mnist",
        "--timeout=100",
        "--save-dir=model",
        "--save-dir=backup/a",
        "--index=1",
        "--index=2",
    ]


def test_the_cleanup_sees_the_jobs_storage_where_the_job_saw_it() -> None:
    job = a_job().storage(mountPath="/data", directory="runs/7")
    manifest = made(job)
    training = pod(*job.parsed(), Replica("worker", 0), "operator:1")
    storage = {"name": "tftraining-storage", "mountPath": "/data"}
    assert manifest["spec"]["containers"][0]["volumeMounts"] == [storage]
    assert storage in training["spec"]["containers"][0]["volumeMounts"]
    assert manifest["spec"]["volumes"][0] in training["spec"]["volumes"]
    assert "/data/runs/7" in manifest["spec"]["containers"][0]["command"]


def test_the_cleanup_runs_where_and_as_whom_the_training_ran() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    job = (
        a_job()
        .storage()
        .pod(
            tolerations=tolerations,
            nodeSelector={"pool": "gpu"},
            imagePullSecrets=[{"name": "registry"}],
            securityContext={"runAsUser": 2000, "runAsGroup": 2001, "fsGroup": 3000, "supplementalGroups": [4000]},
        )
    )
    spec = made(job)["spec"]
    assert (spec["tolerations"], spec["nodeSelector"]) == (tolerations, {"pool": "gpu"})
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    context = spec["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (2000, 2001, 3000)
    assert context["supplementalGroups"] == [4000]


def test_the_training_containers_own_user_wins_over_the_pods() -> None:
    job = a_job().storage().pod(securityContext={"runAsUser": 2000}).container(securityContext={"runAsUser": 2500})
    assert made(job)["spec"]["securityContext"]["runAsUser"] == 2500


def test_a_training_as_root_is_cleaned_by_root() -> None:
    context = made(a_job().storage().container(securityContext={"runAsUser": 0}))["spec"]["securityContext"]
    assert context["runAsUser"] == 0
    assert not context.get("runAsNonRoot")


def test_the_workers_template_decides_whose_directories_they_are() -> None:
    own = {"spec": {"containers": [{"name": "tensorflow"}], "securityContext": {"runAsUser": 5000}}}
    assert made(a_job().storage().role("worker", template=own))["spec"]["securityContext"]["runAsUser"] == 5000
    assert made(a_job().storage().role("chief", template=own))["spec"]["securityContext"]["runAsUser"] == 1000


def test_the_cleanup_is_restricted_and_bounded() -> None:
    spec = made(a_job().storage())["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] == 120
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_the_cleanup_is_a_child_like_the_others_but_no_replica() -> None:
    metadata = made(a_job().storage())["metadata"]
    assert metadata["name"] == "mnist-cleanup"
    assert metadata["ownerReferences"][0]["uid"] == UID
    labels = metadata["labels"]
    assert (labels["tftraining.dev/role"], labels["tftraining.dev/attempt"]) == ("cleanup", "2")
    assert "tftraining.dev/index" not in labels


def test_the_cleanup_of_a_bucket_runs_as_the_training_ran() -> None:
    credentials = {"name": "credentials", "secret": {"secretName": "google"}}
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mounts = [{"name": "credentials", "mountPath": "/google"}, {"name": "data", "mountPath": "/data"}]
    key = {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/google/key.json"}
    names = {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["storage.googleapis.com"]}], "dnsPolicy": "Default"}
    job = a_job().bucket(saveDirs=["backup"]).pod(serviceAccountName="trainer", volumes=[credentials, data], **names)
    spec = made(job.container(image="mine:1", volumeMounts=mounts, env=[key]))["spec"]
    (container,), (init,) = spec["containers"], spec["initContainers"]
    assert container["command"][:5] == ["python", "-m", "tftraining.cleanup", "--root", "gs://bucket/team/mnist"]
    assert container["command"][6:] == ["--save-dir=backup", "--index=1", "--index=2"]
    assert (container["image"], init["image"], spec["serviceAccountName"]) == ("mine:1", "operator:1", "trainer")
    assert key in container["env"] and {"name": "PYTHONPATH", "value": "/opt/tftraining-launcher"} in container["env"]
    assert [each["name"] for each in container["volumeMounts"]] == ["credentials", "tftraining-launcher"]
    assert [each["name"] for each in spec["volumes"]] == ["credentials", "tftraining-launcher"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert names.items() <= spec.items(), "it finds the bucket's server as the training does"


def test_the_cleanup_of_a_bucket_has_a_token_of_kubernetes_only_if_the_training_had() -> None:
    assert made(a_job().bucket())["spec"]["automountServiceAccountToken"] is False
    asked = made(a_job().bucket().pod(automountServiceAccountToken=True))
    assert asked["spec"]["automountServiceAccountToken"] is True
    volume = made(a_job().storage().pod(automountServiceAccountToken=True, serviceAccountName="trainer"))
    assert volume["spec"]["automountServiceAccountToken"] is False and "serviceAccountName" not in volume["spec"]
