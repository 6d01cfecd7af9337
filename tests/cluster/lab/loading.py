"""Bringing images from the engine into the nodes, without the layers that a node has already.

An image is sent as an OCI archive. A node that already holds the large layers (all nodes built here do, see
`node_image`) gets only the small ones, so a change of our code is loaded in seconds.
It must never load an image under a name that a node already has: tags are hashes of the content.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .docker import Engine
from .shell import step

CTR = ("ctr", "-n", "k8s.io")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Blob:
    """A piece of an image: `member` is where `docker save` put it; None for one that is in `data`."""

    kind: str
    digest: str
    size: int
    member: tarfile.TarInfo | None = None
    data: bytes = b""

    def descriptor(self) -> dict[str, object]:
        """Return what refers to this piece in an OCI document."""
        return {"mediaType": self.kind, "digest": self.digest, "size": self.size}


def full_name(image: str) -> str:
    """Return the name under which containerd keeps an image that manifests call `image`."""
    return f"docker.io/{image}"


def load(engine: Engine, nodes: Iterable[str], images: Iterable[str]) -> None:
    """Load each image into each node that lacks it."""
    names = list(nodes)
    for image in images:
        lacking = [node for node in names if full_name(image) not in _images_of(engine, node)]
        if lacking:
            with step(f"loading {image} into {len(lacking)} nodes"):
                _load(engine, lacking, image)


def _images_of(engine: Engine, node: str) -> list[str]:
    return engine.execute(node, *CTR, "images", "ls", "-q").split()


def _load(engine: Engine, nodes: list[str], image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tftraining-load-") as folder:
        saved = Path(folder) / "saved.tar"
        engine.docker("save", "--output", saved, image)

        def send(node: str) -> None:
            has = set(engine.execute(node, *CTR, "content", "ls", "-q").split())
            with (Path(folder) / f"{node}.tar").open("w+b") as archive:
                write_archive(saved, full_name(image), has, archive)
                archive.seek(0)
                engine.execute(node, *CTR, "images", "import", "-", stdin=archive)

        with ThreadPoolExecutor() as pool:
            list(pool.map(send, nodes))


def write_archive(saved: Path, name: str, has: set[str], target: IO[bytes]) -> None:
    """Write the image that `docker save` saved as an OCI archive called `name`, without the layers in `has`."""
    with tarfile.open(saved) as source, tarfile.open(fileobj=target, mode="w") as archive:
        manifest, blobs = _read(source)
        index = {
            "schemaVersion": 2,
            "manifests": [manifest.descriptor() | {"annotations": {"io.containerd.image.name": name}}],
        }
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        for blob in (manifest, *blobs):
            path = "blobs/" + blob.digest.replace(":", "/")
            if blob.member is None:
                _add(archive, path, blob.data)
            elif blob.digest not in has:
                info = tarfile.TarInfo(path)
                info.size = blob.size
                archive.addfile(info, source.extractfile(blob.member))


def _read(source: tarfile.TarFile) -> tuple[Blob, list[Blob]]:
    """Return the manifest of the one image in an archive of `docker save`, and the blobs that it refers to."""
    entry = json.loads(_member(source, "manifest.json"))[0]
    data = _member(source, entry["Config"])
    config = Blob(CONFIG, _digest(data), len(data), data=data)
    layers = list(_layers(source, entry["Layers"], json.loads(data)["rootfs"]["diff_ids"]))
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(),
        "layers": [layer.descriptor() for layer in layers],
    }
    text = json.dumps(document).encode()
    return Blob(MANIFEST, _digest(text), len(text), data=text), [config, *layers]


def _layers(source: tarfile.TarFile, paths: list[str], digests: list[str]) -> Iterator[Blob]:
    """Yield the layers; an engine that keeps them compressed names them by the digest of the compressed bytes."""
    for path, uncompressed in zip(paths, digests, strict=True):
        member = source.getmember(path)
        if member.issym():  # docker writes a layer that occurs twice as a link
            member = source.getmember(str(Path(path).parent / member.linkname).replace("/../", "/../"))
        magic = _start(source, member)
        compressed = magic == b"\x1f\x8b"
        digest = f"sha256:{Path(path).name}" if compressed else uncompressed
        yield Blob(LAYER + ("+gzip" if compressed else ""), digest, member.size, member)


def _start(source: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = source.extractfile(member)
    return file.read(2) if file else b""


def _member(source: tarfile.TarFile, path: str) -> Any:
    file = source.extractfile(path)
    return file.read() if file else b""


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
