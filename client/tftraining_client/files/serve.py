"""Serves the files of a mounted storage to `tftj cp`, `tftj ls` and `tftj submit --code`. A copy runs in a pod, in the
job's image, on Python 3.9 or later. The client imports what both sides need, also on Windows.

It listens on the pod's loopback, and serves one connection at a time: a new one ends the one before, whose other end is
gone. A message is a line of JSON; its field `bytes` says how many bytes follow the line. Requests are:

* `list` {path, depth}: an `entry` for the path and for what is below, and `end`;
* `put` {files: [path, size], directories}: `offers` of the receiver, one a file; then, of the sender, the
  messages of `pieces` for each file, and `end` from both;
* `get` {files: [path, offer]}: the messages of `pieces` for each file, and `end`;
* `archive` {path, older}: prepares the place of a program's archive, removes what is older there, and `end`.

A receiver keeps what has arrived of a file beside its place (`Part`), and offers that to the next sender by size and
digest: what agrees is not sent again. A file gets its name only when its digest is right. `error` ends a connection.
A side that only reads for long sends `wait`, or something between them would take the connection for a dead one.

Other users of the storage may put links into it: none leads out of the volume.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PORT = 7070
IDLE_SECONDS = 120.0  # without a connection
SILENCE_SECONDS = 900.0  # of a connection: its client reads files of its own
WAIT_SECONDS = 5.0
LAST_SECONDS = 10.0
CHUNK = 256 << 10
FILE, DIRECTORY, MISSING = "file", "directory", "missing"
# In place of the kind of what is not copied.
LEAVES, BROKEN, LOOP, SPECIAL, UNREADABLE = "leaves", "broken", "loop", "special", "unreadable"
PART = (".tftj-", ".part")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) if hasattr(errno, "EDQUOT") else (errno.ENOSPC, errno.EFBIG)
# Never a link in the last place, never waiting for the writer of a pipe; Windows has none of these.
FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
Tick = Callable[[], None]
Message = dict[str, Any]


class CutError(Exception):
    """The connection has ended."""


class Part:
    """A file that comes. What has arrived stays beside its place until the file is complete, also over connections."""

    def __init__(self, target: Path) -> None:
        self.target = target
        name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
        self.path = target.with_name(name.join(PART))
        self._told = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._offered: tuple[int, ...] = (0, 0, 0, 0)
        self._is_complete = False

    def offer(self, size: int, tick: Tick) -> tuple[int, str]:
        """The size and digest of what is here already of a file of that size: a part, or the file."""
        for path in (self.path, self.target):
            try:
                file = opened(path, os.O_RDONLY)
            except (OSError, ValueError):
                continue
            with file:
                found = os.fstat(file.fileno())
                is_complete = path == self.target
                if 0 < found.st_size <= size and (found.st_size == size or not is_complete):
                    self._told, self._offered = digested(file, found.st_size, tick), identity(found)
                    self._is_complete = is_complete
                    return found.st_size, self._told.hexdigest()
        return 0, ""

    def begin(self, offset: int) -> None:
        """Go on after so many bytes, which are those of the offer, or 0. OSError or ValueError."""
        if offset and offset != self._offered[2]:
            raise ValueError(f"{self.target}: the sender leaves out bytes that were not offered")
        if offset and self._is_complete:
            return
        self._is_complete = False
        self._file = locked(self.path)
        if offset and identity(os.fstat(self._file.fileno())) != self._offered:
            raise busy(self.target)
        if not offset:
            self._told = hashlib.sha256()
            self._file.truncate(0)
        self._file.seek(offset)

    def write(self, data: bytes) -> None:
        """Write the next bytes. OSError; the part goes if the disk is full, where others need the room."""
        assert self._file is not None
        self._told.update(data)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            if error.errno in FULL:
                self.path.unlink()
            raise

    def finish(self, digest: str, executable: bool) -> None:
        """Give the file its name. ValueError for another digest, OSError."""
        if self._told.hexdigest() != digest:
            if self._file is not None:
                self.path.unlink()
            raise ValueError(f"{self.target} has arrived with the digest {self._told.hexdigest()}, not {digest}")
        if self._file is None:
            return
        os.fsync(self._file.fileno())
        if fcntl is None:  # Windows renames no open file
            self.close()
        if executable:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            self.path.chmod(mode | (mode & 0o444) >> 2)
        self.path.replace(self.target)

    def close(self) -> None:
        """Close the part, which stays."""
        if self._file is not None:
            self._file.close()


def is_part(name: str) -> bool:
    """Whether a file of this name is a part."""
    return name.startswith(PART[0]) and name.endswith(PART[1])


def opened(path: Path, flags: int) -> BinaryIO:
    """A regular file, unbuffered. OSError, or ValueError for another kind."""
    file = os.fdopen(os.open(path, flags | FLAGS, 0o666), "r+b" if flags & os.O_RDWR else "rb", 0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path} is no regular file")
    return file


def locked(path: Path) -> BinaryIO:
    """The file, created if needed, with a lock where the file system has locks. ValueError if another has it."""
    while True:
        file = opened(path, os.O_RDWR | os.O_CREAT)
        try:
            if fcntl is not None:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise busy(path) from None
        except OSError:
            pass
        # The one that had the lock may have given the file its name meanwhile.
        with suppress(FileNotFoundError):
            if identity(path.stat())[:2] == identity(os.fstat(file.fileno()))[:2]:
                return file
        file.close()


def busy(path: Path) -> ValueError:
    """The error of a file that two commands write."""
    return ValueError(f"another command copies a file to its place: {path}")


def identity(found: os.stat_result) -> tuple[int, ...]:
    """What tells that a file is the same and unchanged."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def digested(file: BinaryIO, size: int, tick: Tick) -> Any:
    """The SHA-256 of so many bytes from the beginning, or of all if there are fewer."""
    told = hashlib.sha256()
    while size and (chunk := file.read(min(size, CHUNK))):
        told.update(chunk)
        size -= len(chunk)
        tick()
    return told


