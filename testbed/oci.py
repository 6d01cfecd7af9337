"""OCI image archives from which layers can be left out, because the receiver has them.

It must never name a layer by anything but the digest of its bytes.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Layer:
    """A layer: the digest and size (bytes) of its tar file, and that file; None where the receiver has it."""

    digest: str
    size: int
    file: Path | None

    def descriptor(self) -> dict[str, object]:
        """Return what refers to this layer in a manifest."""
        return _descriptor(LAYER + ("+gzip" if self._compressed() else ""), self.digest, self.size)

    def _compressed(self) -> bool:
        if self.file is None:
            return False
        with self.file.open("rb") as handle:
            return handle.read(len(GZIP)) == GZIP


@dataclass(frozen=True)
class Image:
    """An image: its configuration (OCI) and its layers, the base first."""

    config: dict[str, Any]
    layers: Sequence[Layer]


def digest_of(data: bytes | IO[bytes]) -> str:
    """Return the digest, as OCI writes it, of bytes or of an open file."""
    found = hashlib.sha256(data) if isinstance(data, bytes) else hashlib.file_digest(data, "sha256")  # type: ignore[arg-type]
    return f"sha256:{found.hexdigest()}"


def write(image: Image, name: str, target: IO[bytes]) -> None:
    """Write the image as an archive that containerd imports under `name`."""
    config = json.dumps(image.config).encode()
    layers = [layer.descriptor() for layer in image.layers]
    manifest = _document(mediaType=MANIFEST, config=_descriptor(CONFIG, digest_of(config), len(config)), layers=layers)
    named = _descriptor(MANIFEST, digest_of(manifest), len(manifest)) | {
        "annotations": {"io.containerd.image.name": name}
    }
    with tarfile.open(fileobj=target, mode="w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", _document(manifests=[named]))
        _add(archive, _path(digest_of(manifest)), manifest)
        _add(archive, _path(digest_of(config)), config)
        for layer in image.layers:
            if layer.file:
                archive.add(layer.file, _path(layer.digest))


def _document(**fields: object) -> bytes:
    return json.dumps({"schemaVersion": 2, **fields}).encode()


def _descriptor(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": kind, "digest": digest, "size": size}


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
