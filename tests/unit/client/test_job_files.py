"""Files go into the storage of a job and out of it: the program that serves them runs as in the pod, behind a server
that speaks the protocol of port-forwards."""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from tftraining_api.manifests.files_pod import files_pod
from tftraining_api.model.job import parse_job
from tftraining_client.cluster import job_files
from tftraining_client.cluster.code_upload import put_archive
from tftraining_client.cluster.helper_pod import is_left
from tftraining_client.cluster.job_files import SCRIPT, JobFiles
from tftraining_client.cluster.port_forward import PROTOCOL
from tftraining_client.code import LIMIT, pack_files, with_upload
from tftraining_client.commands.files import copy, list_files
from tftraining_client.commands.progress import shown
from tftraining_client.errors import UserError
from tftraining_client.files import serve
from tftraining_client.files.names import Entry, Plan, plan
from tftraining_client.files.serve import walk

NOISE = os.urandom(3 << 20)
POD = "/api/v1/namespaces/ns/pods/files"
PATIENCE = 20
CODE = pack_files({"noise.bin": os.urandom(LIMIT)})
NODES: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
STORAGE: dict[str, Any] = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}


class Kubelet:
    """Forwards WebSockets to the program, and ends connections after so many bytes from the pod, in their order;
    `carried` are the bytes of each, each way."""

    def __init__(self, port: int, *cuts: int) -> None:
        self.port, self.left, self.carried = port, list(cuts), list[list[int]]()

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
        most, carried = self.left.pop(0) if self.left else 1 << 40, [0, 0]
        self.carried.append(carried)

        async def back() -> None:
            while sum(carried) < most and (chunk := await reader.read(65536)):
                carried[1] += len(chunk)
                await client.send_bytes(b"\x00" + chunk)
            await client.close()

        task = asyncio.create_task(back())
        async for message in client:
            carried[0] += len(message.data) - 1
            writer.write(message.data[1:])
            await writer.drain()
            if sum(carried) > most:
                break
        writer.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
        return client


def started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@asynccontextmanager
async def serving(
    mount: Path, *cuts: int, kibibytes: str = "unlimited", script: str = SCRIPT
) -> AsyncIterator[tuple[JobFiles, Kubelet]]:
    """The files of a job below `mount`/digits, by the program of the pod, which may write files of so many KiB."""
    (port,) = free_ports(1)
    script = script.replace(f"PORT = {serve.PORT}", f"PORT = {port}")
    limited = ["bash", "-c", f'ulimit -f {kibibytes}; exec "$@"', "bash", sys.executable, "-c", script, str(mount)]
    program = started(limited)
    app, kubelet = web.Application(), Kubelet(port, *cuts)
    app.router.add_get(f"{POD}/portforward", kubelet.forward)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = Api(RESTClientObject(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")))
    try:
        async with asyncio.timeout(PATIENCE):
            failed = asyncio.get_running_loop().create_future()
            yield JobFiles(api, POD, f"{mount}/digits", str(mount), lambda _: None, failed), kubelet
    finally:
        await api.close()
        await runner.cleanup()
        program.kill()
        _, told = program.communicate()
        assert "Traceback" not in told, told


def of_directory(source: Path, target: Path) -> Plan:
    return plan(str(source), [Entry(*each) for each in walk(source)], str(target))


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "mount" / "digits").mkdir(parents=True)
    return tmp_path / "mount"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "empty").mkdir(parents=True)
    (data / "noise.bin").write_bytes(NOISE)
    (data / "none").touch()
    (data / "run.sh").write_text("#!/bin/sh\n")
    (data / "run.sh").chmod(0o755)
    (data / os.fsdecode(b"\xff\x1b[31m\n")).write_text("odd")
    return data