def pieces(file: BinaryIO, offer: tuple[int, str], tick: Tick) -> Iterator[tuple[Message, bytes]]:
    """The messages that bring a file: its size and mode with the offset of the first byte, the bytes, and the digest of
    the whole. `lost` in place of the digest if the file has become shorter meanwhile; what it has grown is not sent."""
    mode, size = 0 if isinstance(file, io.BytesIO) else os.fstat(file.fileno()).st_mode, file.seek(0, os.SEEK_END)
    start, digest = offer
    file.seek(0)
    told = digested(file, start, tick) if 0 < start <= size else None
    if told is None or told.hexdigest() != digest:
        start, told = 0, hashlib.sha256()
    file.seek(start)
    yield {"offset": start, "size": size, "executable": bool(mode & stat.S_IXUSR)}, b""
    left = size - start
    while left:
        if not (chunk := file.read(min(left, CHUNK))):
            yield {"lost": "it has become shorter"}, b""
            return
        told.update(chunk)
        left -= len(chunk)
        yield {}, chunk
    yield {"digest": told.hexdigest()}, b""


def walk(top: Path, depth: int | None = None, root: Path | None = None) -> Iterator[tuple[str, str, int, int]]:
    """The path and what is below it down to a depth, sorted: relative path, kind, size, and time of the last change.
    Links are followed, but out of `root`. With depth None no parts of files that come."""
    stack: list[tuple[Path, str, int, tuple[tuple[int, int], ...]]] = [(top, "", 0, ())]
    while stack:
        path, relative, level, above = stack.pop()
        kind, found = kind_of(path, root)
        here = (found.st_dev, found.st_ino) if found else (0, 0)
        names: list[str] = []
        if kind == DIRECTORY and here in above:
            kind = LOOP
        elif kind == DIRECTORY and (depth is None or level < depth):
            try:
                names = sorted(os.listdir(path), reverse=True)  # noqa: PTH208  its names only
            except OSError:
                kind = UNREADABLE
        yield relative, kind, found.st_size if found and kind == FILE else 0, int(found.st_mtime) if found else 0
        for name in names:
            if depth is not None or not is_part(name):
                below = f"{relative}/{name}" if relative else name
                stack.append((path / name, below, level + 1, (*above, here)))


