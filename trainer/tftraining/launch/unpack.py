"""The archive of a program (spec.code) becomes a directory: digest and names are checked before anything runs.

The archive is a gzip-compressed tar file of regular files, directories and links that stay inside. Standard library of
Python 3.9 only, whose tarfile has no filters.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

ENTRIES, UNPACKED = 50_000, 2 << 30  # the most entries, and the most bytes of all files
_CHUNK = 1 << 20


class CodeError(Exception):
    """The program cannot be brought into the pod; the message is for the user."""


def unpack(archive: Path, digest: str, directory: Path) -> None:
    """Replace the contents of `directory` by those of the archive. CodeError if the digest or an entry is wrong."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A file without a name, of this pod: whoever writes to the shared storage could change the archive after its
        # digest was checked.
        with tempfile.TemporaryFile(dir=directory) as copy:
            found = _copied(archive, copy)
            if found != digest:
                raise CodeError(
                    f"the archive has the digest {found}, not {digest} (spec.code.digest): submit the code again"
                )
            with tarfile.open(fileobj=copy, mode="r:gz") as tar:
                clear(directory)
                _extract(tar, directory)
    except (tarfile.TarError, EOFError, UnicodeError, zlib.error) as error:
        raise CodeError(f"the archive is no gzip-compressed tar file: {error}") from error
    except OSError as error:
        raise CodeError(f"cannot unpack the archive: {error}") from error


def _copied(archive: Path, copy: IO[bytes]) -> str:
    """Copy the archive; the digest of what was copied."""
    told = hashlib.sha256()
    with archive.open("rb") as file:
        while chunk := file.read(_CHUNK):
            told.update(chunk)
            copy.write(chunk)
    copy.seek(0)
    return f"sha256:{told.hexdigest()}"


def clear(directory: Path) -> None:
    """Remove the contents: the kubelet runs an init container again if it has to start the pod's sandbox again."""
    directory.mkdir(parents=True, exist_ok=True)
    for each in directory.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _extract(tar: tarfile.TarFile, directory: Path) -> None:
    links = []
    for member in _bounded(tar):
        path = directory / _inside(member.name)
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.isreg():
            _write(tar, member, path)
        elif member.issym():
            links.append((path, member.linkname))
        else:
            raise CodeError(f"the archive has {member.name}, which is no file, directory or symbolic link")
    # Last, so that no file is written through a link.
    root = os.path.realpath(directory)
    for path, target in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        # An earlier link may be one of the parents.
        if os.path.commonpath([root, os.path.realpath(path.parent)]) != root:
            raise CodeError(f"the link {path.relative_to(directory)} leaves the directory")
        path.symlink_to(target)
    check_links(directory)


def _bounded(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    total = 0
    for number, member in enumerate(tar, start=1):
        total += member.size
        if number > ENTRIES or total > UNPACKED:
            raise CodeError(f"the archive has more than {ENTRIES} entries or {UNPACKED >> 30} GiB of files")
        yield member


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise CodeError(f"the archive has the path {name!r}, which leaves the directory")
    return path


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise CodeError(f"the archive has {member.name} without contents")
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("xb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def check_links(directory: Path) -> None:
    """CodeError for a symbolic link that leaves the directory."""
    root = os.path.realpath(directory)
    for place, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = Path(place, name)
            if path.is_symlink() and os.path.commonpath([root, os.path.realpath(path)]) != root:
                raise CodeError(f"the link {path.relative_to(directory)} leaves the directory")
