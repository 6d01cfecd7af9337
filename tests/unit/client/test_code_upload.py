"""A large program goes into the job's storage: the program that receives it runs as in the pod, behind a server that
speaks the protocol of port-forwards."""

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from tests.support.client.cluster_objects import NOW, a_job
from tests.support.ports import free_ports
from tests.unit.launch.test_imports import newer_than_3_9
from tftraining_api.kube.api import Api
from tftraining_client.cluster import code_upload
from tftraining_client.cluster.code_upload import SCRIPT, _while_running, pod_state, send_package, upload_pod
from tftraining_client.cluster.helper_pod import is_left
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.port_forward import PROTOCOL
from tftraining_client.code import LIMIT, Package, pack_files, receive_upload, with_upload
from tftraining_client.commands.progress import shown
from tftraining_client.errors import UserError

NODES: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
POD = "/api/v1/namespaces/ns/pods/upload"
LARGE = pack_files({"noise.bin": os.urandom(LIMIT)})
STORAGE: dict[str, Any] = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
PATIENCE = 20


def job_with_storage(**storage: Any) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "mine:1", "command": ["python3.12", "train.py"]}
    spec = {"template": {"spec": {"containers": [container], "affinity": {"nodeAffinity": NODES, "podAffinity": {}}}}}
    spec |= {"replicaSpecs": {"worker": {}}, "storage": {**STORAGE, **storage}}
    return {**a_job().raw, "spec": spec}


def archive(storage: Path, package: Package = LARGE) -> Path:
    job = with_upload(job_with_storage(), package)
    return storage / str(job["spec"]["code"]["storage"]["path"])


