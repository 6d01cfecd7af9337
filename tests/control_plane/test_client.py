"""The Python client and `tftj` on a real API server: jobs, watches, waiting, changes, rights and credentials."""

import asyncio
import contextlib
import fcntl
import gc
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.shell import run
from tests.support.client.tfjobs import ENTRYPOINTS, FILES, tfjob
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.dry_runs import dry_run
from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.manifests import minimal
from tftraining_api.manifests.pod import PodManifests
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Replica
from tftraining_client import (
    AsyncClient,
    Client,
    Job,
    JobDeleted,
    JobEnded,
    JobFailed,
    JobNotFound,
    UserError,
    WaitTimeout,
)
from tftraining_client.cluster import watching
from tftraining_client.cluster.connection import connect
from tftraining_client.tfjob import Choices, convert


@pytest.fixture
def client(control_plane: ControlPlane, namespace: str) -> Iterator[Client]:
    """Give the administrator's client in the test's namespace."""
    with Client(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as client:
        yield client


def tftj(kubeconfig: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user of that kubeconfig, with pipes for its output."""
    return subprocess.run(
        [sys.executable, "-m", "tftraining_client", *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def service_account(plane: ControlPlane, namespace: str, rules: list[dict[str, Any]], directory: Path) -> Path:
    """A kubeconfig of an account with these rights in the namespace, and no other."""
    name = "person"
    plane.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    plane.request("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    plane.request("POST", f"{rbac}/rolebindings", binding)
    token = token_of(plane, namespace, name)
    plane.wait_until_allowed(namespace, token, rules)
    return plane.write_kubeconfig(directory / "person.kubeconfig", token, namespace)


def token_of(plane: ControlPlane, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    token: str = plane.request("POST", path, request)["status"]["token"]
    return token


VIEW = [
    {"apiGroups": ["tftraining.dev"], "resources": ["tftrainingjobs"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
]


def test_a_job_from_submission_to_success(client: Client, new_job: NewJob, control_plane: ControlPlane) -> None:
    job = new_job()
    assert [each.name for each in client.list()] == ["job"]
    job.run()
    running = client.wait("job", "running", timeout=60)
    assert (running.phase, running.status.ready, running.finished) == ("Running", "2/2", False)
    assert [(pod.replica, pod.ready) for pod in client.pods("job")] == [("worker-0", True), ("worker-1", True)]
    wait_until(lambda: len(client.events("job")) == 2, "two events")
    assert [event.reason for event in client.events("job")] == ["Started", "Training"]
    with pytest.raises(WaitTimeout, match=r"job job was not succeeded after 0\.5 s"):
        client.wait("job", timeout=0.5)
    job.succeed_pod("job-worker-0")
    assert client.wait("job", timeout=60).succeeded
    with pytest.raises(JobEnded, match="job job has succeeded and will never be failed"):
        client.wait("job", "failed", timeout=60)


def test_a_failed_job_raises_with_reason_and_log_tail(client: Client, new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy__maxRestarts=0)
    job.run()
    job.fail_pod("job-worker-1", 1, "Traceback …\nValueError: boom")
    with pytest.raises(JobFailed) as failed:
        client.wait("job", timeout=60)
    assert failed.value.reason == "MaxRestartsExceeded"
    assert "ValueError: boom" in failed.value.log_tail
    assert str(failed.value).startswith("job job failed: MaxRestartsExceeded: worker-1")
    assert client.wait("job", "failed", timeout=60).failed


def test_a_requested_restart_is_free_and_happens_once(client: Client, new_job: NewJob) -> None:
    job = new_job()
    job.run()
    client.restart("job")
    job.run(attempt=2)
    status = job.wait_for("Running", attempt=2)
    restarts = status["restarts"]
    assert status["lastRestart"]["reason"] == "RestartRequested"
    assert (restarts["counted"], restarts["recreated"]) == (0, 1)
    time.sleep(1)
    assert job.status()["attempt"] == 2
    job.succeed_pod("job-worker-0")
    client.wait("job", timeout=60)
    with pytest.raises(UserError, match=r"job job has ended \(Succeeded\): `tftj submit --replace"):
        client.restart("job")


def test_a_submitted_manifest_is_checked_strictly(client: Client, namespace: str) -> None:
    manifest = minimal("sent")
    assert client.submit(manifest, dry_run=True).name == "sent" and client.list() == []
    manifest["spec"]["runPolcy"] = {}
    with pytest.raises(UserError, match=r'unknown field "spec\.runPolcy"'):
        client.submit(manifest)
    del manifest["spec"]["runPolcy"]
    sent = client.submit(manifest)
    assert (sent.namespace, sent.phase) == (namespace, "Pending")
    with pytest.raises(UserError, match="already exists"):
        client.submit(manifest)
    with pytest.raises(JobNotFound, match=f"no job snet in namespace {namespace}; the nearest names: sent"):
        client.get("snet")


def test_a_file_is_submitted_with_its_config_maps(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, client: Client
) -> None:
    def program(text: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, "data": {"train.py": text}}

    def write(*documents: dict[str, Any]) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return path

    admin = control_plane.kubeconfig
    wrong = minimal("wrong")
    wrong["spec"]["replicaSpecs"]["worker"]["replicas"] = -1
    refused = tftj(admin, "submit", "-f", str(write(program("1"), wrong)), "-n", namespace)
    assert refused.returncode == 2 and "spec.replicaSpecs.worker.replicas" in refused.stderr
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    names = [each["metadata"]["name"] for each in control_plane.request("GET", maps)["items"]]
    assert "program" not in names, "a refused job leaves no ConfigMap"

    file = str(write(program("1"), minimal("first")))
    checked = tftj(admin, "submit", "-f", file, "-n", namespace, "--dry-run")
    assert checked.stdout == "tftrainingjob.tftraining.dev/first created (dry run)\n" and client.list() == []
    sent = tftj(admin, "submit", "-f", file, "-n", namespace)
    assert (sent.returncode, sent.stdout) == (0, "tftrainingjob.tftraining.dev/first created\n")
    assert control_plane.request("GET", f"{maps}/program")["data"] == {"train.py": "1"}
    again = tftj(admin, "submit", "-f", str(write(program("1"), minimal("second"))), "-n", namespace, "-o", "name")
    assert again.stdout == "tftrainingjob.tftraining.dev/second\n"
    other = tftj(admin, "submit", "-f", str(write(program("2"), minimal("third"))), "-n", namespace)
    assert other.returncode == 2 and "ConfigMap program exists in namespace" in other.stderr
    assert [job.name for job in client.list()] == ["first", "second"]
    options = ["--name", "renamed", "--workers", "3", "--set", "spec.runPolicy.suspend=true", "--env", "LEVEL=$(NONE)"]
    changed = tftj(admin, "submit", str(write(program("1"), minimal("first"))), "-n", namespace, *options)
    assert changed.stdout == "tftrainingjob.tftraining.dev/renamed created\n", changed.stderr
    spec = client.get("renamed").raw["spec"]
    assert (spec["replicaSpecs"]["worker"]["replicas"], spec["runPolicy"]["suspend"]) == (3, True)
    assert spec["template"]["spec"]["containers"][0]["env"] == [{"name": "LEVEL", "value": "$$(NONE)"}]
    client.delete("renamed", wait=True)
    elsewhere = minimal("fourth")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    mixed = tftj(admin, "submit", "-f", str(write(elsewhere)), "-n", namespace)
    assert mixed.stderr == f"tftj: the manifest is for namespace elsewhere, not for {namespace}\n"


def test_a_watch_goes_on_over_a_restart_and_a_forgotten_history(client: Client, control_plane: ControlPlane) -> None:
    client.submit(minimal("kept"))
    client.submit(minimal("gone"))
    changes = client.watch()
    assert {next(changes).job.name, next(changes).job.name} == {"kept", "gone"}
    seen: list[tuple[str, str]] = []

    def read() -> None:
        for change in changes:
            seen.append((change.type, change.job.name))
            if change.type == "ADDED":
                return

    reader = threading.Thread(target=read)
    reader.start()
    client.delete("gone")
    wait_until(lambda: ("DELETED", "gone") in seen, "the deletion is seen")
    control_plane.compact_etcd()
    client.submit(minimal("new"))
    reader.join(60)
    assert [each for each in seen if each[0] != "MODIFIED"] == [("DELETED", "gone"), ("ADDED", "new")]


def test_an_idle_watch_costs_no_request(control_plane: ControlPlane, namespace: str) -> None:
    async def requests() -> int:
        async with AsyncClient(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as client:
            await client.submit(minimal("idle"))
            changes = client.watch("idle")
            assert (await anext(changes)).type == "ADDED"
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0.5)
            api = (await client.connection()).api
            before = api.requests.total()
            await asyncio.sleep(3)
            waiting.cancel()
            return api.requests.total() - before

    assert asyncio.run(requests()) == 0


def test_the_client_works_where_an_event_loop_runs_and_leaves_nothing_behind(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def cell_of_a_notebook() -> Iterator[Any]:
        with Client(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as client:
            client.submit(minimal("job"))
            changes = client.watch()
            assert next(changes).job.name == "job"
            return changes

    changes = asyncio.run(cell_of_a_notebook())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del changes
        gc.collect()
    assert "tftraining-client" not in [thread.name for thread in threading.enumerate()]


SCRIPTS = {
    "the end of the script": "client = Client(kubeconfig=K, namespace=N)\nchanges = client.watch()\nnext(changes)",
    "break": "with Client(kubeconfig=K, namespace=N) as client:\n"
    "    lines, snapshots = client.logs('job', follow=True), client.snapshots('job')\n"
    "    next(snapshots)\n"
    "    for _ in client.watch():\n        break",
    "a client that nobody keeps": "next(Client(kubeconfig=K, namespace=N).watch())",
    "an exception": "with Client(kubeconfig=K, namespace=N) as client:\n"
    "    snapshots = client.snapshots('job')\n    next(snapshots)\n    sys.exit(3)",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_quietly_whatever_it_leaves_open(
    control_plane: ControlPlane, namespace: str, client: Client, script: str
) -> None:
    client.submit(minimal("job"))
    names = f"K, N = {str(control_plane.kubeconfig)!r}, {namespace!r}\n"
    text = f"import sys\nfrom tftraining_client import Client\n{names}{SCRIPTS[script]}"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (3 if "exit" in SCRIPTS[script] else 0, "")


def test_a_closed_client_says_so(control_plane: ControlPlane, namespace: str) -> None:
    with Client(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as client:
        client.submit(minimal("job"))
        changes = client.watch()
        next(changes)
    client.close()
    for use in (lambda: client.get("job"), lambda: next(client.watch()), lambda: next(changes)):
        with pytest.raises(UserError, match="the client is closed: make a new one"):
            use()


def test_the_command_lists_and_shows(new_job: NewJob, control_plane: ControlPlane, namespace: str) -> None:
    job = new_job()
    job.run()
    admin = control_plane.kubeconfig
    _, row = tftj(admin, "list", "-n", namespace).stdout.splitlines()
    assert row.split()[:4] == ["job", "Running", "2/2", "0"]
    assert namespace in tftj(admin, "list", "--all-namespaces").stdout
    items = json.loads(tftj(admin, "list", "-n", namespace, "-o", "json").stdout)["items"]
    assert [(each["kind"], each["metadata"]["name"]) for each in items] == [("TFTrainingJob", "job")]
    tree = tftj(admin, "status", "job", "-n", namespace)
    assert (tree.returncode, tree.stderr) == (0, "")
    assert "worker 2/2 ready" in tree.stdout and "worker-1  Running  ready" in tree.stdout


def test_the_command_follows_a_job_and_its_exit_code_tells_the_outcome(
    new_job: NewJob, control_plane: ControlPlane, namespace: str
) -> None:
    job = new_job(spec__restartPolicy__maxRestarts=0)
    job.run()
    admin = control_plane.kubeconfig
    late = tftj(admin, "wait", "job", "-n", namespace, "--timeout", "1s")
    assert (late.returncode, late.stderr) == (124, "tftj: job job was not succeeded after 1 s\n")
    with subprocess.Popen(
        [sys.executable, "-m", "tftraining_client", "status", "job", "--watch", "-n", namespace],
        env={**os.environ, "KUBECONFIG": str(admin)},
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith("Running  2/2")
        job.fail_pod("job-worker-1", 1, "ValueError: boom")
        assert following.stdout.read().splitlines()[-1].startswith("Failed")
        assert following.wait(60) == 1
    ended = tftj(admin, "wait", "job", "-n", namespace)
    assert ended.returncode == 1 and ended.stderr.startswith("tftj: job job failed: MaxRestartsExceeded: ")
    assert tftj(admin, "wait", "job", "-n", namespace, "--for=failed").returncode == 0
    told = tftj(admin, "explain", "job", "-n", namespace).stdout
    assert "last failure: job-worker-1" in told and "  ValueError: boom" in told and "try: " in told


@pytest.mark.parametrize("columns", [40, *(pytest.param(each, marks=pytest.mark.slow_fault) for each in (80, 200))])
def test_a_job_that_is_watched_on_a_terminal_has_no_line_that_is_too_long(
    new_job: NewJob, control_plane: ControlPlane, namespace: str, columns: int
) -> None:
    job = new_job("a-job-of-a-person-with-a-long-name")
    job.run()
    here = f"--namespace {namespace}"
    with Terminal(control_plane.kubeconfig, columns, "status", job.name, "--watch", "-n", namespace) as following:
        following.read_until("Running")
        job.succeed_pod(f"{job.name}-worker-0")
        assert following.read_to_the_end() == 0
    assert "Succeeded" in following.text and "Traceback" not in following.text
    assert following.lines[-1] == f"next: tftj logs {job.name} {here}; tftj delete {job.name} {here}"
    assert max(len(line) for line in following.lines if not line.startswith("next:")) <= columns


class Terminal:
    """The command on a pseudo-terminal so wide."""

    def __init__(
        self, kubeconfig: Path, columns: int, *arguments: str, program: Sequence[str] = ("-m", "tftraining_client")
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self._process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            env={**environment, "KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """The printed lines without the control sequences."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).replace("\r", "\n")
        return [line.rstrip() for line in plain.splitlines() if line.strip()]

    def read_until(self, text: str) -> None:
        while text not in self.text:
            assert select.select([self._ours], [], [], 60)[0], f"nothing more than: {self.text}"
            self.text += os.read(self._ours, 65536).decode()

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def read_to_the_end(self) -> int:
        """Read until the command has ended; its exit code."""
        with contextlib.suppress(OSError):  # the other end is closed
            while select.select([self._ours], [], [], 60)[0] and (chunk := os.read(self._ours, 65536)):
                self.text += chunk.decode()
        return self._process.wait(60)


def test_the_commands_change_a_job(
    client: Client, new_job: NewJob, control_plane: ControlPlane, namespace: str, garbage_collection: None
) -> None:
    job = new_job()
    job.run()

    def said(*arguments: str) -> str:
        done = tftj(control_plane.kubeconfig, *arguments, "-n", namespace)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.strip()

    assert said("scale", "job", "--replicas", "3").endswith("scaled to 3 workers")
    job.run(attempt=2, count=3)
    assert said("suspend", "job") == "tftrainingjob.tftraining.dev/job suspended"
    assert client.wait("job", "suspended", timeout=60).suspended
    assert said("suspend", "job") == "tftrainingjob.tftraining.dev/job is suspended already"
    assert said("resume", "job") == "tftrainingjob.tftraining.dev/job resumed"
    wait_until(lambda: client.get("job").phase == "Starting", "the job starts again")
    assert said("delete", "job") == "tftrainingjob.tftraining.dev/job deleted"
    assert job.is_gone() and client.list() == []


def test_the_shell_completes_the_names_of_jobs(client: Client, control_plane: ControlPlane, namespace: str) -> None:
    for name in ("mnist-a", "mnist-b", "digits"):
        client.submit(minimal(name))

    def completed(words: str) -> list[str]:
        asked = {"_TFTJ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = tftj(control_plane.kubeconfig, **asked)
        assert done.stderr == ""
        return done.stdout.split()

    assert completed(f"tftj status --namespace {namespace} mn") == ["mnist-a", "mnist-b"]
    assert completed("tftj sus") == ["suspend"]
    assert completed(f"tftj status --context none --namespace {namespace} mn") == []


def test_a_missing_right_is_named(control_plane: ControlPlane, namespace: str, tmp_path: Path, client: Client) -> None:
    client.submit(minimal("job"))
    viewer = service_account(control_plane, namespace, VIEW, tmp_path)
    shown = tftj(viewer, "status", "job")
    assert shown.returncode == 0 and "no permission to list events" in shown.stdout
    everywhere = tftj(viewer, "list", "-A")
    assert (
        everywhere.returncode == 2
        and "may not list tftrainingjobs.tftraining.dev in all namespaces" in everywhere.stderr
    )
    examined = tftj(viewer, "doctor")
    assert examined.returncode == 1, examined
    assert f"in namespace {namespace} you may not create tftrainingjobs, patch tftrainingjobs" in examined.stdout
    assert "Traceback" not in examined.stderr


def test_the_doctor_of_an_administrator(control_plane: ControlPlane, namespace: str) -> None:
    examined = tftj(control_plane.kubeconfig, "doctor", "-n", namespace)
    assert "tftrainingjobs.tftraining.dev/v1 is installed with all fields" in examined.stdout
    assert f"in namespace {namespace} you may submit, follow and change jobs" in examined.stdout
    # This API server runs no operator's Deployment: the tests' operator is a process.
    assert "no operator is installed" in examined.stdout and examined.returncode == 1


def test_the_api_server_sees_whom_the_kubeconfig_impersonates(control_plane: ControlPlane, tmp_path: Path) -> None:
    document = yaml.safe_load(control_plane.kubeconfig.read_text())
    extra = {"example.org/Team": ["x y", "z"]}
    document["users"][0]["user"] |= {"as": "ada", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": extra}
    (tmp_path / "config").write_text(yaml.safe_dump(document))

    async def seen() -> Any:
        found = await connect(None, str(tmp_path / "config"))
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            return await found.api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        finally:
            await found.api.close()

    user = asyncio.run(seen())["status"]["userInfo"]
    assert user == {
        "username": "ada",
        "uid": "7",
        "groups": ["a", "b", "system:authenticated"],
        "extra": {"example.org/team": ["x y", "z"]},
    }
    refused = tftj(tmp_path / "config", "list", "-n", "default")
    assert refused.returncode == 2 and "ada may not list tftrainingjobs" in refused.stderr
    # The options go before the kubeconfig; groups alone are nobody.
    options = ("--as", "bob", "--as-group", "system:masters", "--as-uid=9", "-n=default")
    assert tftj(tmp_path / "config", *options, "list").returncode == 0
    bob = tftj(control_plane.kubeconfig, "list", "-n", "default", "--as", "bob")
    assert bob.returncode == 2 and "bob may not list tftrainingjobs" in bob.stderr
    nobody = tftj(control_plane.kubeconfig, "list", "--as-group", "system:masters")
    assert nobody.returncode == 2 and "without as" in nobody.stderr


def test_requests_are_told_without_a_token(control_plane: ControlPlane, namespace: str) -> None:
    told = tftj(control_plane.kubeconfig, "-v", "6", "list", "-n", namespace)
    assert re.fullmatch(
        rf"tftj: GET /apis/tftraining\.dev/v1/namespaces/{namespace}/tftrainingjobs\S* 200 in \d+ ms\n.*\n", told.stderr
    )
    missing = tftj(control_plane.kubeconfig, "status", "none", "-n", namespace, "-v")
    assert re.search(r"^tftj: GET \S+/tftrainingjobs/none 404 in \d+ ms$", missing.stderr, re.MULTILINE)
    token = yaml.safe_load(control_plane.kubeconfig.read_text())["users"][0]["user"].get("token")
    assert token and token not in told.stderr + missing.stderr
    assert " ms" not in tftj(control_plane.kubeconfig, "list", "-n", namespace, "--v=5").stderr


def test_kubectl_completes_the_command(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, call in {"kubectl-tftj": "main", "kubectl_complete-tftj": "complete_for_kubectl"}.items():
        script = f"#!{sys.executable}\nimport sys\nfrom tftraining_client.__main__ import {call}\nsys.exit({call}())\n"
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))

    def completed(*words: str) -> list[str]:
        return run([control_plane.kubectl_program, "__complete", "tftj", *words]).split()

    assert completed("sus") == ["suspend", ":4"]
    assert namespace in completed("list", "-n", namespace[:-1])


class Vanishing(AsyncClient):
    """A client whose job is deleted right after it was read."""

    async def get(self, name: str) -> Job:
        job = await super().get(name)
        await self.delete_job(name)
        return job

    async def delete_job(self, name: str) -> None:
        await self._named("DELETE", name, {})


@pytest.mark.parametrize("verb", ["wait", "logs", "snapshots"])
def test_a_job_that_vanishes_before_the_watch_ends_the_following(
    control_plane: ControlPlane, namespace: str, client: Client, verb: str
) -> None:
    client.submit(minimal("short"))

    async def follow() -> None:
        async with (
            asyncio.timeout(60),
            Vanishing(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as follower,
        ):
            if verb == "wait":
                await follower.wait("short")
            async for _ in follower.logs("short", follow=True) if verb == "logs" else follower.snapshots("short"):
                pass

    with pytest.raises(JobDeleted, match="job short was deleted"):
        asyncio.run(follow())


def test_the_outcome_of_a_job_that_is_deleted_at_its_end_is_told(client: Client, new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy__maxRestarts=0, spec__runPolicy__ttlSecondsAfterFinished=0)
    job.run()
    timer = threading.Timer(2, lambda: job.fail_pod("job-worker-1", 1, "ValueError: boom"))
    timer.start()
    with pytest.raises(JobFailed, match="MaxRestartsExceeded"):
        # No pod is of this attempt: there is no kubelet to read logs from.
        list(client.logs("job", follow=True, attempt=9))
    timer.join()


INTERRUPTED = """\
import sys
from tftraining_client import Client
with Client(kubeconfig=sys.argv[1], namespace=sys.argv[2]) as client:
    for change in client.watch():
        print(change.job.name, flush=True)
"""


def test_ctrl_c_ends_a_generator_of_the_client(control_plane: ControlPlane, namespace: str, client: Client) -> None:
    client.submit(minimal("job"))
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(control_plane.kubeconfig), namespace],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None and program.stdout.readline() == "job\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    _, told = program.communicate(timeout=60)
    assert "KeyboardInterrupt" in told and "RuntimeError" not in told and "never" not in told, told


SHORT_LIVED = """\
import datetime, json, pathlib, sys
runs = pathlib.Path(sys.argv[1])
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
if number in (1, 2):
    sys.exit("no network")
expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)
status = {"token": sys.argv[2], "expirationTimestamp": expiry.strftime("%Y-%m-%dT%H:%M:%SZ")}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


def test_a_watch_outlives_many_tokens_and_a_plugin_that_fails(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a token of 60 s under `logs -f`, with shorter lives and watches."""
    monkeypatch.setattr(watching, "WATCH_SECONDS", 1)
    client.submit(minimal("job"))
    viewer = service_account(control_plane, namespace, VIEW, tmp_path)
    document = yaml.safe_load(viewer.read_text())
    token, runs = document["users"][0]["user"]["token"], tmp_path / "runs"
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    document["users"][0]["user"] = {"exec": {**command, "args": ["-c", SHORT_LIVED, str(runs), token]}}
    viewer.write_text(yaml.safe_dump(document))
    told: list[str] = []
    with Client(kubeconfig=str(viewer), notify=told.append) as follower:
        changes = follower.watch("job")
        assert next(changes).type == "ADDED"
        suspending = threading.Timer(7, lambda: client.suspend("job"))
        suspending.start()
        while not next(changes).job.suspended:
            pass
        suspending.join()
    assert len(runs.read_text()) >= 4
    assert any("the exec plugin of the kubeconfig failed" in each and "no network" in each for each in told)


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_the_job_of_a_tfjob_is_accepted_and_so_are_its_pods(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    job = convert(tfjob(name), Choices(ENTRYPOINTS.get(name))).job
    job["metadata"]["namespace"] = namespace
    stored = parse_job(dry_run(control_plane, namespace, job))
    assert stored.spec is not None
    account = {"metadata": {"name": "trainer"}}
    control_plane.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    for replica in (Replica(role, 0) for role in job["spec"]["replicaSpecs"]):
        pod = {**PodManifests(stored, stored.spec, [replica], "launcher")[0]}
        pod["spec"].pop("priorityClassName", None)  # this cluster has no such class, and no privileged pods
        pod["spec"]["containers"][0]["securityContext"].pop("privileged", None)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
        assert control_plane.request("POST", path, pod)["kind"] == "Pod"


def test_a_tfjob_of_the_cluster_is_converted(control_plane: ControlPlane, namespace: str) -> None:
    admin = control_plane.kubeconfig
    none = tftj(admin, "convert", "--from-cluster", "digits-workers", "-n", namespace)
    assert none.returncode == 2
    assert (
        none.stderr
        == "tftj: the cluster of context plane does not know tfjobs.kubeflow.org/v1: convert a file instead\n"
    )
    control_plane.kubectl("apply", "--filename=-", stdin=json.dumps(TFJOB_CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/tfjobs.kubeflow.org", "--timeout=60s")
    raw = {**tfjob("workers")}
    raw["metadata"] = {"name": "digits-workers"}
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs"
    wait_until(lambda: accepted(control_plane, path), "the API server serves TFJobs")
    control_plane.request("POST", path, raw)
    found = tftj(admin, "convert", "--from-cluster", "digits-workers", "-n", namespace)
    assert found.returncode == 0 and "restartPolicy: Never" in found.stderr
    job = yaml.safe_load(found.stdout)
    assert job["spec"] == convert(tfjob("workers")).job["spec"]
    assert dry_run(control_plane, namespace, job)["metadata"]["name"] == "digits-workers"
    unknown = tftj(admin, "convert", "--from-cluster", "none", "-n", namespace)
    assert (unknown.returncode, unknown.stderr) == (2, f"tftj: no TFJob none in namespace {namespace}\n")


def accepted(plane: ControlPlane, path: str) -> bool:
    try:
        plane.request("GET", path)
    except Exception:
        return False
    return True


def definition(group: str, version: str, names: dict[str, str]) -> dict[str, Any]:
    """The definition of a resource that takes every field."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    approved = {"api-approved.kubernetes.io": "unapproved, a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}", "annotations": approved},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


TFJOB_CRD = definition("kubeflow.org", "v1", {"kind": "TFJob", "plural": "tfjobs", "singular": "tfjob"})


def test_the_usage_of_a_job(new_job: NewJob, control_plane: ControlPlane, namespace: str) -> None:
    job = new_job()
    job.run()
    admin = control_plane.kubeconfig
    without = tftj(admin, "top", "job", "-n", namespace)
    assert without.returncode == 2 and len(without.stderr.splitlines()) == 1
    assert "has no metrics.k8s.io that answers: install metrics-server" in without.stderr
    # The API server serves what a metrics server would: the objects of a custom resource of that name.
    names = {"kind": "PodMetrics", "plural": "pods", "singular": "pod"}
    served = definition("metrics.k8s.io", "v1beta1", names)
    control_plane.kubectl("apply", "--filename=-", stdin=json.dumps(served))
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
    try:
        wait_until(lambda: accepted(control_plane, path), "the API server serves metrics")
        labels = {"tftraining.dev/job-name": "job"}
        metrics = {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": "job-worker-1", "labels": labels},
            "containers": [{"name": "tensorflow", "usage": {"cpu": "750m", "memory": "512Mi"}}],
        }
        control_plane.request("POST", path, metrics)
        shown = tftj(admin, "top", "job", "-n", namespace)
        assert (shown.returncode, shown.stderr) == (0, "")
        _, first, second = (line.split() for line in shown.stdout.splitlines())
        assert (first[:2], second[:2], "512Mi" in second) == (["worker-0", "-"], ["worker-1", "750m"], True)
        slow = {"type": "SlowMember", "status": "True", "reason": "SlowMember", "message": "the others wait"}
        slow["lastTransitionTime"] = "2026-03-01T12:00:00Z"
        job.patch({"status": {"conditions": [*job.status()["conditions"], slow]}}, "/status")
        assert tftj(admin, "top", "job", "-n", namespace).stderr == "tftj: SlowMember: the others wait\n"
        as_json = json.loads(tftj(admin, "top", "job", "-n", namespace, "-o", "json").stdout)
        assert [each["usage"]["cpuMilli"] for each in as_json["pods"]] == [None, 750]
        everywhere = tftj(admin, "top", "-A", "-o", "json")
        assert [each["job"] for each in json.loads(everywhere.stdout)["pods"] if each["namespace"] == namespace] == [
            "job",
            "job",
        ]
        with Terminal(admin, 40, "top", "-n", namespace) as terminal:
            assert terminal.read_to_the_end() == 0
        head, row, _, hint = terminal.lines
        assert (head.split()[:2], row.split()[:2]) == (["JOB", "REPLICA"], ["job", "worker-0"]) and len(head) <= 40
        assert hint.startswith("next: tftj top JOB -o wide --namespace")
    finally:
        control_plane.kubectl("delete", "crd", "pods.metrics.k8s.io")


def test_tensorboard_reads_the_storage_and_goes_with_its_command(
    new_job: NewJob, control_plane: ControlPlane, namespace: str
) -> None:
    storage = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    job = new_job(spec__storage=storage)
    job.run()
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    control_plane.request("PATCH", f"/api/v1/namespaces/{namespace}", restricted, "application/merge-patch+json")
    serving = subprocess.Popen(
        [sys.executable, "-m", "tftraining_client", "tensorboard", "job", "--port", "0", "-n", namespace],
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    boards = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3Dtensorboard"
    try:
        (pod,) = wait_until(lambda: control_plane.request("GET", boards)["items"], "TensorBoard's pod")
        assert [each["name"] for each in pod["metadata"]["ownerReferences"]] == ["job"]
        assert pod["spec"]["activeDeadlineSeconds"] == 8 * 3600 and not pod["spec"]["automountServiceAccountToken"]
        (container,) = pod["spec"]["containers"]
        assert container["volumeMounts"][0] == {
            "name": "tftraining-storage",
            "mountPath": "/training",
            "readOnly": True,
        }
        assert container["command"][3:7] == ["--logdir", "/training/job", "--host", "127.0.0.1"]
        ready = {"name": "tensorboard", "ready": True, "image": "x", "imageID": "", "restartCount": 0}
        status = {"phase": "Running", "containerStatuses": [{**ready, "state": {"running": {}}}]}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        control_plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")
        assert serving.stdout is not None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", serving.stdout.readline())
        serving.send_signal(signal.SIGINT)
        _, told = serving.communicate(timeout=60)
        assert (serving.returncode, "Traceback" in told, "Ctrl-C" in told) == (130, False, False), told
        assert control_plane.request("GET", boards)["items"] == []
    finally:
        serving.kill()
    with Terminal(control_plane.kubeconfig, 80, "tensorboard", "job", "--port", "0", "-n", namespace) as shown:
        (pod,) = wait_until(lambda: control_plane.request("GET", boards)["items"], "TensorBoard's pod")
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        control_plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")
        shown.read_until("tftj: Ctrl-C ends TensorBoard, and deletes its pod")
        shown.interrupt()
        assert shown.read_to_the_end() == 130
    assert control_plane.request("GET", boards)["items"] == []
    assert len(job.pods()) == 2 and job.status()["phase"] == "Running"
    plain = new_job("plain")
    refused = tftj(control_plane.kubeconfig, "tensorboard", "plain", "-n", namespace)
    assert (refused.returncode, refused.stderr) == (
        2,
        "tftj: job plain has no spec.storage for TensorBoard: set it, and write below it\n",
    )
    plain.delete()


def test_a_wrong_context_a_dead_server_and_wrong_credentials(control_plane: ControlPlane, tmp_path: Path) -> None:
    wrong = tftj(control_plane.kubeconfig, "list", "--context", "prod")
    assert (wrong.returncode, wrong.stderr) == (2, "tftj: the kubeconfig has no context prod: it has plane\n")
    stranger = control_plane.write_kubeconfig(tmp_path / "stranger", "unknown-token")
    refused = tftj(stranger, "list")
    assert refused.returncode == 2 and "refuses the credentials of context plane: log in again" in refused.stderr
    document = yaml.safe_load(stranger.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    stranger.write_text(yaml.safe_dump(document))
    dead = tftj(stranger, "list")
    assert dead.returncode == 3 and dead.stderr.startswith("tftj: cannot reach the API server https://127.0.0.1:1")
    assert len(dead.stderr.splitlines()) == 1
