"""Bringing images from the engine into the nodes, without the layers that a node has already.

Nodes that are built here hold the large layers from the start (see `node_image`), so a change of our code is loaded
in a moment. It must never load an image under a name that a node already has: tags are hashes of the content.
"""

import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import oci
from .docker import Engine
from .extraction import extract
from .shell import step

CTR = ("ctr", "-n", "k8s.io")
BLOBS = "/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256"


def load(engine: Engine, nodes: Iterable[str], images: Iterable[str]) -> None:
    """Load each image into each node that lacks it."""
    names = list(nodes)
    for image in images:
        lacking = [node for node in names if _full_name(image) not in _images_of(engine, node)]
        if lacking:
            with step(f"loading {image} into {len(lacking)} nodes"):
                _load(engine, lacking, image)


def rename(engine: Engine, nodes: Iterable[str], names: Mapping[str, str]) -> None:
    """Give loaded images further names in the nodes, which may have named older images before."""
    for node in nodes:
        for image, name in names.items():
            engine.execute(node, *CTR, "images", "tag", "--force", _full_name(image), _full_name(name))


def _full_name(image: str) -> str:
    """Return the name under which containerd keeps an image that manifests call `image`."""
    return f"docker.io/{image}" if "/" in image else f"docker.io/library/{image}"


def _images_of(engine: Engine, node: str) -> list[str]:
    return engine.execute(node, *CTR, "images", "ls", "-q").split()


def _blobs_of(engine: Engine, node: str) -> dict[str, int]:
    """Return the digest of each piece of an image that a node has, and its bytes."""
    listing = engine.execute(node, "sh", "-c", f"cd {BLOBS} && find . -mindepth 1 -exec stat -L -c '%n %s' {{}} +")
    pairs = (line.removeprefix("./").split() for line in listing.splitlines())
    return {f"sha256:{name}": int(size) for name, size in pairs}


def _load(engine: Engine, nodes: list[str], image: str) -> None:
    """Send the image to the nodes without the layers that all of them have."""
    inventories = [_blobs_of(engine, node) for node in nodes]
    everywhere = set.intersection(*(set(inventory) for inventory in inventories))
    has = {digest: inventories[0][digest] for digest in everywhere}
    with tempfile.TemporaryDirectory(prefix="tftraining-load-") as folder:
        archive = Path(folder) / "archive"
        with archive.open("wb") as target:
            oci.write(extract(engine, image, has, Path(folder)), _full_name(image), target)

        def send(node: str) -> None:
            with archive.open("rb") as source:
                engine.execute(node, *CTR, "images", "import", "-", stdin=source)

        with ThreadPoolExecutor() as pool:
            list(pool.map(send, nodes))