async def test_a_directory_goes_in_and_out_and_what_is_there_is_not_sent_again(
    mount: Path, data: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    async with serving(mount) as (files, kubelet):
        into, size = of_directory(data, mount / "digits/new/data"), len(NOISE) + 13
        await files.upload(into, lambda *bytes_: seen.append(bytes_))
        assert seen[-1] == (size, size) and [each[0] for each in seen] == sorted(each[0] for each in seen)
        there = mount / "digits/new/data"
        assert files_in(there) == files_in(data) and (there / "empty").is_dir()
        assert [(there / name).stat().st_mode & 0o777 for name in ("run.sh", "none")] == [0o755, 0o644]
        await files.upload(into, lambda *_: None)
        assert sum(kubelet.carried[-1]) < 10_000, "the same bytes again"

        out = plan(str(there), await files.list(str(there), None), str(tmp_path / "out"))
        await files.download(out, lambda *_: None)
        assert files_in(tmp_path / "out") == files_in(data) and (tmp_path / "out/empty").is_dir()
        assert (tmp_path / "out/run.sh").stat().st_mode & 0o100
        await files.download(out, lambda *_: None)
        assert sum(kubelet.carried[-1]) < 10_000
        assert files.left_out == []


@pytest.mark.parametrize("way", ["upload", "download"])
async def test_a_copy_that_is_cut_goes_on_where_it_was(mount: Path, tmp_path: Path, way: str) -> None:
    source, target = tmp_path / "a", mount / "digits/a"
    if way == "download":
        source, target = target, source
    source.write_bytes(NOISE)
    async with serving(mount, 1 << 20, 1 << 20) as (files, kubelet):
        await getattr(files, way)(of_directory(source, target), lambda *_: None)
    assert target.read_bytes() == NOISE and [each.name for each in target.parent.glob(".tftj*")] == []
    # A part of a message is sent twice after each cut.
    assert len(kubelet.carried) == 3 and sum(map(sum, kubelet.carried)) < len(NOISE) + (1 << 20)


@pytest.mark.parametrize("way", ["upload", "download"])
async def test_another_command_goes_on_where_one_has_ended_unless_the_bytes_differ(
    mount: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "ATTEMPTS", 1)
    source, target = tmp_path / "a", mount / "digits/a"
    if way == "download":
        source, target = target, source
    source.write_bytes(NOISE)
    target.write_bytes(b"old")
    async with serving(mount, 2 << 20) as (files, _):
        with pytest.raises(UserError, match=r"was cut 1 times .*: what has arrived is kept, and the same"):
            await getattr(files, way)(of_directory(source, target), lambda *_: None)
    assert target.read_bytes() == b"old"
    (part,) = target.parent.glob(".tftj-*.part")
    assert 0 < part.stat().st_size < len(NOISE)
    source.write_bytes(b"another" + NOISE)
    async with serving(mount) as (files, kubelet):
        await getattr(files, way)(of_directory(source, target), lambda *_: None)
        assert sum(kubelet.carried[-1]) > len(NOISE), "the part is of other bytes"
    assert target.read_bytes() == b"another" + NOISE and not part.exists()


async def test_bytes_that_arrive_wrong_get_no_name(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(NOISE)

    def other(file: Any, offer: Any, tick: Any) -> Any:
        for message, payload in serve.pieces(file, offer, tick):
            yield message, bytes(len(payload))

    monkeypatch.setattr(job_files, "pieces", other)
    async with serving(mount) as (files, _):
        with pytest.raises(UserError, match=r"has arrived with the digest [0-9a-f]{64}, not [0-9a-f]{64}"):
            await files.upload(of_directory(tmp_path / "a", mount / "digits/a"), lambda *_: None)
    assert list((mount / "digits").iterdir()) == []


async def test_a_full_volume_is_told_and_gets_its_room_back(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(NOISE)
    async with serving(mount, kibibytes="1024") as (files, _):
        with pytest.raises(UserError, match="the storage of the job: File too large"):
            await files.upload(of_directory(tmp_path / "a", mount / "digits/a"), lambda *_: None)
    assert list((mount / "digits").iterdir()) == []
    (mount / "digits/b").write_bytes(NOISE)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("", (), {"total": 1 << 30, "free": 1 << 20}))
    async with serving(mount) as (files, _):
        with pytest.raises(UserError, match=r"on this machine: the copy needs 3\.0 MiB, and 1\.0 MiB are free: /"):
            await files.download(of_directory(mount / "digits/b", tmp_path / "b"), lambda *_: None)
    assert not (tmp_path / "b").exists()


async def test_what_vanishes_or_cannot_be_read_is_left_out_and_the_rest_is_copied(mount: Path, tmp_path: Path) -> None:
    for parent in (mount / "digits/d", tmp_path / "d"):
        parent.mkdir()
        for name in ("a", "b", "c"):
            (parent / name).write_text(name)
    into = of_directory(tmp_path / "d", mount / "digits/into")
    out = of_directory(mount / "digits/d", tmp_path / "out")
    (tmp_path / "d/b").unlink()
    (mount / "digits/d/b").unlink()
    async with serving(mount) as (files, _):
        await files.upload(into, lambda *_: None)
        await files.download(out, lambda *_: None)
        assert len(files.left_out) == 2 and all("/b is left out: " in each for each in files.left_out)
    assert set(files_in(tmp_path / "out")) == set(files_in(mount / "digits/into")) == {"a", "c"}


async def test_links_inside_are_followed_and_none_leads_out(mount: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("mine")
    top = mount / "digits"
    (top / "data").mkdir()
    (top / "data/a").write_text("a")
    (top / "latest").symlink_to("data")
    (top / "out").symlink_to(secret)
    (top / "key").symlink_to(secret / "key")
    (top / "nowhere").symlink_to("nothing")
    (top / "data/up").symlink_to("..")
    (top / "self").symlink_to("self")
    os.mkfifo(top / "pipe")
    async with serving(mount) as (files, _):
        kinds = {each.name: each.kind for each in await files.list(str(top), None)}
        assert kinds == {
            "": "directory",
            "data": "directory",
            "data/a": "file",
            "data/up": "loop",
            "key": "leaves",
            "latest": "directory",
            "latest/a": "file",
            "latest/up": "loop",
            "nowhere": "broken",
            "out": "leaves",
            "pipe": "special",
            "self": "loop",
        }
        out = plan(str(top), await files.list(str(top), None), str(tmp_path / "got"))
        await files.download(out, lambda *_: None)
        assert set(files_in(tmp_path / "got")) == {"data/a", "latest/a"} and len(out.left_out) == 7
        for path in (top / "out/key", top / "key"):
            with pytest.raises(UserError, match="a link leads out of the volume"):
                await files.list(str(path), 0)
        with pytest.raises(UserError, match="a link leads out of the volume"):
            await files.upload(of_directory(top / "data/a", top / "out/new"), lambda *_: None)
    assert {each.name for each in secret.iterdir()} == {"key"}


def archive_of(mount: Path) -> Path:
    """The place of the archive of the program."""
    return mount / str(with_upload(job_with_storage(), CODE)["spec"]["code"]["storage"]["path"])


async def test_an_archive_is_stored_once_and_earlier_ones_of_the_job_go(mount: Path) -> None:
    path = archive_of(mount)
    path.parent.mkdir()
    old = [path.with_name(name) for name in ("digits.a.tar.gz", "digits.a.tar.gz.host.part", ".tftj-a.part")]
    other, victim = path.with_name("digits2.c"), mount / "victim"
    for each in (*old, other, victim):
        each.touch()
    path.with_name("digits.link").symlink_to(victim)
    for each in path.parent.iterdir():
        os.utime(each, (1, 1), follow_symlinks=False)
    for name in ("digits.b", ".tftj-b.part"):
        path.with_name(name).touch()
    path.symlink_to(victim)
    sent: list[tuple[int, int]] = []
    async with serving(mount, 1 << 40, 500 << 10) as (files, kubelet):
        await put_archive(files, str(path), CODE, lambda *bytes_: sent.append(bytes_))
        assert path.read_bytes() == CODE.data and path.lstat().st_mode & 0o777 == 0o644 and not path.is_symlink()
        assert sent[-1] == (len(CODE.data), len(CODE.data)) and len(sent) > 5 and len(kubelet.carried) == 4
        assert {each.name for each in path.parent.iterdir()} == {path.name, "digits.b", ".tftj-b.part", "digits2.c"}
        assert victim.read_bytes() == b"", "a link is removed, not what it names"

        os.utime(path, (1, 1))
        await put_archive(files, str(path), CODE, lambda *_: None)
        assert time.time() - path.stat().st_mtime < 60, "an archive in use is no old one"
        assert sum(sum(each) for each in kubelet.carried[-3:]) < 10_000, "the same bytes again"
        await files.prepare_archive(str(path), -60)
        assert {each.name for each in path.parent.iterdir()} == {path.name, "digits2.c"}, "all are old but the archive"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("link", r"code is a link, which is not followed: remove it"),
        ("file", r"storage of the job: File exists: .*code"),
    ],
)
async def test_the_place_of_the_archives_is_a_directory(mount: Path, kind: str, told: str) -> None:
    path, elsewhere = archive_of(mount), mount / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "digits.a").touch()
    os.utime(elsewhere / "digits.a", (1, 1))
    path.parent.symlink_to(elsewhere) if kind == "link" else path.parent.touch()
    async with serving(mount) as (files, _):
        with pytest.raises(UserError, match=told):
            await put_archive(files, str(path), CODE, lambda *_: None)
    assert [each.name for each in elsewhere.iterdir()] == ["digits.a"]


