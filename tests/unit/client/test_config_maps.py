"""The ConfigMaps beside a job in its file: what they hold, and where a replica on this machine finds it."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.control_plane.manifests import changed, minimal
from tftraining_client.config_maps import LIMIT, ConfigMaps, parse_config_maps
from tftraining_client.errors import UserError
from tftraining_client.local.ports import Ports
from tftraining_client.local.process_spec import ProcessSpec, allocate, local_job
from tftraining_client.local.run import prepare
from tftraining_client.manifest import read_manifest
from tftraining_client.validation import validate

CONTAINER = "spec.template.spec.containers.0"
PROGRAM: ConfigMaps = {"program": {"train.py": b"import model", "model.py": b"", "run.sh": b"#!/bin/sh\n"}}


def config_map(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, **parts}


def specs(
    tmp_path: Path, source: dict[str, Any], changes: dict[str, Any], mount: dict[str, Any] | None = None
) -> dict[str, ProcessSpec]:
    """How the replicas are started with this volume, which is mounted at /program; its files are written."""
    volumes = {
        "spec.template.spec.volumes": [{"name": "program", "configMap": source}],
        f"{CONTAINER}.volumeMounts": [mount or {"name": "program", "mountPath": "/program"}],
        f"{CONTAINER}.command": ["python", "/program/train.py"],
    }
    local = local_job(validate(changed(minimal(), volumes | changes)), tmp_path / "work", PROGRAM)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Ports() as ports:
        return {str(each.replica): each for each in prepare(local, allocate(local, ports, scratch), {})}


def program(spec: ProcessSpec) -> list[str]:
    return list(spec.command[spec.command.index("--") + 2 :])


def test_the_script_of_a_volume_is_a_file_of_this_machine_and_the_same_for_every_replica(tmp_path: Path) -> None:
    found = specs(tmp_path, {"name": "program"}, {})
    (script,) = program(found["worker-0"])
    assert program(found["worker-1"]) == [script]
    assert Path(script).read_bytes() == b"import model"
    assert {each.name: each.stat().st_mode & 0o777 for each in Path(script).parent.iterdir()} == {
        "train.py": 0o644,
        "model.py": 0o644,
        "run.sh": 0o644,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/program", "{}"),
        ("/program/", "{}/"),
        ("--config=/program/a.json", "--config={}/a.json"),
        ("cd /program && python train.py", "cd {} && python train.py"),
        ("/program:/elsewhere:/program/lib", "{}:/elsewhere:{}/lib"),
        ("$(WHERE)/train.py", "{}/train.py"),
        ("$$(WHERE)", "$(WHERE)"),
        ("/programs/x", "/programs/x"),
        ("/program.d", "/program.d"),
        ("/program-2/x", "/program-2/x"),
        ("/opt/program/x", "/opt/program/x"),
        ("$(HERE)/program", "/here/program"),
        ("../program", "../program"),
    ],
)
def test_a_mounted_path_is_replaced_wherever_it_is_named_and_no_other_is(
    tmp_path: Path, text: str, expected: str
) -> None:
    env = [{"name": "WHERE", "value": "/program"}, {"name": "HERE", "value": "/here"}, {"name": "TEXT", "value": text}]
    spec = specs(tmp_path, {"name": "program"}, {f"{CONTAINER}.args": [text], f"{CONTAINER}.env": env})["worker-0"]
    place = str(tmp_path / "scratch" / "volumes" / "program")
    assert program(spec)[1] == spec.environment["TEXT"] == expected.replace("{}", place)


def test_some_keys_under_other_names_with_their_modes(tmp_path: Path) -> None:
    items = [{"key": "train.py", "path": "a/b.py"}, {"key": "run.sh", "path": "run", "mode": 0o500}]
    source = {"name": "program", "items": items, "defaultMode": 0o400}
    (script,) = program(specs(tmp_path, source, {f"{CONTAINER}.command": ["python", "/program/a/b.py"]})["worker-0"])
    place = Path(script).parents[1]
    assert sorted(str(each.relative_to(place)) for each in place.rglob("*")) == ["a", "a/b.py", "run"]
    assert [(place / each).stat().st_mode & 0o777 for each in ("a/b.py", "run")] == [0o400, 0o500]


def test_one_file_of_a_volume(tmp_path: Path) -> None:
    mount = {"name": "program", "mountPath": "/app/main.py", "subPath": "train.py"}
    command = {f"{CONTAINER}.command": ["python", "/app/main.py"]}
    (script,) = program(specs(tmp_path, {"name": "program"}, command, mount)["worker-0"])
    assert Path(script).read_bytes() == b"import model"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"key": "other", "path": "x"}], "uses the key other, missing in the ConfigMap program"),
        ([{"key": "train.py", "path": "../x"}], "has an item with the path ../x: it must be relative"),
        ([{"key": "train.py", "path": "/x"}], "has an item with the path /x: it must be relative"),
    ],
)
def test_items_that_a_kubelet_would_refuse(tmp_path: Path, items: list[Any], words: str) -> None:
    with pytest.raises(UserError, match="the volume program") as error:
        specs(tmp_path, {"name": "program", "items": items}, {})
    assert words in str(error.value)
    assert not (tmp_path / "scratch" / "volumes").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.template.spec.volumes": [{"name": "program", "configMap": "program"}]},
        {"spec.template.spec.volumes": [{"name": "program", "configMap": {"name": "another"}}]},
        {f"{CONTAINER}.volumeMounts": [{"name": "program", "mountPath": "/"}]},
    ],
    ids=str,
)
def test_what_is_no_volume_of_these_config_maps_changes_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert program(specs(tmp_path, {"name": "program"}, changes)["worker-0"]) == ["/program/train.py"]


def test_a_variable_from_a_config_map_is_text_that_nothing_is_expanded_in() -> None:
    config_maps = parse_config_maps([config_map(data={"rate": "$(HOME)"})], "default")
    assert config_maps == {"program": {"rate": b"$(HOME)"}}


def test_a_variable_takes_its_value_from_a_key(tmp_path: Path) -> None:
    source = {"configMapKeyRef": {"name": "program", "key": "train.py"}}
    env = {f"{CONTAINER}.env": [{"name": "SOURCE", "valueFrom": source}]}
    assert specs(tmp_path, {"name": "program"}, env)["worker-1"].environment["SOURCE"] == "import model"


def test_the_config_maps_of_the_jobs_namespace_are_read(tmp_path: Path) -> None:
    elsewhere = changed(config_map(data={"a": "2"}), {"metadata.namespace": "elsewhere"})
    binary = config_map(data={"a": "1"}, binaryData={"b": base64.b64encode(b"\0").decode()})
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([binary, elsewhere, minimal()]))
    assert read_manifest(str(file), None, pytest.fail) == (minimal(), {"program": {"a": b"1", "b": b"\0"}})
    file.write_text(yaml.safe_dump_all([binary, elsewhere, changed(minimal(), {"metadata.namespace": "elsewhere"})]))
    assert read_manifest(str(file), None, pytest.fail)[1] == {"program": {"a": b"2"}}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"metadata": {}}, "a ConfigMap has no metadata.name"),
        ({"data": "text"}, "data of the ConfigMap program must be an object"),
        ({"data": {"epochs": 3}}, "data.epochs of the ConfigMap program must be a string: put it in quotes"),
        ({"data": {"a/b": ""}}, "the ConfigMap program has the key 'a/b': a key has letters"),
        ({"data": {"..": ""}}, "the ConfigMap program has the key '..': a key has letters"),
        ({"binaryData": {"a": "*"}}, "binaryData.a of the ConfigMap program is not base64: "),
        ({"data": {"a": ""}, "binaryData": {"a": ""}}, "has the key a in data and in binaryData"),
        pytest.param(
            {"data": {"a": "x" * (LIMIT + 1)}},
            f"has {LIMIT + 1} bytes: the limit of Kubernetes is {LIMIT}",
            id="too large",
        ),
    ],
    ids=str,
)
def test_a_config_map_that_a_cluster_would_refuse(tmp_path: Path, parts: dict[str, Any], words: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([config_map(**parts), minimal()]))
    with pytest.raises(UserError) as error:
        read_manifest(str(file), None, pytest.fail)
    assert str(error.value).startswith(f"{file}: ") and words in str(error.value) and "\n" not in str(error.value)
