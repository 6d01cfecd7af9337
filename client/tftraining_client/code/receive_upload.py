"""Receives an archive in a pod and puts it into the mounted storage. A copy runs in the job's image, on Python 3.9 or
later.

It listens on the pod's loopback. The client gets a line of JSON, {"state": "wanted"} or {"state": "present"}, sends the
archive, and gets {"state": "stored"} or {"error": …}. A connection that ends too early leaves nothing; the next one
begins anew. The archive gets its name only when its digest is right, so nobody ever reads half of one.
"""

import errno
import hashlib
import json
import os
import socket
import sys
import time
from contextlib import suppress
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


def receive(connection: socket.socket, path: Path, digest: str, size: int) -> str:
    """Store the archive that the connection brings; the state. OSError, CutError, or ValueError for a wrong digest."""
    if is_present(path, digest):
        # An archive in use is no old one. Another user of an earlier submission may own it.
        with suppress(OSError):
            os.utime(path)
        return "present"
    partial = path.with_name(f"{path.name}.{socket.gethostname()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("wb") as file:
            answer(connection, state="wanted")
            found = copy(connection, file, size)
            file.flush()
            os.fsync(file.fileno())
        if found != digest:
            raise ValueError(f"the archive has arrived with the digest {found}, not {digest}")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return "stored"


def is_present(path: Path, digest: str) -> bool:
    """Whether the storage has the archive already."""
    if not path.is_file():
        return False
    told = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            told.update(chunk)
    return f"sha256:{told.hexdigest()}" == digest


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


def remove_earlier(path: Path) -> None:
    """Remove the old archives of the job, which are those with its name, and what is left of uploads that were cut."""
    job = path.name.partition(".")[0]
    for other in path.parent.glob(f"{job}.*"):
        if other != path and time.time() - other.stat().st_mtime > OLD_SECONDS:
            other.unlink()


def answer(connection: socket.socket, **fields: str) -> None:
    """Send one line."""
    connection.sendall(json.dumps(fields).encode() + b"\n")


def refuse(connection: socket.socket, error: Exception, path: Path) -> None:
    """Answer with the error. The rest that the client sends is read: unread bytes would reset the connection, and the
    answer would be lost."""
    text, name = str(error), ""
    if isinstance(error, OSError):
        text, name = f"{error.strerror}: {error.filename or path}", errno.errorcode.get(error.errno or 0, "")
    answer(connection, error=text, errno=name)
    connection.settimeout(LAST_SECONDS)
    while connection.recv(CHUNK):
        pass


def serve(connection: socket.socket, path: Path, digest: str, size: int) -> bool:
    """Receive the archive and answer; whether this was the last connection."""
    try:
        state = receive(connection, path, digest, size)
    except CutError:
        return False
    except (OSError, ValueError) as error:
        refuse(connection, error, path)
        return True
    try:
        remove_earlier(path)
    except OSError as error:
        print(f"cannot remove an earlier archive: {error}", file=sys.stderr)
    answer(connection, state=state)
    return True


def main(path: str, digest: str, size: str) -> int:
    """Take connections until the archive is there or cannot be written."""
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
                    if serve(connection, Path(path), digest, int(size)):
                        return 0
                except OSError as error:
                    print(f"the connection has ended: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