@pytest.mark.parametrize("error", [ValueError("no room for the bar"), BrokenPipeError("the terminal is gone")])
async def test_an_error_of_the_progress_function_ends_the_copy(mount: Path, error: Exception) -> None:
    def progress(sent: int, size: int) -> None:
        raise error

    async with serving(mount) as (files, _):
        with pytest.raises(type(error), match=str(error)):
            await put_archive(files, str(archive_of(mount)), CODE, progress)


async def test_a_pod_that_never_answers_is_told(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "ANSWER_SECONDS", 0.5)
    async with serving(mount, script="") as (files, _):
        with pytest.raises(UserError, match=r"the pod of the copy does not answer for 0 s: the connection .* ended"):
            await files.list(str(mount), None)


def job_with_storage(**storage: Any) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "mine:1", "command": ["python3.12", "train.py"]}
    spec = {"template": {"spec": {"containers": [container], "affinity": {"nodeAffinity": NODES, "podAffinity": {}}}}}
    spec |= {"replicaSpecs": {"worker": {}}, "storage": {**STORAGE, **storage}}
    return {**a_job().raw, "spec": spec}


def test_the_pod_has_the_image_user_and_place_of_the_training() -> None:
    job = parse_job(job_with_storage(mountPath="/data"))
    assert job.spec is not None and job.spec.storage is not None
    pod = files_pod("digits", job.spec, job.spec.storage, "pass")["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python3.12", "-c", "pass", "/data"] and container["image"] == "mine:1"
    assert pod["affinity"] == {"nodeAffinity": NODES} and pod["automountServiceAccountToken"] is False
    assert pod["volumes"] == [{"name": "tftraining-storage", **STORAGE["volume"]}]
    assert pod["activeDeadlineSeconds"] == 24 * 3600


