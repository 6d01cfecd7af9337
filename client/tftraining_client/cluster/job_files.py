"""The files in the storage of a job, for `tftj cp`, `tftj ls` and `tftj submit --code`: a pod of its own with the
volume serves them, through a port-forward (tftraining_client/files/serve.py, which has the protocol).

A connection that ends is made anew, and the file goes on where it was.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import aiohttp

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.manifests.files_pod import NAME, files_pod
from tftraining_api.manifests.storage import job_directory
from tftraining_api.model.job import parse_job
from tftraining_api.model.spec import Manifest
from tftraining_client.cluster.helper_pod import (
    STORAGE_REMEDIES,
    container_state,
    delete_left,
    ended,
    first,
    helper_pod,
    states,
    until_ended,
    until_running,
    volume_of,
    waits_for,
)
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.paths import core_path, object_path
from tftraining_client.cluster.port_forward import connected, received, send
from tftraining_client.cluster.watching import Watch
from tftraining_client.errors import UserError
from tftraining_client.files import serve
from tftraining_client.files.names import Entry, Plan, Source, in_storage
from tftraining_client.files.serve import CutError, Part, check_room, opened, pieces

WHAT = "the copy"
SCRIPT = Path(serve.__file__).read_text(encoding="utf-8")
BY_BUCKET = "copy by the bucket's own tools, such as gcloud storage cp --recursive {}/PATH .,"
GOES_ON = "what has arrived is kept, and the same command goes on"
# The program in the pod listens soon after the container's start; on a busy node that takes seconds.
ANSWER_SECONDS, PAUSE_SECONDS = 60.0, 0.3
QUIET_SECONDS = 2.0  # in which most pods start
ATTEMPTS = 5  # without a byte between them
BATCH = 1000  # files of one request
MOST = 1_000_000  # entries
CHUNK = 128 << 10
LONGEST = 8 << 20  # bytes of a message
STRANGE = f"the pod of {WHAT} does not answer as its program does"
Progress = Callable[[int, int], None]
At = Callable[[int], None]
Read = Callable[[str], BinaryIO]
T = TypeVar("T")


class _ClosedError(Exception):
    """Nothing listens in the pod yet, or the network fails."""


class _Peer:
    """The messages of one connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, chunks: AsyncGenerator[bytes, None]) -> None:
        self._socket = socket
        self._chunks = chunks
        self._buffer = bytearray()
        self._stopped = threading.Event()

    async def send(self, payload: bytes = b"", **fields: Any) -> None:
        """Send a message. CutError."""
        if payload:
            fields["bytes"] = len(payload)
        data = json.dumps(fields).encode() + b"\n" + payload
        try:
            for start in range(0, len(data), CHUNK):
                await send(self._socket, data[start : start + CHUNK])
        except (aiohttp.ClientError, OSError) as error:
            raise CutError(str(error)) from error

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message that is not `wait`. CutError; UserError for an error in the pod."""
        while True:
            while (at := self._buffer.find(b"\n")) < 0:
                await self._more()
            with their_words():
                message = dict(json.loads(self._taken(at + 1)))
                size = int(message.get("bytes", 0))
            while len(self._buffer) < size:
                await self._more()
            payload = self._taken(size)
            if "error" in message:
                remedy = STORAGE_REMEDIES.get(message.get("errno", ""))
                raise UserError(f"the storage of the job: {message['error']}" + (f": {remedy}" if remedy else ""))
            if "wait" not in message:
                return message, payload

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _more(self) -> None:
        if len(self._buffer) > LONGEST:
            raise UserError(STRANGE)
        try:
            self._buffer += await anext(self._chunks)
        except (StopAsyncIteration, aiohttp.ClientError, OSError) as error:
            raise CutError("the connection to the pod has ended") from error

    def tick(self) -> None:
        """End the work of a thread that nobody awaits any more. CutError."""
        if self._stopped.is_set():
            raise CutError

    async def during(self, work: Callable[[], T]) -> T:
        """The result of work with files of this machine, in a thread. UserError for its OSError and ValueError."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=serve.WAIT_SECONDS)
                if not task.done():
                    await self.send(wait=True)
        finally:
            if not task.done():
                self._stopped.set()
                await asyncio.gather(task, return_exceptions=True)
        with local_files():
            return task.result()


@contextmanager
def their_words() -> Iterator[None]:
    """UserError for an answer that no program of ours gives."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(STRANGE) from error


def entry(name: str, kind: str, size: int, modified: int) -> Entry:
    """An entry of the pod's answer. TypeError."""
    if any(type(each) is not wanted for each, wanted in ((name, str), (kind, str), (size, int), (modified, int))):
        raise TypeError
    return Entry(name, kind, size, modified)


def make_directories(paths: Iterable[str]) -> None:
    """Make directories of this machine. OSError."""
    for each in paths:
        Path(each).mkdir(parents=True, exist_ok=True)


def source_file(path: str) -> BinaryIO:
    """A file of this machine, also through links. OSError or ValueError."""
    return opened(Path(os.path.realpath(path)), os.O_RDONLY)


