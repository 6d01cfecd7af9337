"""Packs a directory. The same files give the same archive: sorted, without times, owners and other metadata."""

import gzip
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from tftraining.launch.unpack import unpack
from tftraining_client.code.ignore import OWN, IgnoreRules
from tftraining_client.errors import UserError

# A directory with more has data or results among the program; the message names the largest files.
UNPACKED_LIMIT = 256 << 20
ENTRY_LIMIT = 20_000
REMEDY = "list what the program does not need in .tftjignore"


@dataclass(frozen=True)
class Entry:
    """A file, or a symbolic link with its target. `size` is in bytes."""

    path: PurePosixPath
    source: Path
    size: int = 0
    executable: bool = False
    target: str = ""


@dataclass(frozen=True)
class Package:
    """A program as tar.gz archive. `sizes` are its files with their bytes, `left_out` those that it lacks because they
    look like credentials."""

    data: bytes
    sizes: tuple[tuple[str, int], ...]
    left_out: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.sizes)

    @property
    def largest(self) -> tuple[tuple[str, int], ...]:
        """The largest files with their sizes, the largest first."""
        return largest(dict(self.sizes))

    @cached_property
    def digest(self) -> str:
        """The digest of the archive: `sha256:…`."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"


def pack(directory: Path | str) -> Package:
    """The package of a directory, without what .gitignore files and .tftjignore exclude, and without credentials that
    .tftjignore does not name. UserError names what cannot be packed: no directory, no files, an unreadable file, a
    socket, a link that leaves the directory, too many bytes."""
    root = Path(directory)
    if not root.is_dir():
        raise UserError(f"{directory}: {'not a directory' if root.exists() else 'no such directory'}")
    try:
        rules = IgnoreRules(root)
        entries = _entries(root, rules)
        _check_size(directory, entries)
        contents = {str(each.path): (each, each.source.read_bytes() if not each.target else b"") for each in entries}
    except OSError as error:
        raise UserError(f"{error.filename or directory}: {(error.strerror or str(error)).lower()}") from error
    if not contents:
        raise UserError(f"{directory}: no files to submit: the directory is empty, or its ignore files exclude all")
    return _package(contents, tuple(sorted(rules.left_out)))


def pack_files(files: Mapping[str, bytes], beside: Package | None = None) -> Package:
    """The package of files by their paths, and of the files and links of another one beside them."""
    entries = {path: (Entry(PurePosixPath(path), Path(path), len(data)), data) for path, data in files.items()}
    return _package({**(_contents(beside) if beside else {}), **entries})


def _contents(package: Package) -> dict[str, tuple[Entry, bytes]]:
    """The files and links of a package."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(package.data)) as tar:
        for member in tar:
            file, path = tar.extractfile(member) if member.isreg() else None, PurePosixPath(member.name)
            entry = Entry(path, Path(path), member.size, bool(member.mode & 0o100), member.linkname)
            found[member.name] = entry, file.read() if file else b""
    return found


def write_files(package: Package, directory: Path) -> None:
    """Unpack a package, so that the directory can be packed again."""
    archive = directory.with_suffix(".tar.gz")
    archive.write_bytes(package.data)
    unpack(archive, package.digest, directory)
    archive.unlink()
    # The ignore files among them have had their effect, and a credential among them was named.
    names = (re.sub(r"([\\*?\[\] !#])", r"\\\1", name) for name, _ in package.sizes)
    (directory / OWN).write_text("".join(["!*\n", *(f"!/{name}\n" for name in names)]), encoding="utf-8")


def _entries(root: Path, rules: IgnoreRules) -> list[Entry]:
    found: list[Entry] = []
    for place, directories, names in os.walk(root, onerror=_raise):
        here = PurePosixPath(Path(place).relative_to(root).as_posix())
        rules.enter(here)
        links = [name for name in directories if Path(place, name).is_symlink()]
        directories[:] = [name for name in directories if name not in links and not rules.excludes(here / name, True)]
        kept = [name for name in (*names, *links) if not rules.excludes(here / name, False)]
        found += [_entry(root, here / name) for name in kept]
        if len(found) > ENTRY_LIMIT:
            raise UserError(f"{root}: more than {ENTRY_LIMIT} files: {REMEDY}")
    return sorted(found, key=lambda each: each.path.parts)


def _raise(error: OSError) -> None:
    raise error


def _entry(root: Path, path: PurePosixPath) -> Entry:
    source = root / path
    if source.is_symlink():
        return Entry(path, source, target=_target(root, path))
    if not source.is_file():
        raise UserError(f"{source}: neither a file nor a directory (a socket, a pipe or a device): {REMEDY}")
    status = source.stat()
    return Entry(path, source, status.st_size, bool(status.st_mode & 0o100))


def _target(root: Path, path: PurePosixPath) -> str:
    """The target of a link, which must lie in the directory."""
    target = (root / path).readlink()
    if target.is_absolute():
        raise UserError(f"{root / path}: a link to the absolute path {target}: use a relative one, or {REMEDY}")
    if not (root / path).resolve().is_relative_to(root.resolve()):
        raise UserError(f"{root / path}: a link that leaves the directory, to {target}: {REMEDY}")
    return target.as_posix()


def _check_size(directory: Path | str, entries: Iterable[Entry]) -> None:
    sizes = {str(each.path): each.size for each in entries}
    if sum(sizes.values()) > UNPACKED_LIMIT:
        raise UserError(
            f"{directory}: more than {UNPACKED_LIMIT >> 20} MiB of files; the largest: {file_list(largest(sizes))}: "
            f"{REMEDY}"
        )


def largest(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The three largest files."""
    return tuple(sorted(sizes.items(), key=lambda each: -each[1])[:3])


def file_list(files: Iterable[tuple[str, int]]) -> str:
    """Files with their sizes, for a message."""
    return ", ".join(f"{path} ({mebibytes(size)})" for path, size in files)


def summary(package: Package) -> str:
    """What a person is told of a package."""
    count = f"{package.files} file{'s' * (package.files != 1)}"
    size = len(package.data)
    return f"the code: {count}, {mebibytes(size) if size >= 1 << 20 else f'{size / 1024:.1f} KiB'} as an archive"


def left_out(package: Package) -> list[str]:
    """What a person is told of files that a package does not have; empty if there are none."""
    if not package.left_out:
        return []
    names = ", ".join(package.left_out)
    fix = f"a line such as !{package.left_out[0]} in .tftjignore adds what the program needs"
    return [f"left out of the code, because they look like credentials: {names}; {fix}"]


def mebibytes(size: int) -> str:
    """A number of bytes, for a message."""
    return f"{size / 2**20:.1f} MiB"


def _package(contents: Mapping[str, tuple[Entry, bytes]], left_out: tuple[str, ...] = ()) -> Package:
    archive = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=archive, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry, data in (contents[path] for path in sorted(contents)):
            tar.addfile(_header(entry, len(data)), io.BytesIO(data))
    sizes = tuple((path, len(data)) for path, (_, data) in sorted(contents.items()))
    return Package(archive.getvalue(), sizes, left_out)


def _header(entry: Entry, size: int) -> tarfile.TarInfo:
    """The header of a file: a new one has neither a time nor an owner."""
    header = tarfile.TarInfo(str(entry.path))
    header.mode = 0o755 if entry.executable else 0o644
    if entry.target:
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.target, 0o777
    else:
        header.size = size
    return header