@pytest.mark.parametrize(
    ("volume", "words"), [(None, "which the job does not have"), ({"emptyDir": {}}, "which each pod has for itself")]
)
def test_a_large_program_needs_a_shared_volume(volume: Any, words: str) -> None:
    raw = job_with_storage()
    raw["spec"]["storage"] = {"volume": volume} if volume else None
    with pytest.raises(UserError, match=rf"0\.9 MiB.*at most 900 KiB.*{words}; .*noise\.bin.*--git URL@SHA.*an image"):
        with_upload(raw, CODE)


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


async def test_two_that_write_one_file_do_not_mix_it(mount: Path) -> None:
    first, second = (serve.Part(mount / "a") for _ in range(2))
    first.begin(0)
    first.write(NOISE[:100])
    with pytest.raises(ValueError, match="another command copies a file to its place"):
        second.begin(0)
    second.close()
    assert second.offer(1000, lambda: None)[0] == 100
    first.write(NOISE[100:200])
    first.close()
    with pytest.raises(ValueError, match="another command copies"):
        second.begin(100)
    second.close()


async def test_a_hostile_pod_writes_nothing_elsewhere(mount: Path, tmp_path: Path) -> None:
    for name in ("../a", "/etc/a", "a/../../b", "a//b", ".", "a\0b"):
        with pytest.raises(UserError, match="leads elsewhere"):
            plan("/m", [Entry("", "directory", 0, 0), Entry(name, "file", 1, 0)], str(tmp_path))
    for name in ("C:a", "a\\..\\b"):
        with pytest.raises(UserError, match="leads elsewhere"):
            plan("/m", [Entry(name, "file", 1, 0)], str(tmp_path), "\\:")