@contextmanager
def local_files() -> Iterator[None]:
    """UserError for an error of a file of this machine."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise UserError(f"on this machine: {error.strerror or error}{where}") from error
    except ValueError as error:
        raise UserError(f"on this machine: {error}") from error


class JobFiles:
    """The files of a job, through its pod at the path `pod`. `directory` is that of the job, `mount` that of the
    volume; `left_out` says what a copy could not copy. `failed` has the error that ends the pod."""

    def __init__(
        self,
        api: Api,
        pod: str,
        directory: str,
        mount: str,
        notify: Callable[[str], None],
        failed: "asyncio.Future[None]",
    ) -> None:
        self.left_out: list[str] = []
        self._api = api
        self._pod = pod
        self._directory = directory
        self._mount = mount
        self._notify = notify
        self._failed = failed
        # Bytes of the files that are done, and whether any byte has come since the last cut.
        self._done = 0
        self._moved = False

    def absolute(self, path: str) -> str:
        """The path as the job's programs see it; UserError if it leaves the volume."""
        return in_storage(path, self._directory, self._mount)

    async def list(self, path: str, depth: int | None) -> list[Entry]:
        """The path and what is below it, down to the depth or all."""

        async def work(peer: _Peer) -> list[Entry]:
            found: list[Entry] = []
            await peer.send(request="list", path=path, depth=depth)
            while "end" not in (message := (await peer.receive())[0]):
                with their_words():
                    found.append(entry(*message["entry"]))
                if len(found) > MOST:
                    raise UserError(f"{path} has more than {MOST} files: copy parts of it, or pack them in the job")
            return found

        return await self._lasting(work)

    async def prepare_archive(self, path: str, older: float | None = None) -> None:
        """Make the directory of a program's archive. UserError for a link in its place. Archives of the job that are
        so many seconds old are removed."""

        async def work(peer: _Peer) -> None:
            await peer.send(request="archive", path=path, older=older)
            await peer.receive()

        await self._lasting(work)

    async def upload(self, plan: Plan, progress: Progress, read: Read = source_file) -> None:
        """Copy from this machine, what `read` opens. UserError."""
        for names in batches(plan.directories):
            await self._lasting(partial(self._put, directories=names))
        await self._in_batches(plan, progress, partial(self._put, read=read))

    async def download(self, plan: Plan, progress: Progress) -> None:
        """Copy to this machine. UserError."""
        with local_files():
            make_directories(plan.directories)
        await self._in_batches(plan, progress, self._get)

    async def _in_batches(
        self,
        plan: Plan,
        progress: Progress,
        copy: Callable[[_Peer, Sequence[Source], At], Awaitable[None]],
    ) -> None:
        self._done = 0
        for files in batches(plan.files):
            left = len(self.left_out)

            async def work(peer: _Peer, files: Sequence[Source] = files, left: int = left) -> None:
                del self.left_out[left:]
                await copy(peer, files, lambda sent: progress(min(self._done + sent, plan.size), plan.size))

            await self._lasting(work)
            self._done += sum(each.size for each in files)

    async def _put(
        self,
        peer: _Peer,
        files: Sequence[Source] = (),
        at: At = lambda _: None,
        directories: Sequence[str] = (),
        read: Read = source_file,
    ) -> None:
        named = [(each.target, each.size) for each in files]
        await peer.send(request="put", directories=directories, files=named)
        answer, _ = await peer.receive()
        with their_words():
            offers = [(int(size), str(digest)) for size, digest in answer["offers"]]
            if len(offers) != len(files):
                raise ValueError
        sending = asyncio.create_task(self._send_files(peer, files, offers, at, read))
        answering = asyncio.create_task(peer.receive())
        try:
            # An error in the pod, such as a full volume, comes while the files are sent.
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await sending
            await answering
        finally:
            for each in (sending, answering):
                each.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)

    async def _send_files(
        self, peer: _Peer, files: Sequence[Source], offers: Sequence[tuple[int, str]], at: At, read: Read
    ) -> None:
        """An end of the connection is told by the reader of the answers."""
        base = 0
        try:
            for source, offer in zip(files, offers, strict=True):
                try:
                    file = read(source.source)
                except (OSError, ValueError) as error:
                    self._leave_out(source, str(error))
                    await peer.send(lost=True)
                    continue
                with file:
                    await self._send_file(peer, source, pieces(file, offer, peer.tick), after(base, at))
                base += source.size
            await peer.send(end=True)
        except CutError:
            return

    async def _send_file(
        self, peer: _Peer, source: Source, messages: Iterator[tuple[dict[str, Any], bytes]], at: At
    ) -> None:
        sent = 0
        while (piece := await peer.during(lambda: next(messages, None))) is not None:
            message, payload = piece
            sent = message.get("offset", sent) + len(payload)
            await peer.send(payload, **message)
            if "lost" in message:
                self._leave_out(source, message["lost"])
            self._moved = self._moved or bool(payload)
            at(sent)

    async def _get(self, peer: _Peer, files: Sequence[Source], at: At) -> None:
        parts = [Part(Path(each.target)) for each in files]

        def offers() -> list[tuple[int, str]]:
            for part in parts:
                part.target.parent.mkdir(parents=True, exist_ok=True)
            made = [part.offer(each.size, peer.tick) for part, each in zip(parts, files, strict=True)]
            check_room(parts[0].target.parent, sum(each.size - made[n][0] for n, each in enumerate(files)))
            return made

        offered, base = await peer.during(offers), 0
        await peer.send(request="get", files=[(each.source, offered[n]) for n, each in enumerate(files)])
        for source, part in zip(files, parts, strict=True):
            try:
                await self._take(peer, source, part, after(base, at))
            finally:
                part.close()
            base += source.size
        await peer.receive()

    async def _take(self, peer: _Peer, source: Source, part: Part, at: At) -> None:
        message, _ = await peer.receive()
        if "lost" in message:
            return self._leave_out(source, message["lost"])
        with their_words():
            executable, sent, size = bool(message["executable"]), int(message["offset"]), int(message["size"])
        await peer.during(lambda: part.begin(sent))
        while True:
            at(sent)
            message, payload = await peer.receive()
            if "lost" in message:
                return self._leave_out(source, message["lost"])
            if "digest" in message:
                return await peer.during(partial(part.finish, str(message["digest"]), executable))
            sent, self._moved = sent + len(payload), True
            if sent > size:
                raise UserError(STRANGE)
            with local_files():
                part.write(payload)

    def _leave_out(self, source: Source, why: str) -> None:
        self.left_out.append(f"{source.source} is left out: {why}")

    async def _lasting(self, work: Callable[[_Peer], Awaitable[T]]) -> T:
        """The result of the work over a connection, over another one if that ends. UserError if the pod ends."""
        return await first(self._repeated(work), self._failed)

    async def _repeated(self, work: Callable[[_Peer], Awaitable[T]]) -> T:
        """UserError after ATTEMPTS connections over which no byte has come."""
        deadline, cuts = time.monotonic() + ANSWER_SECONDS, 0
        while True:
            try:
                async with self._session() as peer:
                    return await work(peer)
            except CutError as error:
                cuts, self._moved = 1 if self._moved else cuts + 1, False
                if cuts == ATTEMPTS:
                    raise UserError(f"the connection was cut {cuts} times ({error}): {GOES_ON}") from error
                deadline = time.monotonic() + ANSWER_SECONDS
                if cuts == 1:
                    self._notify("the connection to the pod was cut; the copy goes on")
            except (_ClosedError, ApiError) as error:
                if isinstance(error, ApiError) and error.status == 401:
                    raise
                if time.monotonic() > deadline:
                    told = f"the pod of {WHAT} does not answer for {ANSWER_SECONDS:.0f} s: {error}"
                    raise UserError(f"{told}; {GOES_ON}") from error
            await asyncio.sleep(PAUSE_SECONDS)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Peer]:
        """A connection on which the pod has answered. _ClosedError, ApiError."""
        async with connected(self._api, self._pod, serve.PORT) as socket, aclosing(received(socket)) as chunks:
            peer = _Peer(socket, chunks)
            try:
                await peer.receive()
            except CutError as error:
                raise _ClosedError(str(error)) from error
            yield peer


