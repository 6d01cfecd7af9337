"""What each replica is started with: the operator's own pod, with this machine's places in it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane.manifests import REMOVED, changed, full, minimal
from tftraining.launch.config.settings import with_tf_config
from tftraining_api.model import tf_config
from tftraining_api.model.job import parse_job
from tftraining_client.errors import UserError
from tftraining_client.local.ports import Ports
from tftraining_client.local.process_spec import ProcessSpec, allocate, local_job, process_spec
from tftraining_client.local.run import prepare
from tftraining_client.validation import validate

CONTAINER = "spec.template.spec.containers.0"


def specs(tmp_path: Path, changes: dict[str, Any], base: Any = None, **given: str) -> dict[str, ProcessSpec]:
    local = local_job(validate(changed(base or minimal(), changes)), tmp_path)
    with Ports() as ports:
        allocation = allocate(local, ports, tmp_path)
        return {str(replica): process_spec(local, allocation, replica, given) for replica in local.replicas}


STORAGE = {"spec.storage.volume": {"hostPath": {"path": "/data"}}}


def program(spec: ProcessSpec) -> tuple[str, ...]:
    return spec.command[spec.command.index("--") + 1 :]


def test_the_command_is_expanded_and_run_by_this_python(tmp_path: Path) -> None:
    command = ["/usr/bin/python3.9", "x.py", "$(TFTRAINING_DIR)", "$(A)", "$$(A)", "$(NO)"]
    env = [{"name": "A", "value": "a-$(TFTRAINING_DIR)"}]
    spec = specs(
        tmp_path, {**STORAGE, f"{CONTAINER}.command": command, f"{CONTAINER}.args": ["$(A)"], f"{CONTAINER}.env": env}
    )
    directory = str(tmp_path / "minimal")
    assert program(spec["worker-1"]) == (
        *(sys.executable, "x.py", directory, f"a-{directory}", "$(A)", "$(NO)"),
        f"a-{directory}",
    )
    assert spec["worker-1"].environment["TFTRAINING_DIR"] == directory
    assert spec["worker-1"].environment["PATH"].startswith(f"{Path(sys.executable).parent}:")


def test_other_programs_stay_as_they_are(tmp_path: Path) -> None:
    spec = specs(tmp_path, {f"{CONTAINER}.command": ["pythonic", "-c", "python"]})
    assert program(spec["worker-0"]) == ("pythonic", "-c", "python")


def test_addresses_are_ports_of_this_machine_and_every_replica_agrees_on_them(tmp_path: Path) -> None:
    spec = specs(tmp_path, {}, full())
    assert list(spec) == ["chief-0", "worker-0", "worker-1", "worker-2", "ps-0", "ps-1", "evaluator-0"]
    configs = {name: json.loads(each.environment["TF_CONFIG"]) for name, each in spec.items()}
    settings = {name: json.loads(each.environment["TFTRAINING_LAUNCHER"]) for name, each in spec.items()}
    (cluster,) = {json.dumps(config["cluster"]) for config in configs.values()}
    addresses = [address for role in json.loads(cluster).values() for address in role]
    (rendezvous,) = {each["rendezvous"] for each in settings.values()}
    ports = [*addresses, rendezvous, *(f"127.0.0.1:{each['statusPort']}" for each in settings.values())]
    assert len(ports) == len(set(ports)) == 6 + 1 + 7
    assert all(each.startswith("127.0.0.1:") for each in ports)
    assert configs["worker-2"]["task"] == {"type": "worker", "index": 2}
    assert settings["worker-2"]["host"] == "127.0.0.1"
    assert settings["ps-1"]["maxRestarts"] == 3
    assert (
        settings["ps-1"]["directory"] == str(tmp_path / "team" / "run-7") == spec["ps-1"].environment["TFTRAINING_DIR"]
    )


BACKUP = "spec.launcher.memoryBackup"


def backup_settings(tmp_path: Path, changes: dict[str, Any], memory: int | None) -> dict[str, dict[str, Any]]:
    """What each launcher is told of backups in memory."""
    local = local_job(validate(changed(minimal(), changes)), tmp_path)
    with Ports() as ports:
        allocation = allocate(local, ports, tmp_path, memory)
        found = {str(each): process_spec(local, allocation, each, {}) for each in local.replicas}
    settings = {name: json.loads(each.environment["TFTRAINING_LAUNCHER"]) for name, each in found.items()}
    return {name: each["memoryBackup"] for name, each in settings.items() if "memoryBackup" in each}


def test_replicas_share_the_machines_memory_for_backups(tmp_path: Path) -> None:
    roles = {"spec.replicaSpecs.ps.replicas": 1, "spec.replicaSpecs.worker.replicas": 2}
    told = backup_settings(tmp_path, {**roles, f"{BACKUP}.exactness": "Required"}, 3_000_000_001)
    assert set(told) == {"worker-0", "worker-1"}
    assert told["worker-1"] == {
        "mode": "Auto", "maxOverheadPercent": 1, "exactness": "Required", "sizeLimit": None,
        "memoryLimit": 1_000_000_000, "directory": None, "off": "",
    }  # fmt: skip


def test_a_limit_of_the_container_is_for_pods_and_a_size_for_processes_too(tmp_path: Path) -> None:
    limit = {f"{CONTAINER}.resources": {"limits": {"memory": "2Gi"}}}
    told = backup_settings(tmp_path, limit, None)["worker-0"]
    assert (told["memoryLimit"], told["sizeLimit"], told["directory"]) == (None, None, None)
    told = backup_settings(tmp_path, {**limit, f"{BACKUP}.sizeLimit": "500M"}, 2)["worker-0"]
    assert (told["memoryLimit"], told["sizeLimit"], told["directory"]) == (1, 500_000_000, None)


@pytest.mark.parametrize("mode", ["InPlace", "Recreate"])
def test_backups_in_memory_can_be_turned_off(tmp_path: Path, mode: str) -> None:
    changes = {f"{BACKUP}.mode": "Off", "spec.restartPolicy.mode": mode}
    assert backup_settings(tmp_path, changes, 10**9)["worker-0"]["mode"] == "Off"


def test_a_directory_of_ones_own_stays(tmp_path: Path) -> None:
    env = [{"name": "TFTRAINING_DIR", "value": "/elsewhere"}]
    spec = specs(tmp_path, {**STORAGE, f"{CONTAINER}.env": env})
    assert spec["worker-0"].environment["TFTRAINING_DIR"] == "/elsewhere"


def test_a_directory_with_dollars_is_taken_as_it_is(tmp_path: Path) -> None:
    spec = specs(tmp_path / "$(HOME)$$", {**STORAGE, f"{CONTAINER}.args": ["$(TFTRAINING_DIR)"]})
    assert program(spec["worker-0"])[-1] == str(tmp_path / "$(HOME)$$" / "minimal")
    settings = json.loads(spec["worker-0"].environment["TFTRAINING_LAUNCHER"])
    assert settings["directory"] == str(tmp_path / "$(HOME)$$" / "minimal")


def test_without_storage_there_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFTRAINING_DIR", "/of/somebody/else")
    monkeypatch.setenv("TF_CONFIG", "of somebody else")
    environment = specs(tmp_path, {})["worker-0"].environment
    assert "TFTRAINING_DIR" not in environment
    assert json.loads(environment["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    assert json.loads(environment["TFTRAINING_LAUNCHER"])["directory"] is None


def test_what_a_pod_knows_of_itself(tmp_path: Path) -> None:
    paths = ("metadata.name", "metadata.namespace", "metadata.labels['tftraining.dev/role']", "status.podIP")
    env = [{"name": f"F{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in enumerate(paths)]
    environment = specs(tmp_path, {f"{CONTAINER}.env": env})["worker-1"].environment
    assert [environment[f"F{n}"] for n in range(4)] == ["minimal-worker-1", "default", "worker", "127.0.0.1"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"secretKeyRef": {"name": "hub", "key": "token"}}, "the key token of the Secret hub"),
        ({"configMapKeyRef": {"name": "hub", "key": "url"}}, "the key url of the ConfigMap hub"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "resourceFieldRef"),
        ({"fieldRef": {"fieldPath": "status.whatever"}}, "the field status.whatever"),
    ],
)
def test_what_only_a_cluster_has_must_be_given(tmp_path: Path, source: dict[str, Any], words: str) -> None:
    changes = {f"{CONTAINER}.env": [{"name": "A", "valueFrom": source}, {"name": "B", "value": "$(A)!"}]}
    with pytest.raises(UserError) as error:
        specs(tmp_path, changes)
    assert str(error.value) == f"the variable A comes from {words}, which only a cluster has: set it with --env A=VALUE"
    environment = specs(tmp_path, changes, A="given")["worker-0"].environment
    assert (environment["A"], environment["B"]) == ("given", "given!")


def test_what_is_optional_may_be_missing(tmp_path: Path) -> None:
    source = {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}}
    env = [{"name": "TFTJ_A", "valueFrom": source}]
    assert "TFTJ_A" not in specs(tmp_path, {f"{CONTAINER}.env": env})["worker-0"].environment


def test_a_launcher_that_follows_another_is_told_what_that_cost(tmp_path: Path) -> None:
    first = specs(tmp_path, {})["worker-0"]
    settings = json.loads(first.with_ledger({"podFailures": 2}).environment["TFTRAINING_LAUNCHER"])
    assert (settings["ledger"]["podFailures"], settings["ledger"]["inPlace"], settings["proven"]) == (2, 0, True)
    assert not json.loads(first.with_ledger({"podFailures": 0}).environment["TFTRAINING_LAUNCHER"])["proven"]


def test_the_launcher_restarts_whatever_the_mode(tmp_path: Path) -> None:
    spec = specs(tmp_path, {"spec.restartPolicy.mode": "Recreate"})["worker-0"]
    assert "TFTRAINING_LAUNCHER" in spec.environment


def test_a_suspended_job_would_never_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the job is suspended"):
        local_job(validate(changed(minimal(), {"spec.runPolicy.suspend": True})), tmp_path)


def test_a_job_of_another_controller_is_not_ours_to_run(tmp_path: Path) -> None:
    job = changed(minimal(), {"spec.runPolicy.managedBy": "kueue.x-k8s.io/multikueue"})
    with pytest.raises(
        UserError, match=r"another controller runs this job \(.*: kueue\.x-k8s\.io/multikueue\), .*: remove"
    ):
        local_job(validate(job), tmp_path)


def test_the_indexes_of_temporary_directories(tmp_path: Path) -> None:
    assert local_job(validate(minimal()), tmp_path).non_chief_workers == (1,)
    assert local_job(validate(full()), tmp_path).non_chief_workers == (0, 1, 2)
    alone = changed(minimal(), {"spec.replicaSpecs": {"chief": {}}, "spec.minReplicas": None})
    assert local_job(validate(alone), tmp_path).non_chief_workers == ()


def test_the_secret_is_readable_by_nobody_else(tmp_path: Path) -> None:
    local = local_job(validate(changed(minimal(), {f"{CONTAINER}.command": ["python", "x.py"]})), tmp_path)
    with Ports() as ports:
        allocation = allocate(local, ports, tmp_path)
        made = prepare(local, allocation, {})
    secret = allocation.secret_file.read_bytes()
    assert len(secret) == 32
    assert allocation.secret_file.stat().st_mode & 0o777 == 0o600
    assert [spec.environment["TMPDIR"] for spec in made] == [str(tmp_path / f"worker-{index}") for index in (0, 1)]
    assert all((tmp_path / f"worker-{index}").is_dir() for index in (0, 1))


def test_a_program_that_is_not_here(tmp_path: Path) -> None:
    job = changed(minimal(), {f"{CONTAINER}.command": ["no-such-program"]})
    local = local_job(validate(job), tmp_path)
    with Ports() as ports, pytest.raises(UserError, match="worker-0: command 'no-such-program' not found"):
        prepare(local, allocate(local, ports, tmp_path), {})


@pytest.mark.parametrize(
    ("change", "given", "what"),
    [
        ({f"{CONTAINER}.env": [{"name": "CONFIG", "value": "x" * 131072}]}, {}, "the variable CONFIG has 131080 bytes"),
        ({f"{CONTAINER}.args": ["ü" * 70000]}, {}, "an argument of the command has 140001 bytes"),
        ({}, {"CONFIG": "x" * 131065}, "the variable CONFIG has 131073 bytes"),
    ],
)
def test_what_linux_passes_to_no_process_is_refused(
    tmp_path: Path, change: dict[str, Any], given: dict[str, str], what: str
) -> None:
    local = local_job(validate(changed(minimal(), change)), tmp_path)
    with Ports() as ports, pytest.raises(UserError, match=f"worker-0: {what}; Linux passes at most 131072"):
        prepare(local, allocate(local, ports, tmp_path), given)


def test_the_longest_variable_is_passed(tmp_path: Path) -> None:
    local = local_job(validate(changed(minimal(), {f"{CONTAINER}.command": ["sh"]})), tmp_path)
    with Ports() as ports:
        (made, *_) = prepare(local, allocate(local, ports, tmp_path), {"CONFIG": "x" * 131064})
    told = subprocess.run(["/bin/sh", "-c", "echo ${#CONFIG}"], env=made.environment, capture_output=True, check=True)
    assert told.stdout == b"131064\n"


def test_the_template_of_a_role_comes_before_the_common_one(tmp_path: Path) -> None:
    changes = {"spec.replicaSpecs.worker.template": REMOVED, f"{CONTAINER}.command": ["common"]}
    assert program(specs(tmp_path, changes, full())["worker-0"]) == ("common",)


def test_a_gang_whose_manifests_have_no_tf_config_is_told_the_ports_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: each.environment["TF_CONFIG"] for name, each in specs(tmp_path, {}).items()}
    monkeypatch.setattr(tf_config, "IN_MANIFEST", 0)
    for name, each in specs(tmp_path, {}).items():
        config, before = json.loads(each.environment["TF_CONFIG"]), json.loads(known[name])
        assert config["task"] == before["task"]
        assert [address.partition(":")[0] for address in config["cluster"]["worker"]] == ["127.0.0.1"] * 2
        assert with_tf_config(each.environment) == each.environment


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{CONTAINER}.command": ["bash", "x.sh"]}, "the command (bash x.sh) is not python"),
        ({f"{CONTAINER}.command": ["python", "x.py"], "spec.restartPolicy.mode": "Recreate"}, "mode: Recreate"),
    ],
)
def test_a_tf_config_that_no_process_could_be_told_is_refused_as_in_a_cluster(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    job = changed(minimal(), {**changes, "spec.replicaSpecs.worker.replicas": 5000})
    with pytest.raises(UserError) as refused:
        local_job(validate(job), tmp_path)
    problem = parse_job({**job, "metadata": {**job["metadata"], "namespace": "default", "uid": "u"}}).problem
    assert problem is not None and str(refused.value) == problem.message
    assert "TF_CONFIG of worker-4999 would have 2" in problem.message and said in problem.message


@pytest.mark.parametrize(("asked", "kind"), [("Auto", "Own"), ("Legacy", None), ("Unpatched", "Unpatched")])
def test_the_choice_of_keras_is_that_of_a_new_job_in_a_cluster(tmp_path: Path, asked: str, kind: str | None) -> None:
    changes = {"spec.launcher.keras": asked, "spec.restartPolicy.mode": "Recreate"}
    local = local_job(validate(changed(minimal(), changes)), tmp_path)
    with Ports() as ports:
        spec = process_spec(local, allocate(local, ports, tmp_path), local.replicas[0], {})
    assert json.loads(spec.environment["TFTRAINING_LAUNCHER"]).get("keras") == kind
    assert "TF_USE_LEGACY_KERAS" not in spec.environment
