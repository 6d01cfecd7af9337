"""Reading the file: one clear line for whatever is not one TFTrainingJob."""

import io
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.control_plane.manifests import minimal
from tftraining_client.__main__ import main
from tftraining_client.errors import UserError
from tftraining_client.manifest import read_manifest

JOB = yaml.safe_dump(minimal())
COMMAND = "spec.template.spec.containers.0.command=[python]"
CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: training}\n"


def read(path: Path, text: str | bytes, wanted: str | None = None) -> tuple[dict[str, object], list[str]]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    told: list[str] = []
    return read_manifest(str(path), wanted, told.append)[0], told


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def test_a_job(file: Path) -> None:
    assert read(file, JOB) == (minimal(), [])


def test_other_objects_are_left_out_and_that_is_told(file: Path) -> None:
    job, told = read(file, f"{CLAIM}---\n{JOB}---\n")
    assert job == minimal()
    assert told == [f"{file}: running only the TFTrainingJob; skipped: PersistentVolumeClaim"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    assert read_manifest("-", None, print) == (minimal(), {})


def test_one_of_several(file: Path) -> None:
    text = f"{JOB}---\n{yaml.safe_dump(minimal('other'))}"
    assert read(file, text, "other")[0] == minimal("other")
    with pytest.raises(UserError, match=r"2 jobs \(minimal, other\): choose one with --job NAME"):
        read(file, text)
    with pytest.raises(UserError, match="no job third; the file has: minimal, other"):
        read(file, text, "third")


def test_dates_are_text_as_in_a_cluster(file: Path) -> None:
    job, _ = read(file, JOB.replace("name: minimal", "name: minimal\n  labels: {on: 2026-01-31}"))
    assert job["metadata"] == {"name": "minimal", "labels": {True: "2026-01-31"}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("---\n", "the file is empty"),
        ("just words", "not a Kubernetes manifest"),
        ("- a\n- b\n", "not a Kubernetes manifest"),
        (CLAIM, "found no TFTrainingJob, only PersistentVolumeClaim"),
        ("a: b: c", ":1:5: not YAML: mapping values are not allowed here"),
        ("a: 1\nb: 2\na: 3\n", ":3:1: not YAML: duplicate key 'a'"),
        ("a: !!python/object:os.system {}", "not YAML: could not determine a constructor"),
        (b"\xff\xfe\x00", "not a text file in UTF-8 (byte 0)"),
        (JOB.replace("tftraining.dev/v1", "kubeflow.org/v1"), "unsupported apiVersion 'kubeflow.org/v1': use"),
        ("a: " + "[" * 600, "not YAML: maximum recursion depth exceeded"),
    ],
)
def test_what_is_no_job(file: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UserError) as error:
        read(file, text)
    assert str(error.value).startswith(str(file))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "nowhere.yaml"], "tftj: nowhere.yaml: no such file or directory"),
        (["run", "."], "tftj: .: is a directory"),
        (["run", "{job}", "--kill", "x"], "tftj: --kill x: must be MEMBER@epoch=N, MEMBER@step=N or MEMBER@seconds=S"),
        (
            ["run", "{job}", "--kill", "worker-9@epoch=3"],
            "tftj: --kill worker-9@epoch=3: the job has no worker-9, ",
        ),
        (["run", "{job}", "--env", "x"], "tftj: --env x: must be NAME=VALUE"),
        (["run", "{job}", "--set", "spec.replica=3"], "tftj: --set spec.replica=3: spec has no field replica; did you"),
        (["run", "{job}", "--set", "spec.minReplicas=3"], 'tftj: The TFTrainingJob "minimal" is invalid: spec.minRep'),
        (["run", "{job}"], "tftj: worker-0: command 'train' not found on this machine"),
        (
            ["run", "{job}", "--set", "spec.storage.volume.nfs={}", "--set", COMMAND, "--workdir", "/proc"],
            "tftj: cannot create the directory /proc/minimal: ",
        ),
    ],
)
def test_bad_input_is_one_line_and_2(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    file.write_text(JOB)
    assert main([each.replace("{job}", str(file)) for each in arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(line)
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("arguments", [[], ["run"], ["fly"], ["run", "a", "--nonsense"]])
def test_bad_arguments_are_one_line_and_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as ended:  # of the parser
        code = ended.code
    assert code == 2
    assert capsys.readouterr().err.count("\n") == 1