def test_the_program_in_the_pod_runs_on_python_3_9() -> None:
    assert newer_than_3_9(Path(serve.__file__)) == []
    assert errno.EFBIG in serve.FULL


class AClient:
    """A client whose jobs have these files."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self.jobs: list[str] = []

    @asynccontextmanager
    async def files(self, name: str) -> AsyncIterator[JobFiles]:
        self.jobs.append(name)
        yield self._files


@pytest.fixture
async def client(mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AClient]:
    monkeypatch.chdir(tmp_path)
    async with serving(mount) as (files, _):
        yield AClient(files)


async def test_the_commands_copy_as_cp_does(
    client: Any, mount: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mount / "digits/models").mkdir()
    (mount / "digits/models/final.keras").write_bytes(NOISE)
    assert await copy(client, "digits:models/final.keras", ".") == 0
    assert capsys.readouterr() == ("1 file (3.0 MiB) copied to .\n", "")
    assert (tmp_path / "final.keras").read_bytes() == NOISE
    assert await copy(client, "data", "tftrainingjob/digits:in") == 0
    assert client.jobs == ["digits", "digits"]
    assert capsys.readouterr() == ("4 files (3.0 MiB) copied to tftrainingjob/digits:in\n", "")
    assert files_in(mount / "digits/in") == files_in(data)
    assert await copy(client, "data/", f"digits:{mount}/digits/in/") == 0
    assert files_in(mount / "digits/in/data") == files_in(data)
    assert await copy(client, "digits:", "new") == 0
    assert files_in(tmp_path / "new") == files_in(mount / "digits")
    assert await copy(client, "digits:models/final.keras", "made/here/") == 0
    assert (tmp_path / "made/here/final.keras").read_bytes() == NOISE
    capsys.readouterr()
    (data / "dangling").symlink_to("nothing\x1b[2J")
    assert await copy(client, "data", "digits:again") == 1
    assert capsys.readouterr().err == "tftj: data/dangling is left out: its link leads nowhere\n"
    (tmp_path / "nothing").mkdir()
    assert await copy(client, "nothing", "digits:nothing") == 0
    assert capsys.readouterr().out == "0 files (0 B) copied to digits:nothing\n"
    assert (mount / "digits/nothing").is_dir()


async def test_the_commands_tell_what_cannot_be_copied_before_anything_is(client: Any, mount: Path, data: Path) -> None:
    (mount / "digits/file").touch()
    for source, target, told in (
        ("a", "b", "one side of a copy is JOB:PATH"),
        ("one:a", "two:b", "two jobs copy by way of this machine"),
        ("none", "digits:", "none cannot be copied: no such file"),
        ("digits:none", ".", "has no .*/digits/none; `tftj ls digits:` lists"),
        ("digits:../../etc", ".", "is not in the storage of the job"),
        ("data", "digits:file", "digits/file is a file, not a directory"),
        ("data/none", "digits:file/", "digits/file/ is a file, not a directory"),
        ("data", "digits:file/below", "the storage of the job: (Not a directory|File exists): .*/digits/file"),
        ("digits:", "data/none", "data/none is a file, not a directory"),
        ("digits:file", "data/none/below", "on this machine: (Not a directory|File exists): .*data/none"),
    ):
        with pytest.raises(UserError, match=told):
            await copy(client, source, target)
    assert files_in(mount) == {"digits/file": b""}


async def test_a_directory_is_listed_without_obeying_its_names(
    client: Any, mount: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await list_files(client, "digits", None) == 0
    assert capsys.readouterr() == ("", f"tftj: {mount}/digits is empty\n")
    (mount / "digits/sub").mkdir()
    (mount / "digits/out").symlink_to("/etc")
    (mount / "digits/a\x1b[2J\nb").write_bytes(NOISE)
    for path in (mount / "digits").iterdir():
        os.utime(path, (0, 1_800_000_000), follow_symlinks=False)
    assert await list_files(client, "digits:", None) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["SIZE", "MODIFIED", "NAME"]
    assert [line.split()[0] for line in lines] == ["3145728", "-", "-"]
    names = [line.split(maxsplit=3)[3] for line in lines]
    assert names == ["a^[[2J\\nb", "out (its link leads out of the volume)", "sub/"]
    assert await list_files(client, "digits:a\x1b[2J\nb", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    modified = "2027-01-15T08:00:00Z"
    assert listed["files"] == [{"name": "a\x1b[2J\nb", "type": "file", "size": 3145728, "modified": modified}]
    with pytest.raises(UserError, match=r"has no .*/digits/none"):
        await list_files(client, "digits:none", None)


def test_a_pipe_gets_a_line_of_progress_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 9.9, 10.0, 10.0, 15.0, 20.0, 20.0])
    with shown("copy", lambda: next(now)) as progress:
        for sent in (1, 1 << 20, 2 << 20, 3 << 30):
            progress(sent, 5 << 30)
    said = ["tftj: copy: 1.0 MiB of 5.0 GiB", "tftj: copy: 3.0 GiB of 5.0 GiB"]
    assert capsys.readouterr().err.splitlines() == said


async def test_a_sender_leaves_out_only_what_was_offered(mount: Path) -> None:
    part = serve.Part(mount / "a")
    (mount / "a").write_bytes(NOISE[:10])
    assert part.offer(10, lambda: None)[0] == 10
    for offset in (5, 11):
        with pytest.raises(ValueError, match="leaves out bytes that were not offered"):
            part.begin(offset)
    part.begin(10)
    with pytest.raises(ValueError, match="has arrived with the digest"):
        part.finish("0" * 64, executable=False)
    part.close()
    assert (mount / "a").read_bytes() == NOISE[:10]


HOSTILE = """
import contextlib, socket
PORT = 7070
with socket.create_server(("127.0.0.1", PORT)) as server, contextlib.suppress(ConnectionError):
    connection, _ = server.accept()
    connection.sendall(b'{"hello": true}\\n')
    connection.recv(1000)
    connection.sendall(ANSWER)
    connection.recv(1000)
"""


@pytest.mark.parametrize(
    "answer",
    [
        r"b'no JSON\n'",
        r"b'[1]\n'",
        r"""b'{"offset": 0}\n'""",
        r"""b'{"offset": 0, "size": 1, "executable": false}\n{"bytes": 2}\nab'""",
        "b'a' * (9 << 20)",
    ],
)
async def test_another_program_in_the_place_of_the_pods_is_told(mount: Path, tmp_path: Path, answer: str) -> None:
    async with serving(mount, script=HOSTILE.replace("ANSWER", answer)) as (files, _):
        with pytest.raises(UserError, match="the pod of the copy does not answer as its program does"):
            await files.download(plan("/a", [Entry("", "file", 1, 0)], str(tmp_path / "a")), lambda *_: None)
    assert not (tmp_path / "a").exists()