class Kubelet:
    """Forwards WebSockets to the program; the first `cuts` connections end after some bytes."""

    def __init__(self, port: int, cuts: int = 0) -> None:
        self.port, self.cuts = port, cuts

    async def forward(self, request: web.Request) -> web.StreamResponse:
        client = web.WebSocketResponse(protocols=(PROTOCOL,))
        await client.prepare(request)
        for channel in (0, 1):
            await client.send_bytes(bytes([channel]) + self.port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            await client.send_bytes(b"\x01connection refused")
            return client
        back = asyncio.create_task(self._back(reader, client))
        async for message in client:
            writer.write(message.data[1:])
            await writer.drain()
            if self.cuts:
                self.cuts -= 1
                break
        writer.close()
        await back
        return client

    async def _back(self, reader: asyncio.StreamReader, client: web.WebSocketResponse) -> None:
        with suppress(ConnectionError):  # a killed program resets its connections
            while chunk := await reader.read(65536):
                await client.send_bytes(b"\x00" + chunk)
        await client.close()


def started(port: int, path: Path, digest: str, kibibytes: str = "unlimited") -> "subprocess.Popen[str]":
    script = SCRIPT.read_text().replace(f"PORT = {receive_upload.PORT}", f"PORT = {port}")
    program = [sys.executable, "-c", script, str(path), digest, str(len(LARGE.data))]
    limited = ["bash", "-c", f'ulimit -f {kibibytes}; exec "$@"', "bash", *program]
    return subprocess.Popen(limited, stderr=subprocess.PIPE, text=True)


@asynccontextmanager
async def receiving(
    path: Path, digest: str, cuts: int = 0, kibibytes: str = "unlimited"
) -> AsyncIterator[tuple[Api, "subprocess.Popen[str]"]]:
    """The program of the pod, which may write files of so many KiB, and an API server that forwards to it."""
    (port,) = free_ports(1)
    program = started(port, path, digest, kibibytes)
    app = web.Application()
    app.router.add_get(f"{POD}/portforward", Kubelet(port, cuts).forward)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = Api(RESTClientObject(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")))
    try:
        async with asyncio.timeout(PATIENCE):
            yield api, program
    finally:
        await api.close()
        await runner.cleanup()
        program.kill()
        program.communicate()


async def test_an_archive_is_stored_once_and_earlier_ones_of_the_job_go(tmp_path: Path) -> None:
    path = archive(tmp_path)
    path.parent.mkdir(parents=True)
    old, young, other = (path.with_name(name) for name in ("digits.a.tar.gz.host.part", "digits.b", "digits2.c"))
    for each in (old, young, other):
        each.touch()
    for each in (old, other):
        os.utime(each, (1, 1))
    sent: list[tuple[int, int]] = []
    async with receiving(path, LARGE.digest) as (api, program):
        assert await send_package(api, POD, LARGE, lambda *bytes_: sent.append(bytes_)) == "stored"
        assert program.wait(PATIENCE) == 0
    assert path.read_bytes() == LARGE.data and path.stat().st_mode & 0o777 == 0o644
    assert sent[-1] == (len(LARGE.data), len(LARGE.data)) and len(sent) > 5
    assert {each.name for each in path.parent.iterdir()} == {path.name, "digits.b", "digits2.c"}

    os.utime(path, (1, 1))
    sent.clear()
    async with receiving(path, LARGE.digest) as (api, program):
        assert await send_package(api, POD, LARGE, lambda *bytes_: sent.append(bytes_)) == "present"
        assert program.wait(PATIENCE) == 0
    assert sent == [] and time.time() - path.stat().st_mtime < 60, "an archive in use is no old one"


async def test_an_upload_that_is_cut_begins_anew_and_leaves_nothing(tmp_path: Path) -> None:
    path = archive(tmp_path)
    async with receiving(path, LARGE.digest, cuts=1) as (api, program):
        assert await send_package(api, POD, LARGE, lambda *_: None) == "stored"
        assert program.wait(PATIENCE) == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.unlink()
    async with receiving(path, LARGE.digest, cuts=100) as (api, _):
        with pytest.raises(UserError, match=r"was cut 5 times .*: the storage has no usable part of it; try again"):
            await send_package(api, POD, LARGE, lambda *_: None)
        async with asyncio.timeout(PATIENCE):
            while list(path.parent.iterdir()):  # noqa: ASYNC110  the program in the pod removes it
                await asyncio.sleep(0.05)


async def test_a_refusal_is_told_while_the_archive_is_sent_and_by_the_end_of_the_pod(tmp_path: Path) -> None:
    path = archive(tmp_path)
    words = "the storage of the job does not take the code: File too large: .*digits"
    async with receiving(path, LARGE.digest, kibibytes="100") as (api, program):
        with pytest.raises(UserError, match=words):
            await send_package(api, POD, LARGE, lambda *_: None)
        assert program.wait(PATIENCE) == 1
        assert program.stderr is not None
        log = program.stderr.read()
    with pytest.raises(UserError, match=words):
        pod_state(status({"terminated": {"exitCode": 1, "message": log}}))
    assert list(path.parent.iterdir()) == []


async def test_the_end_of_the_pod_tells_what_a_lost_answer_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_upload, "LAST_SECONDS", 0.05)

    async def states(*pods: dict[str, Any]) -> AsyncGenerator[str, None]:
        for pod in pods:
            yield pod_state(pod)

    def unanswered() -> Coroutine[Any, Any, str]:
        return asyncio.sleep(PATIENCE, "answered")

    running = status({"running": {}})
    stored = status({"terminated": {"exitCode": 0}})
    assert await _while_running(states(running, stored), unanswered()) == "stored"
    full = '{"error": "No space left on device: /training/a", "errno": "ENOSPC"}'
    refused = status({"terminated": {"exitCode": 1, "message": f"no connection\n{full}\n"}})
    with pytest.raises(UserError, match="No space left on device: /training/a: delete files in it, or use a larger"):
        await _while_running(states(running, refused), unanswered())


async def test_no_link_in_the_storage_is_followed(tmp_path: Path) -> None:
    path, victim = archive(tmp_path), tmp_path / "victim"
    victim.write_text("of another user")
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)
    path.with_name("digits.old").symlink_to(victim)
    os.utime(path.with_name("digits.old"), (1, 1), follow_symlinks=False)
    async with receiving(path, LARGE.digest) as (api, _):
        assert await send_package(api, POD, LARGE, lambda *_: None) == "stored"
    assert not path.is_symlink() and path.read_bytes() == LARGE.data
    assert {each.name for each in path.parent.iterdir()} == {path.name}, "the link is removed, not what it names"
    assert victim.read_text() == "of another user"

    elsewhere = path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(elsewhere)
    async with receiving(path, LARGE.digest) as (api, program):
        with pytest.raises(UserError, match=r"a link .* in the place of the directory of the archives is not followed"):
            await send_package(api, POD, LARGE, lambda *_: None)
        assert program.wait(PATIENCE) == 1


def test_a_pod_that_is_deleted_removes_the_part_that_has_arrived(tmp_path: Path) -> None:
    path, (port,) = archive(tmp_path), free_ports(1)
    program = started(port, path, LARGE.digest)
    try:
        connection = connected_to(port)
        assert connection.makefile().readline() == '{"state": "wanted"}\n'
        connection.sendall(LARGE.data[:100_000])
        assert [each.suffix for each in path.parent.iterdir()] == [".part"]
        program.terminate()
        assert program.wait(PATIENCE) == 128 + signal.SIGTERM
        connection.close()
    finally:
        program.kill()
        program.communicate()
    assert list(path.parent.iterdir()) == []


def connected_to(port: int) -> socket.socket:
    """A connection to a program that starts."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("error", [ValueError("no room for the bar"), BrokenPipeError("the terminal is gone")])
async def test_an_error_of_the_progress_function_ends_the_upload(tmp_path: Path, error: Exception) -> None:
    def progress(sent: int, size: int) -> None:
        raise error

    async with receiving(archive(tmp_path), LARGE.digest) as (api, _):
        with pytest.raises(type(error), match=str(error)):
            await send_package(api, POD, LARGE, progress)


@pytest.mark.parametrize(
    ("phase", "minutes", "left"),
    [
        ("Failed", 0, True),
        ("Succeeded", 0, True),
        ("Pending", 14, False),
        ("Pending", 16, True),
        ("Running", 50, False),
    ],
)
def test_a_pod_for_which_no_command_waits_any_more_is_left(phase: str, minutes: int, left: bool) -> None:
    created = NOW - timedelta(minutes=minutes)
    pod = {"metadata": {"creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}, "status": {"phase": phase}}
    assert is_left(pod, NOW) == left


async def test_a_pod_that_never_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_upload, "ANSWER_SECONDS", 0.5)
    async with receiving(archive(tmp_path), LARGE.digest) as (api, program):
        program.kill()
        with pytest.raises(UserError, match=r"the pod of the upload does not answer for 0 s: the connection .* ended"):
            await send_package(api, POD, LARGE, lambda *_: None)


async def test_another_digest_is_never_stored(tmp_path: Path) -> None:
    path = archive(tmp_path)
    async with receiving(path, f"sha256:{'0' * 64}") as (api, _):
        with pytest.raises(UserError, match=f"arrived with the digest {LARGE.digest}, not sha256:0"):
            await send_package(api, POD, LARGE, lambda *_: None)
    assert list(path.parent.iterdir()) == []


async def test_a_missing_right_to_forward_ports_is_named(tmp_path: Path) -> None:
    (port,) = free_ports(1)

    async def refuse(request: web.Request) -> web.StreamResponse:
        raise web.HTTPForbidden

    app = web.Application()
    app.router.add_get(f"{POD}/portforward", refuse)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    api = Api(RESTClientObject(Configuration(host=f"http://127.0.0.1:{port}")))
    with pytest.raises(UserError, match=r"may not use pods/portforward .* cluster role edit contains the right"):
        await send_package(api, POD, LARGE, lambda *_: None)
    await api.close()
    await runner.cleanup()


def test_the_program_in_the_pod_runs_on_python_3_9() -> None:
    assert newer_than_3_9(SCRIPT) == []


def test_the_pod_has_the_image_user_and_place_of_the_training() -> None:
    raw = with_upload(job_with_storage(mountPath="/data", directory="runs/7"), LARGE)
    assert raw["spec"]["code"]["digest"] == LARGE.digest
    pod = upload_pod(Job.of(raw), LARGE)
    (container,) = pod["spec"]["containers"]
    path = f"/data/runs/7/.tftraining-code/digits.{LARGE.digest[7:]}.tar.gz"
    assert container["command"][0] == "python3.12" and container["command"][3:] == [
        path,
        LARGE.digest,
        str(len(LARGE.data)),
    ]
    assert container["image"] == "mine:1" and pod["spec"]["affinity"] == {"nodeAffinity": NODES}
    assert pod["spec"]["automountServiceAccountToken"] is False and pod["spec"]["activeDeadlineSeconds"] == 3600
    assert pod["spec"]["volumes"] == [{"name": "tftraining-storage", **STORAGE["volume"]}]


@pytest.mark.parametrize(
    ("volume", "words"), [(None, "which the job does not have"), ({"emptyDir": {}}, "which each pod has for itself")]
)
def test_a_large_program_needs_a_shared_volume(volume: Any, words: str) -> None:
    raw = job_with_storage()
    raw["spec"]["storage"] = {"volume": volume} if volume else None
    with pytest.raises(UserError, match=rf"0\.9 MiB.*at most 900 KiB.*{words}; .*noise\.bin.*--git URL@SHA.*an image"):
        with_upload(raw, LARGE)


def status(state: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"phase": "Pending", "containerStatuses": [{"name": "code-upload", "state": state}]}}


def test_a_pod_that_cannot_start_is_told_at_once() -> None:
    assert pod_state(status({"running": {}})) == ""
    assert pod_state(status({"waiting": {"reason": "ContainerCreating"}})) == "ContainerCreating"
    full = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    assert pod_state({"status": {"phase": "Pending", "conditions": [full]}}) == "0/1 nodes are available"
    back_off = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "mine:1"'}
    with pytest.raises(
        UserError, match='the pod of the upload cannot start: ImagePullBackOff: Back-off pulling image "mine:1"'
    ):
        pod_state(status({"waiting": back_off}))
    ended = {"exitCode": 128, "message": 'exec: "python3": executable file not found in $PATH'}
    with pytest.raises(UserError, match=r"exit code 128: .*not found.*; the image needs Python 3\.9 or later"):
        pod_state(status({"terminated": ended}))


PROGRESS = """
from tftraining_client.commands.progress import shown
with shown("code") as progress:
    for sent in range(0, 1100000, 100000):
        progress(sent, 1000000)
"""


def test_a_terminal_shows_the_progress_and_a_pipe_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", PROGRESS], stderr=theirs, env=environment, check=True)
    os.close(theirs)
    bar = os.read(ours, 65536).decode()
    os.close(ours)
    assert "tftj: code" in bar and "1.0/1.0 MB" in bar
    with shown("code") as progress:
        progress(1, 2)
    assert capfd.readouterr() == ("", "")
