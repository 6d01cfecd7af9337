"""The API server goes away, forgets its history, or tells the operator nothing for a while: no ghosts, no loss.

A ghost is an object that is gone but that the operator still believes in.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.jobs import UNTOUCHED, NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.ports import free_port


def test_what_happens_in_a_gap_of_the_watches_is_found_out(
    control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess
) -> None:
    """The watches break and their history is forgotten (410). Meanwhile pods go, a job goes with its children, and
    another goes whose next step would have been to create something: the hardest ghost, as nobody tells of its end."""
    kept, robbed, deleted = new_job("kept"), new_job("robbed"), new_job("deleted")
    services = f"/api/v1/namespaces/{kept.namespace}/services"
    control_plane.request("POST", services, {"metadata": {"name": "ghost"}, "spec": {"ports": [{"port": 80}]}})
    ghost = new_job("ghost")
    for job in (kept, robbed, deleted):
        job.run()
    ghost.wait_for("Starting", reason="CreationRefused")
    with operator.frozen():
        control_plane.restart_apiserver()  # no watch is left that could tell of what follows
        robbed.remove_pod("robbed-worker-1")
        deleted.delete()
        for name in deleted.pods():
            deleted.remove_pod(name)
        ghost.delete()
        for name in ("deleted", "ghost"):
            control_plane.request("DELETE", f"{services}/{name}")
        control_plane.compact_etcd()

    robbed.run(attempt=2)
    assert robbed.status()["restarts"] == {"counted": 0, "disruptions": 1, "recreated": 1, "withoutProgress": 1}
    assert kept.status()["phase"] == "Running" and kept.status()["attempt"] == 1
    assert "has expired; listing again" in operator.log_text()
    for job in (deleted, ghost):
        gone = f"{job.namespace}/{job.name}: the job no longer exists"
        wait_until(partial(logged, operator, gone), f"the operator found out: {gone}")
        assert job.pods() == {} and job.name not in job.objects("services")
    assert operator.get("healthz")[0] == 200


def logged(operator: OperatorProcess, text: str) -> bool:
    """Whether the operator has said so."""
    return text in operator.log_text()


def test_a_job_goes_on_after_the_api_server_was_away(
    control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess
) -> None:
    job = new_job()
    job.run()
    control_plane.restart_apiserver(down_seconds=2)
    job.fail_pod("job-worker-1")
    job.run(attempt=2)
    later = new_job("later")
    later.run()


def start(**environment: str) -> subprocess.CompletedProcess[str]:
    """Start an operator that is expected to end by itself, and return what it said."""
    return subprocess.run(
        [sys.executable, "-m", "tftraining_operator"],
        env={"PATH": os.environ["PATH"], "TFTRAINING_PORT": str(free_port()), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def only_line(ended: subprocess.CompletedProcess[str]) -> str:
    """The one line that a start that failed leaves."""
    assert ended.returncode == 1, ended
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("tftraining-operator: "), ended.stderr
    return lines[0]


def kubeconfig_for(server: str, directory: Path) -> Path:
    """A kubeconfig for a server that is not there."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        f'{{"clusters": [{{"name": "a", "cluster": {{"server": "{server}"}}}}], "current-context": "a",'
        ' "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],'
        ' "users": [{"name": "a", "user": {"token": "a"}}]}'
    )
    return kubeconfig


def test_a_server_whose_name_nobody_knows_is_named_in_one_line(tmp_path: Path) -> None:
    line = only_line(start(KUBECONFIG=str(kubeconfig_for("https://nowhere.invalid", tmp_path))))
    assert "cannot reach the API server" in line and "nowhere.invalid" in line


@pytest.mark.parametrize("content", ["", "[]", "clusters: []", "contexts: ["])
def test_a_kubeconfig_that_is_none_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(content)
    assert "kubeconfig" in only_line(start(KUBECONFIG=str(tmp_path / "kubeconfig")))


def test_the_start_waits_for_an_api_server_that_is_away(tmp_path: Path) -> None:
    """It is well meanwhile, and ends at once when it is told to."""
    waiting = OperatorProcess(kubeconfig_for("https://127.0.0.1:1", tmp_path), tmp_path)
    waiting.start(wait=False)
    try:
        wait_until(partial(logged, waiting, "cannot reach the API server"), "the operator waits")
        assert waiting.get("healthz")[0] == 200 and waiting.get("readyz")[0] == 500
        assert waiting.terminate() == 0
        assert "Traceback" not in waiting.log_text()
    finally:
        waiting.kill()


def test_a_port_that_is_taken_is_named(control_plane: ControlPlane, operator: OperatorProcess) -> None:
    kubeconfig = operator_kubeconfig(control_plane)
    line = only_line(start(KUBECONFIG=str(kubeconfig), TFTRAINING_PORT=str(operator.port)))
    assert "address already in use" in line


def test_a_wrong_setting_is_named() -> None:
    assert "TFTRAINING_PORT must be a port number" in only_line(start(TFTRAINING_PORT="http"))


def test_an_operator_of_one_namespace_leaves_the_others_alone(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    operator.kill()
    control_plane.create_namespace(f"{namespace}-own")
    kubeconfig = operator_kubeconfig(control_plane, [f"{namespace}-own"], release="one")
    own, other = TrainingJob(control_plane, f"{namespace}-own"), TrainingJob(control_plane, namespace)
    with OperatorProcess(kubeconfig, tmp_path, TFTRAINING_NAMESPACES=f"{namespace}-own") as one:
        other.create()
        own.create()
        own.run()
        assert other.status() == UNTOUCHED and other.pods() == {}
        assert "forbidden" not in one.log_text()


def test_a_namespace_that_was_deleted_does_not_stop_the_work_in_the_others(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    operator.kill()
    control_plane.create_namespace(f"{namespace}-left")
    kubeconfig = operator_kubeconfig(control_plane, [f"{namespace}-left"], release="left")
    job = TrainingJob(control_plane, f"{namespace}-left")
    watched = f"{namespace}-deleted,{namespace}-left"
    with OperatorProcess(kubeconfig, tmp_path, TFTRAINING_NAMESPACES=watched) as left:
        job.create()
        job.run()
        assert f"may not list and watch pods in {namespace}-deleted" in left.log_text()


def test_sigterm_ends_it_at_once_and_quietly(
    control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess
) -> None:
    job = new_job()
    job.run()
    assert operator.terminate(seconds=10) == 0, "within the grace period of the chart"
    assert "Traceback" not in operator.log_text() and "never awaited" not in operator.log_text()
    operator.start()
    job.fail_pod("job-worker-0")
    job.run(attempt=2)


@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.slow_fault)])
def test_many_watched_namespaces(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path, number: int
) -> None:
    """Each namespace takes three connections for its watches: those of 34 would fill the client's default pool of 100,
    and keep requests from being sent."""
    operator.kill()
    watched = [namespace, *(f"{namespace}-{each}" for each in range(1, number))]
    for each in watched[1:]:
        control_plane.create_namespace(each)
    kubeconfig = operator_kubeconfig(control_plane)
    with OperatorProcess(kubeconfig, tmp_path, TFTRAINING_NAMESPACES=",".join(watched)):
        for each in (watched[0], watched[-1]):
            job = TrainingJob(control_plane, each, "job")
            job.create()
            job.run()
