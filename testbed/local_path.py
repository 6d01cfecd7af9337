"""Rancher's local-path-provisioner, which the official nodes have, and its StorageClass as the default one.

The program comes from its Go module, the objects from the manifest in it. One image, made here, takes the place of the
provisioner's and of its helper pods', which only need a shell.
It must never be used on official nodes, which have it.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from . import binaries, loading, rootfs
from .docker import Engine
from .kube import Kube
from .shell import lock, step

PROGRAM, NAMESPACE = "local-path-provisioner", "local-path-storage"
DOCKERFILE = f"ARG BASE\nFROM ${{BASE}} AS provisioner\nCOPY {PROGRAM} /usr/bin/\n"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
READY_SECONDS = 120


@contextmanager
def provisioner(kube: Kube, engine: Engine, nodes: Sequence[str]) -> Iterator[None]:
    """Provision claims of the default class while the block lasts; the caller deletes them before its end."""
    install(kube, engine, nodes)
    try:
        yield
    finally:
        kube.kubectl("delete", "--filename=-", stdin=yaml.safe_dump_all(_objects()))


def install(kube: Kube, engine: Engine, nodes: Sequence[str]) -> None:
    """Bring the images into the nodes and start the provisioner. Of several default classes the newest one counts."""
    image = _ensure_image(engine)
    loading.load(engine, nodes, [image])
    for name in _images():
        loading.rename(engine, nodes, {image: name})
    kube.apply(*_objects())
    ready = ("rollout", "status", f"deployment/{PROGRAM}", f"--timeout={READY_SECONDS}s")
    kube.kubectl(*ready, "--namespace", NAMESPACE)


def _objects() -> list[dict[str, Any]]:
    """Return the objects of the published manifest, its StorageClass as the default one."""
    manifest = binaries.module_files(PROGRAM) / "deploy" / "local-path-storage.yaml"
    objects: list[dict[str, Any]] = [each for each in yaml.safe_load_all(manifest.read_text()) if each]
    for each in objects:
        if each["kind"] == "StorageClass":
            each["metadata"]["annotations"] = {DEFAULT_CLASS: "true"}
    return objects


def _images() -> list[str]:
    """Return the names of the images in the manifest: the provisioner's and the helper pod's."""
    kinds = {each["kind"]: each for each in _objects()}
    pods = [kinds["Deployment"]["spec"]["template"], yaml.safe_load(kinds["ConfigMap"]["data"]["helperPod.yaml"])]
    names = [container["image"] for pod in pods for container in pod["spec"]["containers"]]
    return [name if ":" in name else f"{name}:latest" for name in names]


def _ensure_image(engine: Engine) -> str:
    """Return the name of the image, built first where it is missing."""
    base = rootfs.ensure(engine)
    inputs = repr((base, DOCKERFILE, binaries.key(binaries.PACKAGES[PROGRAM][0])))
    name = f"tftraining/{PROGRAM}:{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"
    with lock(PROGRAM):
        if not engine.has_image(name):
            program = (binaries.ensure(PROGRAM) / PROGRAM).resolve()
            with tempfile.TemporaryDirectory(prefix="tftraining-") as folder, step(f"building the image of {PROGRAM}"):
                shutil.copy2(program, folder)
                (Path(folder) / "Dockerfile").write_text(DOCKERFILE)
                engine.build(Path(folder), "provisioner", name, {"BASE": base})
    return name
