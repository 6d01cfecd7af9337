"""TFJobs of every shape become jobs that the API server accepts, with a note for each difference."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.client.tfjobs import ENTRYPOINTS, FILES, tfjob
from tftraining_api.manifests.pod import PodManifests
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Replica
from tftraining_client.__main__ import main
from tftraining_client.errors import UserError
from tftraining_client.tfjob import Choices, Conversion, convert
from tftraining_client.tfjob.policies import COSCHEDULING
from tftraining_client.validation import validate


def converted(name: str, gang_scheduler: str | None = None) -> Conversion:
    return convert(tfjob(name), Choices(ENTRYPOINTS.get(name), gang_scheduler))


def spec(name: str) -> dict[str, Any]:
    found: dict[str, Any] = converted(name).job["spec"]
    return found


def fields(name: str) -> set[str]:
    return {note.field for note in converted(name).notes}


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_the_job_is_valid_and_its_pods_can_be_made(name: str) -> None:
    before = tfjob(name)
    conversion = converted(name)
    assert tfjob(name) == before and len({str(note) for note in conversion.notes}) == len(conversion.notes)
    stored = validate(conversion.job)
    job = parse_job({**stored, "metadata": {"namespace": "ns", "uid": "u", **stored["metadata"]}})
    assert job.spec is not None and job.unreadable is None
    for theirs, replicas in before["spec"]["tfReplicaSpecs"].items():
        role: Any = theirs.lower().replace("master", "chief")
        if role in conversion.job["spec"]["replicaSpecs"]:
            (pod,) = PodManifests(job, job.spec, [Replica(role, 0)], "launcher")
            # The program's files are still where its arguments say.
            assert paths(replicas["template"]["spec"]) <= paths(pod["spec"])


def paths(pod_spec: dict[str, Any]) -> set[str]:
    """The paths of the volumes in the training container, which is the first."""
    return {each["mountPath"].rstrip("/") for each in pod_spec["containers"][0].get("volumeMounts", ())}


def test_the_claim_of_all_roles_becomes_the_storage() -> None:
    found = spec("workers")
    assert found["storage"] == {"volume": {"persistentVolumeClaim": {"claimName": "runs"}}, "mountPath": "/runs"}
    assert found["template"]["spec"].get("volumes") is None
    assert found["restartPolicy"] == {"maxRestarts": 0} and found["runPolicy"] == {"cleanPodPolicy": "None"}
    assert spec("volcano")["storage"]["volume"] == {"nfs": {"server": "nfs.example", "path": "/exports/shared"}}
    assert [each["name"] for each in spec("volcano")["template"]["spec"]["volumes"]] == ["data"]


def test_a_gang_is_told_what_a_program_of_keras_2_needs() -> None:
    assert any("spec.launcher.keras: Legacy" in note.text for note in converted("workers").notes)
    alone = tfjob("workers")
    alone["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 1
    assert not any("spec.launcher.keras" in note.text for note in convert(alone).notes)


def test_a_claim_of_another_container_stays_a_volume_too() -> None:
    raw = tfjob("workers")
    pod = raw["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"].append({"name": "copy", "image": "x", "volumeMounts": [{"name": "runs", "mountPath": "/in"}]})
    found = convert(raw).job["spec"]
    assert found["storage"]["mountPath"] == "/runs"
    assert [each["name"] for each in found["template"]["spec"]["volumes"]] == ["runs"]


def test_a_part_of_a_claim_is_no_storage() -> None:
    found = spec("from-cluster")
    assert "storage" not in found and found["template"]["spec"]["volumes"][0]["name"] == "data"
    assert "volumes" in fields("from-cluster")


def test_roles_keep_their_own_resources_ports_and_exit_codes() -> None:
    found = spec("all-roles")
    roles = found["replicaSpecs"]
    assert list(roles) == ["chief", "worker", "ps", "evaluator"]
    assert (roles["worker"], "port" in roles["ps"]) == ({"replicas": 4, "port": 3333}, False)
    of_ps = roles["ps"]["template"]["spec"]["containers"][0]
    assert of_ps["resources"] == {"requests": {"cpu": 2, "memory": "4Gi"}} and of_ps["image"].endswith("-cpu")
    trains = found["template"]["spec"]["containers"][0]
    assert trains["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert trains["ports"] == [{"name": "metrics", "containerPort": 9100}]
    (rule,) = found["restartPolicy"]["rules"]
    assert (rule["onExitCodes"], rule["action"]) == (list(range(1, 128)), "FailJob")
    # A TFJob ignores backoffLimit under ExitCode.
    assert set(found["restartPolicy"]) == {"rules"} and "spec.runPolicy.backoffLimit" in fields("all-roles")
    expected = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 600, "activeDeadlineSeconds": 86400}
    assert found["runPolicy"] == expected


def test_old_versions_have_a_master_and_the_policies_in_the_spec() -> None:
    found = spec("master-v1beta2")
    assert list(found["replicaSpecs"]) == ["chief", "worker", "ps"]
    assert found["runPolicy"] == {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 3600}
    assert found["restartPolicy"] == {"maxRestarts": 2, "rules": [{"role": "ps", "action": "FailJob"}]}
    assert found["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert converted("master-v1beta2").job["metadata"] == {"name": "tf-2019-mnist-v3"}
    assert {"metadata.name", "spec.tfReplicaSpecs.MASTER"} <= fields("master-v1beta2")
    assert spec("master-v1beta1")["replicaSpecs"] == {"chief": {"replicas": 1}}


def test_gang_scheduling_names_the_scheduler() -> None:
    volcano = spec("volcano")["runPolicy"]
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "minAvailable": 5, "queue": "research"}
    assert volcano["scheduling"] == {"priorityClassName": "high", "podGroup": group}
    assert volcano["suspend"] is True and "managedBy" not in volcano
    assert spec("coscheduling")["runPolicy"]["scheduling"]["podGroup"] == {
        "apiVersion": COSCHEDULING,
        "timeoutSeconds": 120,
    }
    other = converted("volcano", "coscheduling").job["spec"]["runPolicy"]["scheduling"]["podGroup"]
    assert other == {"apiVersion": COSCHEDULING, "minAvailable": 5, "timeoutSeconds": 90}
    assert converted("coscheduling").job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}


def test_selectors_name_the_new_pods() -> None:
    pod = spec("volcano")["template"]["spec"]
    (term,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    expressions = {
        each["key"]: each.get("values") for each in term["podAffinityTerm"]["labelSelector"]["matchExpressions"]
    }
    assert expressions == {"tftraining.dev/job-name": None, "tftraining.dev/role": ["worker", "chief"]}
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": {"tftraining.dev/job-name": "gang"}}
    assert pod["nodeSelector"] == {"accelerator": "a100"} and pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert pod["initContainers"][0]["name"] == "fetch"
    assert "annotations" not in spec("volcano")["template"]["metadata"]


def test_a_shell_is_left_out_only_where_it_does_nothing() -> None:
    assert spec("arena-v1")["template"]["spec"]["containers"][0]["command"] == [
        *("python", "/code/main.py", "--name", "first run"),
    ]
    assert spec("arena")["template"]["spec"]["containers"][0]["command"][:2] == ["sh", "-c"]


def test_arenas_job_keeps_its_pods_and_loses_its_labels() -> None:
    job = converted("arena").job
    pod = job["spec"]["template"]["spec"]
    assert job["metadata"] == {"name": "tf-git-tfjob"}
    assert (pod["hostNetwork"], pod["initContainers"][0]["name"]) == (True, "init-code")
    assert (job["spec"]["replicaSpecs"]["worker"]["port"], job["spec"]["replicaSpecs"]["ps"]["port"]) == (22222, 22223)
    assert {
        "hostNetwork",
        "volumes[].hostPath",
        "securityContext.privileged",
        "schedulerName",
        "metadata.labels",
    } <= fields("arena")
    assert job["spec"]["template"]["metadata"]["labels"]["release"] == "tf-git"


def test_what_has_no_counterpart_is_told() -> None:
    assert {"spec.modelVersion", "spec.runPolicy.elasticPolicy", "metadata.ownerReferences"} <= fields("from-cluster")
    assert spec("from-cluster")["runPolicy"]["managedBy"] == "kueue.x-k8s.io/multikueue"
    assert (
        "spec.enableDynamicWorker" in fields("coscheduling") and spec("coscheduling")["successPolicy"] == "AllWorkers"
    )
    assert "spec.runPolicy.schedulingPolicy.minResources" in fields("volcano")
    kept = spec("parameter-servers")["template"]
    assert kept["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert [each["name"] for each in kept["spec"]["containers"][0]["env"]] == ["GOOGLE_APPLICATION_CREDENTIALS"]
    assert {"metadata.generateName", "serviceAccountName"} <= fields("parameter-servers")


def replica(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = raw["spec"]["tfReplicaSpecs"]
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: replica(raw).update(worker=replica(raw)["Worker"]), "are the same role, worker"),
        (lambda raw: replica(raw).update(Launcher={}), r"Launcher is no role of a TFJob: use Chief"),
        (lambda raw: replica(raw).pop("Worker"), "has neither a worker nor a chief"),
        (lambda raw: replica(raw)["Worker"].update(replicas="2"), r"Worker\.replicas must be a whole number"),
        (lambda raw: replica(raw)["Worker"].update(restartPolicy="Sometimes"), "Sometimes is none of Always"),
        (lambda raw: replica(raw)["Worker"].update(template=[]), r"template must be an object"),
        (lambda raw: raw["spec"].update(runPolicy={"cleanPodPolicy": "Some"}), "Some is none of Running, All, None"),
        (lambda raw: raw["spec"].update(replicaSpecs=[]), "of version v1alpha1"),
        (lambda raw: raw["metadata"].pop("name"), r"has no metadata\.name"),
        (lambda raw: pod(raw)["containers"].clear(), "has no container named tensorflow"),
        (lambda raw: pod(raw)["containers"][0].pop("command"), r"cannot be seen from here: name it with --entrypoint"),
        (lambda raw: pod(raw).update(volumes="x"), r"Worker\.template: Expected `array"),
    ],
)
def test_a_tfjob_that_cannot_run_is_told(change: Any, words: str) -> None:
    raw = copy.deepcopy(tfjob("workers"))
    change(raw)
    with pytest.raises(UserError, match=words) as told:
        convert(raw)
    assert "\n" not in str(told.value)


def pod(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = replica(raw)["Worker"]["template"]["spec"]
    return found


def path_of(name: str) -> str:
    return str(next(file for file in FILES if file.stem == name))


def test_the_command_prints_what_kubectl_takes_and_the_notes_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", path_of("arena")]) == 0
    said = capsys.readouterr()
    assert yaml.safe_load(said.out) == converted("arena").job
    notes = [f"tftj: {note}" for note in converted("arena").notes]
    assert said.err.splitlines() == [
        "tftj: Deployment tf-git-tensorboard is not converted: apply it as before",
        "tftj: ConfigMap tf-git-config is not converted: apply it as before",
        *notes,
    ]
    assert main(["convert", path_of("from-cluster"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "stored"
    assert main(["convert", path_of("entrypoint"), "-o", "name", "--entrypoint", "python /app/main.py"]) == 0
    assert capsys.readouterr().out == "dist-mnist\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "convert takes a file, or --from-cluster NAME"),
        (["/none"], "/none: no such file or directory"),
        ([path_of("entrypoint")], "has no command"),
        ([path_of("entrypoint"), "--entrypoint", "'"], "--entrypoint ': No closing quotation"),
    ],
)
def test_bad_input_of_the_command_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["convert", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_file_without_a_tfjob_and_one_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}))
    assert main(["convert", str(file)]) == 2
    assert "found no TFJob of kubeflow.org, only PyTorchJob (kubeflow.org/v1)" in capsys.readouterr().err
    raw = tfjob("workers")
    raw["metadata"]["labels"] = {"version": 3}
    file.write_text(yaml.safe_dump(raw))
    assert main(["convert", str(file)]) == 2
    assert "the converted job is refused; correct the TFJob: " in capsys.readouterr().err


def test_a_command_that_a_restart_cannot_repeat_is_named() -> None:
    raw = tfjob("workers")
    container(raw).update(command=["sh", "-c", "git clone x src && python src/train.py"], args=[])
    (told,) = [each.text for each in convert(raw).notes if "runs again" in each.text]
    assert told.startswith("`git clone x src` fails when it runs again")
    assert told.endswith("Write rm -rf of the directory before it, or spec.code.git")


def container(raw: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod(raw)["containers"]
    result: dict[str, Any] = found
    return result


ARGS = ["python", "bench.py", "--batch_size=32"]
TRAIN = ("python", "train.py")


@pytest.mark.parametrize(
    ("args", "entrypoint", "command", "rest"),
    [
        (ARGS, None, ARGS, None),
        (ARGS, (), ARGS, None),
        (ARGS, TRAIN, ARGS, None),
        (ARGS, ("/usr/bin/tini", "--"), ["/usr/bin/tini", "--"], ARGS),
        (["bench", "--fast"], (), ["bench", "--fast"], None),
        (["--fast"], TRAIN, [*TRAIN], ["--fast"]),
    ],
)
def test_args_are_the_command_of_an_image_without_entrypoint(
    args: list[str], entrypoint: tuple[str, ...] | None, command: list[str], rest: list[str] | None
) -> None:
    raw = tfjob("workers")
    del container(raw)["command"]
    container(raw)["args"] = args
    conversion = convert(raw, Choices(entrypoint))
    (trains,) = conversion.job["spec"]["template"]["spec"]["containers"]
    assert (trains["command"], trains.get("args")) == (command, rest)
    assert any("is the command" in note.text for note in conversion.notes)


@pytest.mark.parametrize(("args", "words"), [(["--fast"], "without one write --entrypoint ''"), ([], "train.py'$")])
def test_args_that_begin_with_no_program_need_a_word(args: list[str], words: str) -> None:
    raw = tfjob("workers")
    del container(raw)["command"]
    container(raw)["args"] = args
    with pytest.raises(UserError, match=words):
        convert(raw)


def two_claims(*options: str, paths: tuple[str, str] = ("/a", "/b"), **env: str) -> dict[str, Any]:
    """A TFJob with the claims `one` and `two`, and what its program is told."""
    raw = tfjob("workers")
    container(raw).update(
        command=["python", "train.py", *options],
        env=[{"name": name, "value": value} for name, value in env.items()],
        volumeMounts=[{"name": name, "mountPath": path} for name, path in zip(("one", "two"), paths, strict=True)],
    )
    pod(raw)["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in ("one", "two")]
    return raw


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (two_claims("--data_dir=/a", "--model_dir=/b/run1"), "/b"),
        (two_claims("--input", "/a/train", "--checkpoints", "/b"), "/b"),
        (two_claims("--model_dir=/a/run", "--data_dir=/b"), "/a"),
        (two_claims(MODEL_DIR="/b"), "/b"),
        (two_claims("--data=/a"), "/b"),
        (two_claims("/b/first"), "/b"),
        (two_claims("--workdir=/b"), "/b"),
        (two_claims(paths=("/data", "/output")), "/output"),
        (two_claims(paths=("/mnt/x", "/results")), "/results"),
        (two_claims("--data=/datasets", paths=("/datasets", "/mnt/x")), "/mnt/x"),
    ],
)
def test_of_two_claims_the_one_with_the_results_is_the_storage(raw: dict[str, Any], path: str) -> None:
    conversion = convert(raw)
    found = conversion.job["spec"]
    assert found["storage"]["mountPath"] == path
    (told,) = [note.text for note in conversion.notes if note.field == f"volumes[] at {path}"]
    (stays,) = found["template"]["spec"]["containers"][0]["volumeMounts"]
    assert f"{stays['name']} at {stays['mountPath']} stays a volume" in told


def test_the_user_names_the_storage_where_nothing_tells_it() -> None:
    for raw in (two_claims(), two_claims("--model_dir=/a", "--log_dir=/b"), two_claims(paths=("/data", "/images"))):
        with pytest.raises(UserError, match=r"one at /\w+, two at /\w+: name the path of one with --storage /"):
            convert(raw)
    assert convert(two_claims(), Choices(storage="/b/")).job["spec"]["storage"]["mountPath"] == "/b"
    with pytest.raises(UserError, match=r"no volume at --storage /c is mounted .* there is one at /a, two at /b"):
        convert(two_claims(), Choices(storage="/c"))


def test_the_old_name_of_the_service_account_is_told_as_the_new_one() -> None:
    raw = tfjob("workers")
    pod(raw)["serviceAccount"] = "editor"
    conversion = convert(raw)
    template = conversion.job["spec"]["template"]["spec"]
    assert (template["serviceAccountName"], "serviceAccount" in template) == ("editor", False)
    assert {"serviceAccount", "serviceAccountName"} <= {note.field for note in conversion.notes}


@pytest.mark.parametrize(
    ("version", "policy", "restarts", "told"),
    [
        ("v1alpha2", "Always", None, set()),
        ("v1beta1", "Never", 0, set()),
        ("v1beta2", "Never", 0, set()),
        ("v1", "Never", 0, {"spec.runPolicy.cleanPodPolicy"}),
    ],
)
def test_the_defaults_are_those_of_the_version(version: str, policy: str, restarts: int | None, told: set[str]) -> None:
    raw = tfjob("workers")
    raw["apiVersion"] = f"kubeflow.org/{version}"
    del raw["spec"]["runPolicy"], replica(raw)["Worker"]["restartPolicy"]
    conversion = convert(raw)
    names = {note.field for note in conversion.notes}
    assert f"restartPolicy, unset: {policy}" in names and names & {"spec.runPolicy.cleanPodPolicy"} == told
    assert conversion.job["spec"].get("restartPolicy", {}).get("maxRestarts") == restarts


def test_the_old_default_of_the_backoff_limit_is_kept() -> None:
    raw = tfjob("workers")
    raw["apiVersion"] = "kubeflow.org/v1beta2"
    replica(raw)["Worker"]["restartPolicy"] = "OnFailure"
    assert convert(raw).job["spec"]["restartPolicy"] == {"maxRestarts": 6}


def test_the_port_of_the_node_is_told() -> None:
    raw = tfjob("workers")
    container(raw)["ports"] = [{"name": "tfjob-port", "containerPort": 2222, "hostPort": 30000, "protocol": "TCP"}]
    fields = [note.field.rpartition(".")[2] for note in convert(raw).notes]
    assert ("hostPort" in fields, "protocol" in fields) == (True, False)


@pytest.mark.parametrize("field", ["name", "generateName", "namespace"])
@pytest.mark.parametrize("text", ["{{ name }}", "train-$JOB_NAME", "${JOB}-1", "$(JOB)", "<job name>"])
def test_a_name_that_nothing_has_filled_in_is_an_error(field: str, text: str) -> None:
    job = tfjob(next(iter(ENTRYPOINTS)))
    with pytest.raises(UserError, match="which nothing has replaced"):
        convert({**job, "metadata": {"name": "a", field: text}}, Choices())


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (
            "gcr.io/${PROJECT_ID}/trainer",
            "Worker.template.spec.containers[0].image has the variable ${PROJECT_ID}, which",
        ),
        (None, "Worker.template.spec.containers[0].image is unset: name the image of the program"),
    ],
)
def test_an_image_that_no_node_can_pull_is_an_error(image: str | None, words: str) -> None:
    job = tfjob("workers")
    container(job)["image"] = image
    with pytest.raises(UserError, match=re.escape(words)):
        convert(job)