def after(base: int, at: At) -> At:
    """Told of the bytes of one file, it tells those of the batch."""
    return lambda sent: at(base + sent)


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items, BATCH at a time."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


@asynccontextmanager
async def job_files(
    api: Api, job: Job, notify: Callable[[str], None], watches: Callable[[str, str], tuple[Watch, Watch]]
) -> AsyncIterator[JobFiles]:
    """The files of the job, as long as the block runs. `watches` gives the watches of a pod and of its events.
    ApiError, or UserError with the cause."""
    storage = volume_of(job, "a copy", BY_BUCKET)
    assert job.spec is not None
    manifest = files_pod(job.name, job.spec, storage, SCRIPT)
    directory = job_directory(parse_job(job.raw), storage)
    await delete_left(api, job.namespace, manifest["metadata"]["labels"], api.clock.now())
    async with helper_pod(api, job.namespace, manifest) as name:
        collection = core_path(job.namespace, "pods")
        pods, events = watches(collection, name)
        async with aclosing(states(pods, WHAT, pod_state)) as running:
            await until_running(running, events, WHAT, notify, QUIET_SECONDS)
            failed = asyncio.ensure_future(until_ended(running))
            try:
                yield JobFiles(api, object_path(collection, name), directory, storage.mount_path, notify, failed)
            finally:
                failed.cancel()
                await asyncio.gather(failed, return_exceptions=True)


def pod_state(pod: Manifest) -> str:
    """What the pod waits for; "" if its program runs; UserError if it has ended."""
    if how := ended(pod, NAME):
        hint = "; the image needs Python 3.9 or later" if how.startswith(("exit code 1:", "exit code 12")) else ""
        raise UserError(f"the pod of {WHAT} has ended: {how}{hint}; {GOES_ON}")
    if "running" in (container_state(pod, NAME).get("state") or {}):
        return ""
    return waits_for(pod, NAME, WHAT) or "it starts"
