"""Parts of the lab that decide something, without a cluster."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed import binaries, cli, cluster, engine, next_steps, private_engine, release
from testbed.kube import Kube
from testbed.node import runc_lab
from testbed.shell import LabError, lock, use, used
from tests.support.repository import REPOSITORY


@pytest.mark.parametrize(("capability", "added"), [("CAP_KILL", True), ("CAP_SYS_ADMIN", False)])
def test_only_build_steps_get_the_settings_of_the_machine(tmp_path: Path, capability: str, added: bool) -> None:
    settings = tmp_path / "build.json"
    settings.write_text(json.dumps({"env": ["PIP_TIMEOUT=9"], "mounts": [{"destination": "/dev/lab"}]}))
    config: dict[str, Any] = {"process": {"env": ["HOME=/"], "capabilities": {"bounding": [capability]}}, "mounts": []}
    runc_lab.with_build_settings(config, settings)
    assert ("PIP_TIMEOUT=9" in config["process"]["env"]) is added
    assert bool(config["mounts"]) is added


def test_an_unknown_program_is_refused_by_name() -> None:
    with pytest.raises(LabError, match="unknown program kubelte"):
        binaries.ensure("kubelte")


def test_assets_are_used_and_a_missing_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    assert (binaries.ensure("etcd") / "etcd").resolve() == tmp_path / "etcd"
    with pytest.raises(LabError, match=r"KUBEBUILDER_ASSETS .* lacks kube-apiserver"):
        binaries.ensure("kube-apiserver")


def test_a_thing_is_used_as_long_as_one_user_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with lock("thing"), use("thing"):
        with use("thing"):
            assert used("thing")
        assert used("thing")
    assert not used("thing")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine")
def test_an_engine_does_not_start_on_data_that_another_one_works_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    daemon = tmp_path / "dockerd"
    daemon.write_text(f"#!/bin/sh\necho it ran\ntouch {tmp_path}/started\n")
    daemon.chmod(0o755)
    with (
        use(private_engine.DATA),
        pytest.raises(LabError, match=r"another engine, .* uses .*/tftraining/engine"),
    ):
        private_engine.start()
    assert not (tmp_path / "started").exists()
    with pytest.raises(LabError, match="did not start: it ran"):
        private_engine.start()
    assert not private_engine.runtime_dir().exists()


def test_the_next_steps_can_be_pasted(tmp_path: Path) -> None:
    programs, kubeconfig = tmp_path / "a place" / "it's", tmp_path / "a b" / "kubeconfig"
    script = f'{next_steps.export(programs, kubeconfig)}; echo "$KUBECONFIG"; echo "$PATH"'
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == [str(kubeconfig), f"{programs}:{os.environ['PATH']}"]


@pytest.mark.parametrize("with_operator", [True, False])
def test_what_the_next_steps_name_is_in_the_checkout(with_operator: bool) -> None:
    words = " ".join(next_steps.commands(with_operator)).split()
    files = [word for word in words if "/" in word]
    assert [name for name in files if not (REPOSITORY / name).exists()] == []
    assert ("helm" in words, "examples/storage/test-cluster.yaml" in words) == (not with_operator, not with_operator)


@pytest.fixture
def cluster_that_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of a cluster that has come up; gives what is done to it."""
    done: list[str] = []
    kube = Kube(tmp_path / "kubeconfig")
    monkeypatch.setattr(cluster, "up", lambda _: cluster.Cluster(kube, ["operator:1", "trainer:1"]))
    monkeypatch.setattr(release, "keep", lambda _, image, *settings: done.append(f"keep {image} {len(settings)}"))
    monkeypatch.setattr(Kube, "kubectl", lambda _, *words: done.append(" ".join(words)))
    monkeypatch.setattr(binaries, "ensure", lambda *_: tmp_path)
    return done


def test_up_installs_the_operator_as_the_tests_do_and_storage_for_the_examples(
    cluster_that_is_up: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["up"]) == 0
    assert cluster_that_is_up == [f"keep operator:1 {len(release.OFF_THE_WORKERS)}", f"apply -f {next_steps.STORAGE}"]
    out, err = capfd.readouterr()
    assert out == f'export PATH={tmp_path}:"$PATH" KUBECONFIG={tmp_path}/kubeconfig\n', "this is for eval"
    assert err.splitlines()[-2:] == next_steps.commands(with_operator=True)


def test_up_leaves_both_out_where_that_is_asked_for(
    cluster_that_is_up: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["up", "--no-operator"]) == 0
    assert cluster_that_is_up == []
    assert capfd.readouterr().err.splitlines()[-3:] == next_steps.commands(with_operator=False)


def test_down_says_what_it_removed_or_that_there_was_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(engine, "running", lambda: None)
    folder = tmp_path / "tftraining" / "clusters" / cluster.name()
    (folder / "shared").mkdir(parents=True)
    assert cli.main(["down"]) == 0
    assert capsys.readouterr().out == f"removed {folder} (the kubeconfig, and the files of trainings in /shared)\n"
    assert not folder.exists()
    assert cli.main(["down"]) == 0
    assert capsys.readouterr().out == f"nothing to remove: there is no cluster {cluster.name()}\n"
