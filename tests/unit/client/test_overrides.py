"""--name, --workers, --set and --env: what they make of a manifest, and that `run` and `submit` take them alike."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.client.tfjobs import FILES
from tests.support.control_plane.manifests import minimal
from tests.unit.client.test_cluster_errors import KUBECONFIG
from tftraining_client.__main__ import main
from tftraining_client.errors import UserError
from tftraining_client.local.expansion import expand
from tftraining_client.local.run import called
from tftraining_client.overrides import Overrides, with_variables
from tftraining_client.validation import validate


def container(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return found


def test_the_name_replaces_that_of_the_file_and_its_beginning() -> None:
    job = minimal("digits")
    job["metadata"] |= {"generateName": "x-", "labels": {"team": "a"}}
    assert Overrides(name="7").applied(job, pytest.fail)["metadata"] == {"name": "7", "labels": {"team": "a"}}


def test_a_setting_counts_more_than_the_number_of_workers() -> None:
    job = Overrides(workers=3).applied(minimal(), pytest.fail)
    assert job["spec"]["replicaSpecs"]["worker"]["replicas"] == 3 and validate(job)
    path = "spec.replicaSpecs.worker.replicas"
    assert Overrides(workers=3, settings=(f"{path}=4",)).applied(minimal(), pytest.fail) == (
        Overrides(workers=4).applied(minimal(), pytest.fail)
    )


def test_a_variable_is_taken_as_it_is_written_and_stands_where_the_old_one_stood() -> None:
    job = minimal()
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    container(job)["env"] = [secret, {"name": "PATHS", "value": "$(KEY)/x"}, {"name": "KEY", "value": "later"}]
    env = container(with_variables(job, Overrides(env=("KEY=$(HOME)", "NEW=a=b")).variables))["env"]
    assert [each["name"] for each in env] == ["KEY", "PATHS", "KEY", "NEW"]
    assert {expand(each["value"], {"HOME": "/root"}) for each in env if each["name"] == "KEY"} == {"$(HOME)"}
    assert env[-1]["value"] == "a=b" and validate(job)


def test_a_variable_goes_into_the_template_of_each_role_and_into_no_other_container() -> None:
    job = minimal()
    own = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}, {"name": "beside", "image": "i"}]}}
    job["spec"]["replicaSpecs"]["worker"]["template"] = own
    with_variables(job, {"A": "1"})
    given = {"env": [{"name": "A", "value": "1"}]}
    assert container(job) == {**container(minimal()), **given}
    assert own["spec"]["containers"] == [
        {"name": "tensorflow", "image": "i", **given},
        {"name": "beside", "image": "i"},
    ]


@pytest.mark.parametrize("broken", [{}, {"spec": None}, {"spec": {"template": [1], "replicaSpecs": "x"}}])
def test_a_manifest_without_the_container_is_told(broken: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="--env: the manifest has no container tensorflow"):
        with_variables(broken, {"A": "1"})
    assert with_variables(broken, {}) is broken


@pytest.mark.parametrize("verb", ["run", "submit"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "A"], "tftj: --env A: must be NAME=VALUE"),
        (["--set", "spec.nothing=1"], "tftj: --set spec.nothing=1: spec has no field nothing; it has "),
    ],
)
def test_both_commands_refuse_the_same_options(
    verb: str,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(minimal("digits")))
    assert main([verb, "job.yaml", *words]) == 2
    assert said in capsys.readouterr().err


def test_run_has_the_name_the_workers_and_the_file_as_submit_has_them(tmp_path: Path) -> None:
    job = minimal("digits")
    container(job)["command"] = [sys.executable, "-c", "import os; print('I am', os.environ['A'])"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    words = ["run", "-f", "job.yaml", "--name", "other", "--workers", "1", "--env", "A=$(B)"]
    done = subprocess.run(
        [sys.executable, "-m", "tftraining_client", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "other: 1 replica on this machine" in done.stdout + done.stderr and "I am $(B)" in done.stdout


@pytest.mark.parametrize("verb", ["run", "submit", "convert"])
def test_each_command_takes_its_file_as_an_argument_and_by_an_option(
    verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    for words in (["none.yaml"], ["-f", "none.yaml"], ["--filename", "none.yaml"]):
        assert main([verb, *words]) == 2
        assert capsys.readouterr().err == "tftj: none.yaml: no such file or directory\n"
    for words in ([], [str(FILES[0]), "-f", str(FILES[0])]):
        assert main([verb, *words]) == 2
        assert f"{verb} takes " in capsys.readouterr().err


def test_the_commands_at_the_end_of_a_run_work_where_tftj_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/tftj", "run"])
    assert called() == ".venv/bin/tftj"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "__main__.py"), "run"])
    assert called() == f"{sys.executable} -m tftraining_client"
    (tmp_path / "tftj").touch(mode=0o755)
    assert called() == "tftj"
