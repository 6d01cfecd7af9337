"""Taking an image out of the engine, as far as the receiver lacks it.

Where the engine's layers are directories that we can read, small layers are taken from there, in a moment; otherwise
the engine writes out the whole image, which takes long for a large one.
It must never change the engine's files.
"""

import json
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .docker import Engine
from .oci import Image, Layer, digest_of

SMALL_BYTES = 50_000_000


def extract(engine: Engine, image: str, has: Mapping[str, int], folder: Path) -> Image:
    """Return the image, its missing layers as files in `folder`; `has`: digest → bytes of what the receiver has."""
    facts = json.loads(engine.docker("image", "inspect", image))[0]
    directories = _missing_directories(facts, has)
    if directories is None:
        return _saved(engine, image, has, folder)
    layers = []
    for digest in facts["RootFS"]["Layers"]:
        if digest in has:
            layers.append(Layer(digest, has[digest], None))
        else:
            layers.append(_packed(directories[digest], folder / f"{len(layers)}.tar"))
    config = {"architecture": facts["Architecture"], "os": facts["Os"], "config": facts["Config"]}
    return Image(config | {"rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]}}, layers)


def _missing_directories(facts: dict[str, Any], has: Mapping[str, int]) -> dict[str, Path] | None:
    """Return missing layer → its directory; None unless all of them are small and plain and readable here."""
    driver = facts.get("GraphDriver") or {}
    if driver.get("Name") != "overlay2":
        return None
    lower = driver["Data"].get("LowerDir", "")
    folders = [Path(path) for path in (*reversed(lower.split(":") if lower else []), driver["Data"]["UpperDir"])]
    layers = facts["RootFS"]["Layers"]
    if len(folders) != len(layers):
        return None
    missing = {layer: folder for layer, folder in zip(layers, folders, strict=True) if layer not in has}
    return missing if all(is_plain(folder) for folder in missing.values()) else None


def is_plain(folder: Path) -> bool:
    """Say whether a layer's directory is small and holds files, directories and links only: no removals, no labels."""
    size = 0
    if not os.access(folder, os.R_OK):
        return False
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat()
        if not (stat.S_ISREG(mode.st_mode) or stat.S_ISDIR(mode.st_mode) or stat.S_ISLNK(mode.st_mode)):
            return False
        if os.listxattr(path, follow_symlinks=False):
            return False
        size += mode.st_size
    return size < SMALL_BYTES


def _packed(folder: Path, target: Path) -> Layer:
    """Pack a layer's directory into a tar file; the same files give the same bytes."""
    with tarfile.open(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False)
    with target.open("rb") as handle:
        return Layer(digest_of(handle), target.stat().st_size, target)


def _saved(engine: Engine, image: str, has: Mapping[str, int], folder: Path) -> Image:
    """Let the engine write out the whole image, and keep the missing layers."""
    archive = folder / "saved.tar"
    engine.docker("save", "--output", archive, image)
    with tarfile.open(archive) as source:
        entry = json.loads(_read(source, "manifest.json"))[0]
        config = json.loads(_read(source, entry["Config"]))
        pairs = zip(entry["Layers"], config["rootfs"]["diff_ids"], strict=True)
        layers = [_kept(source, path, digest, has, folder) for path, digest in pairs]
    archive.unlink()
    return Image(config, layers)


def _kept(source: tarfile.TarFile, path: str, digest: str, has: Mapping[str, int], folder: Path) -> Layer:
    if digest in has:
        return Layer(digest, has[digest], None)
    target = folder / (digest.rpartition(":")[2] + ".tar")
    member = source.getmember(path)
    if member.issym():  # docker writes a layer that occurs twice as a link
        member = source.getmember(os.path.normpath(Path(path).parent / member.linkname))
    source.makefile(member, str(target))
    with target.open("rb") as handle:
        return Layer(digest_of(handle), target.stat().st_size, target)


def _read(source: tarfile.TarFile, path: str) -> bytes:
    file = source.extractfile(path)
    return file.read() if file else b""
