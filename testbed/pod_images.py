"""The images of the operator and the trainer, built from the repository's Dockerfile.

Their tag is a hash of everything that goes into them, so an image that exists is never built again.
It must never leave settings of this machine in a layer.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from . import private_engine, rootfs
from .docker import Engine
from .shell import LabError, lock, step

REPOSITORY = Path(__file__).parents[1]
REQUIREMENTS = "requirements/trainer-cpu.txt"
HEAVY = ("Dockerfile", ".dockerignore", "requirements/operator.txt", REQUIREMENTS)  # decide the large layers
CODE = ("api", "operator", "trainer")  # the small layers above them
IGNORED = ("__pycache__", ".egg-info")
TARGETS = ("operator", "trainer")


def _files(name: str) -> Iterator[Path]:
    path = REPOSITORY / name
    if not path.exists():
        raise LabError(f"cannot build the images: {name} is missing in the repository")
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and not any(mark in str(file.relative_to(REPOSITORY)) for mark in IGNORED):
            yield file


def _hash(*names: str) -> str:
    digest = hashlib.sha256(repr((rootfs.COMMAND, REQUIREMENTS)).encode())
    for path in (path for name in names for path in _files(name)):
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def content_tag() -> str:
    """Return a hash of all that goes into the images."""
    return _hash(*HEAVY, *CODE)


def heavy_tag() -> str:
    """Return a hash of what decides the large layers: it stays the same while only our code changes."""
    return _hash(*HEAVY)


def ensure(engine: Engine, own_base: bool) -> list[str]:
    """Return the names of the images of operator and trainer, in this order, built first where they are missing.

    `own_base`: on the Debian base that is made here, for an engine that can pull nothing; otherwise on the public one.
    """
    tag = content_tag()
    images = {target: f"tftraining/{target}:{tag}" for target in TARGETS}
    with lock("pod-images"):
        missing = [target for target, image in images.items() if not engine.has_image(image)]
        if missing and engine.private:
            private_engine.refresh_build_settings()
        for target in missing:
            arguments = {"REQUIREMENTS": REQUIREMENTS} if target == "trainer" else {}
            if own_base:
                arguments["BASE_IMAGE"] = rootfs.ensure(engine)
            with step(f"building the {target} image"):
                engine.build(REPOSITORY, target, images[target], arguments)
    return list(images.values())
