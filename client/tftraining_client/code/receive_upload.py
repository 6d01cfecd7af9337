"""Receives an archive in a pod and puts it into the mounted storage. A copy runs in the job's image, on Python 3.9 or
later. The client imports it for PORT, also on Windows.

It listens on the pod's loopback. The client gets a line of JSON, {"state": "wanted"} or {"state": "present"}, sends the
archive, and gets {"state": "stored"} or {"error": …}. A connection that ends too early leaves nothing; the next one
begins anew. The archive gets its name only when its digest is right, so nobody ever reads half of one.

The exit code is 0 if the archive is there. After an error it is 1, and the error is the last line of the log, too: an
answer may be lost, the status of the pod is not. Other users of the storage may put links into the directory of the
archives: none is followed.
"""

import errno
import hashlib
import json
import os
import secrets
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PORT = 7070
IDLE_SECONDS = 120.0  # without a connection or a byte
LAST_SECONDS = 10.0
# A submission that has not created its job yet may use an archive of this age.
OLD_SECONDS = 7200.0
CHUNK = 1 << 20


class CutError(Exception):
    """The connection ended before the archive was complete."""


class Archives:
    """The directory of the archives, and the name of the one that comes."""

    def __init__(self, directory: int, name: str) -> None:
        self.directory = directory
        self.name = name

    def is_present(self, digest: str) -> bool:
        """Whether the archive is there already. It is touched: an archive in use is no old one."""
        try:
            if not stat.S_ISREG(os.stat(self.name, dir_fd=self.directory, follow_symlinks=False).st_mode):
                return False
            # A pipe in its place would have no end.
            file = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.directory)
        except FileNotFoundError:
            return False
        with open(file, "rb") as archive:  # noqa: PTH123  a descriptor
            told = hashlib.sha256()
            for chunk in iter(lambda: archive.read(CHUNK), b""):
                told.update(chunk)
            # Another user of an earlier submission may own it.
            with suppress(OSError):
                os.utime(file)
        return f"sha256:{told.hexdigest()}" == digest

    def store(self, connection: socket.socket, digest: str, size: int) -> None:
        """Write the archive that the connection brings. OSError, CutError, or ValueError for a wrong digest."""
        part = f"{self.name}.{secrets.token_hex(8)}.part"
        try:
            created = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=self.directory)
            with open(created, "wb") as file:  # noqa: PTH123  a descriptor
                ask(connection)
                found = copy(connection, file, size)
                file.flush()
                os.fsync(file.fileno())
            if found != digest:
                raise ValueError(f"the archive has arrived with the digest {found}, not {digest}")
            os.replace(part, self.name, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=self.directory)

    def remove_earlier(self) -> None:
        """Remove the old archives of the job, which are those with its name, and the parts of killed uploads."""
        job = self.name.partition(".")[0]
        with os.scandir(self.directory) as found:
            others = [each for each in found if each.name != self.name and each.name.startswith(f"{job}.")]
        for other in others:
            if time.time() - other.stat(follow_symlinks=False).st_mtime > OLD_SECONDS:
                os.unlink(other.name, dir_fd=self.directory)


@contextmanager
def opened(path: Path) -> Iterator[Archives]:
    """The directory of the path, which is created. The directories above may be links, as for the training."""
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield Archives(directory, path.name)
    finally:
        os.close(directory)


def receive(connection: socket.socket, path: Path, digest: str, size: int) -> None:
    """Put the archive into the storage and answer. OSError, CutError, or ValueError for a wrong digest."""
    with opened(path) as archives:
        state = "present"
        if not archives.is_present(digest):
            archives.store(connection, digest, size)
            state = "stored"
        try:
            archives.remove_earlier()
        except OSError as error:
            print(f"cannot remove an earlier archive: {error}", file=sys.stderr)
    with suppress(OSError):
        answer(connection, state=state)


def ask(connection: socket.socket) -> None:
    """Tell that the archive is not there yet; CutError if the client is gone."""
    try:
        answer(connection, state="wanted")
    except OSError as error:
        raise CutError from error


def copy(connection: socket.socket, file: BinaryIO, size: int) -> str:
    """Copy so many bytes; their digest."""
    told = hashlib.sha256()
    while size:
        try:
            chunk = connection.recv(min(size, CHUNK))
        except OSError as error:
            raise CutError from error
        if not chunk:
            raise CutError
        file.write(chunk)
        told.update(chunk)
        size -= len(chunk)
    return f"sha256:{told.hexdigest()}"


def answer(connection: socket.socket, **fields: str) -> None:
    """Send one line."""
    connection.sendall(json.dumps(fields).encode() + b"\n")


def refuse(connection: socket.socket, error: Exception, path: Path) -> None:
    """Answer with the error. The rest that the client sends is read: unread bytes would reset the connection, and the
    answer would be lost."""
    told = {"error": str(error), "errno": ""}
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, "")
        told = {"error": f"{error.strerror}: {path}", "errno": name}
    with suppress(OSError):
        answer(connection, **told)
        connection.settimeout(LAST_SECONDS)
        while connection.recv(CHUNK):
            pass
    print(json.dumps(told), file=sys.stderr)


def main(path: str, digest: str, size: str) -> int:
    """Take connections until the archive is there or cannot be written."""
    # The first process of a container ignores the signal otherwise. What is written so far is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.umask(0o022)
    with socket.create_server(("127.0.0.1", PORT)) as server:
        server.settimeout(IDLE_SECONDS)
        while True:
            try:
                connection, _ = server.accept()
            except socket.timeout:  # noqa: UP041  another class before Python 3.10
                print(f"no connection within {IDLE_SECONDS:.0f} s: submit again", file=sys.stderr)
                return 1
            connection.settimeout(IDLE_SECONDS)
            with connection:
                try:
                    receive(connection, Path(path), digest, int(size))
                    return 0
                except CutError:
                    print("the connection has ended before the archive was complete", file=sys.stderr)
                except (OSError, ValueError) as error:
                    refuse(connection, error, Path(path))
                    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