def kind_of(path: Path, root: Path | None) -> tuple[str, os.stat_result | None]:
    """What the path is, and its status if it has one."""
    try:
        if root is not None and path.is_symlink():
            confined(path, root)
        found = path.stat()
    except ValueError:
        return LEAVES, None
    except FileNotFoundError:
        return BROKEN if path.is_symlink() else MISSING, None
    except NotADirectoryError:
        return MISSING, None
    except OSError as error:
        return LOOP if error.errno == errno.ELOOP else UNREADABLE, None
    if stat.S_ISDIR(found.st_mode):
        return DIRECTORY, found
    return FILE if stat.S_ISREG(found.st_mode) else SPECIAL, found


def confined(path: Path, root: Path) -> Path:
    """The path without links. ValueError if it leads out of the root."""
    real = Path(os.path.realpath(path))  # resolve() raises RuntimeError for a link to itself
    if real != root and root not in real.parents:
        raise ValueError(f"{path}: a link leads out of the volume")
    return real


def check_room(directory: Path, needed: int) -> None:
    """OSError if the file system has less room. One that tells no size is believed."""
    usage = shutil.disk_usage(next(each for each in (directory, *directory.parents) if each.exists()))
    if usage.total and needed > usage.free:
        text = f"the copy needs {needed / 2**20:.1f} MiB, and {usage.free / 2**20:.1f} MiB are free"
        raise OSError(errno.ENOSPC, text, str(directory))


class Peer:
    """The messages of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self._sent = time.monotonic()

    def send(self, payload: bytes = b"", **fields: Any) -> None:
        """Send a message. CutError."""
        if payload:
            fields["bytes"] = len(payload)
        try:
            self._connection.sendall(json.dumps(fields).encode() + b"\n" + payload)
        except OSError as error:
            raise CutError from error
        self._sent = time.monotonic()

    def tick(self) -> None:
        """Send `wait` if nothing was sent for long."""
        if time.monotonic() - self._sent > WAIT_SECONDS:
            self.send(wait=True)

    def receive(self) -> tuple[Message, bytes]:
        """The next message that is not `wait`. CutError."""
        while True:
            try:
                line = self._file.readline()
                message = json.loads(line) if line.endswith(b"\n") else None
                payload = self._file.read(message.get("bytes", 0)) if message else b""
            except (OSError, ValueError) as error:
                raise CutError from error
            if message is None or len(payload) < message.get("bytes", 0):
                raise CutError
            if "wait" not in message:
                return message, payload

    def refuse(self, error: Exception) -> None:
        """Answer with the error. The rest that the client sends is read: unread bytes would reset the connection, and
        the answer would be lost."""
        text, name = str(error), ""
        if isinstance(error, OSError):
            text = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
            name = errno.errorcode.get(error.errno or 0, "")
        with suppress(OSError, CutError):
            self.send(error=text, errno=name)
            self._connection.settimeout(LAST_SECONDS)
            while self._file.read(CHUNK):
                pass


def list_files(peer: Peer, root: Path, request: Message) -> None:
    """Answer `list`."""
    for entry in walk(confined(Path(request["path"]), root), request["depth"], root):
        peer.send(entry=entry)
    peer.send(end=True)


def get_files(peer: Peer, root: Path, request: Message) -> None:
    """Answer `get`. A file that is gone does not end the others."""
    for path, offer in request["files"]:
        try:
            file = opened(confined(Path(path), root), os.O_RDONLY)
        except (OSError, ValueError) as error:
            peer.send(lost=error.strerror if isinstance(error, OSError) else str(error))
            continue
        with file:
            for message, payload in pieces(file, tuple(offer), peer.tick):
                peer.send(payload, **message)
    peer.send(end=True)


def put_files(peer: Peer, root: Path, request: Message) -> None:
    """Answer `put`."""
    for path in request["directories"]:
        confined(Path(path), root).mkdir(parents=True, exist_ok=True)
    parts, offers, needed = [], [], 0
    for path, size in request["files"]:
        directory = confined(Path(path).parent, root)
        directory.mkdir(parents=True, exist_ok=True)
        parts.append(Part(directory / Path(path).name))
        offers.append(parts[-1].offer(size, peer.tick))
        needed += size - offers[-1][0]
    if parts:
        check_room(parts[0].target.parent, needed)
    peer.send(offers=offers)
    for part in parts:
        take(part, peer)
    peer.receive()
    peer.send(end=True)


def take(part: Part, peer: Peer) -> None:
    """Receive one file, or nothing if the sender has lost it."""
    try:
        message, _ = peer.receive()
        if "lost" in message:
            return
        executable = message["executable"]
        part.begin(message["offset"])
        while True:
            message, payload = peer.receive()
            if "lost" in message:
                return
            if "digest" in message:
                part.finish(message["digest"], executable)
                return
            part.write(payload)
    finally:
        part.close()


def prepare_archive(peer: Peer, root: Path, request: Message) -> None:
    """Answer `archive`. No link in the place of the directory is followed: another user of the storage may have made
    it. The archive itself is touched, so that it is not old."""
    path = Path(request["path"])
    parent = confined(path.parent.parent, root) / path.parent.name
    parent.mkdir(parents=True, exist_ok=True)
    try:
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise ValueError(f"{parent} is a link, which is not followed: remove it") from error
    try:
        # There may be no archive yet, and another user of an earlier submission may own it.
        with suppress(OSError):
            os.utime(path.name, dir_fd=directory, follow_symlinks=False)
        if request["older"] is not None:
            remove_older(directory, path.name, time.time() - request["older"])
    finally:
        os.close(directory)
    peer.send(end=True)


def remove_older(directory: int, archive: str, before: float) -> None:
    """Remove the earlier archives of the job, which are those with its name, and parts that were left."""
    prefix = archive.partition(".")[0] + "."
    with os.scandir(directory) as found:
        names = [each.name for each in found if each.name.startswith(prefix) or is_part(each.name)]
    for name in names:
        with suppress(OSError):
            if name != archive and os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime < before:
                os.unlink(name, dir_fd=directory)


REQUESTS = {"list": list_files, "get": get_files, "put": put_files, "archive": prepare_archive}


def serve(connection: socket.socket, root: Path) -> None:
    """Serve one connection until it ends."""
    with connection:
        peer = Peer(connection)
        try:
            peer.send(hello=True)
            while True:
                request, _ = peer.receive()
                REQUESTS[request["request"]](peer, root, request)
        except CutError:
            pass
        except (OSError, ValueError) as error:
            peer.refuse(error)


def main(mount: str) -> int:
    """Serve until the pod is deleted, or nobody is there any more."""
    # The first process of a container ignores the signal otherwise.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.umask(0o022)
    served: tuple[socket.socket, threading.Thread] | None = None
    with socket.create_server(("127.0.0.1", PORT)) as server:
        server.settimeout(IDLE_SECONDS)
        while True:
            try:
                connection, _ = server.accept()
            except socket.timeout:  # noqa: UP041  another class before Python 3.10
                if served is not None and served[1].is_alive():
                    continue
                print(f"no connection within {IDLE_SECONDS:.0f} s", file=sys.stderr)
                return 1
            if served is not None:
                with suppress(OSError):
                    served[0].shutdown(socket.SHUT_RDWR)
                served[1].join()
            connection.settimeout(SILENCE_SECONDS)
            thread = threading.Thread(target=serve, args=(connection, Path(mount).resolve()), daemon=True)
            thread.start()
            served = connection, thread


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
