"""The image of a cluster's machines: the official one where it can be pulled, else one that is built here.

The built one holds no image bytes: `node/seed` unpacks all images once into a store in the cache directory, which is
mounted read-only into every node. Built again only when its inputs change; their hash is its tag.
It must never hold anything of this machine.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import binaries, pod_images, rootfs
from .docker import Engine
from .shell import LabError, cache_dir, lock, run, say, step

NODE_FILES = Path(__file__).parent / "node"
OFFICIAL = f"kindest/node:v{binaries.KUBERNETES_VERSION}"
CHOICE_VARIABLE = "TFTRAINING_NODE_IMAGE"  # "build", or the name of an image to pull
ASK_SECONDS = 20
SEEDED = "tftraining/node-with-images"
KEPT_STORES = 2
PULL_SECONDS = 900
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
PROGRAMS = (*COMPONENTS, "coredns", "pause", "kubelet", "kubeadm", "kubectl")


@dataclass(frozen=True)
class NodeImage:
    """An image for nodes; `store` is the folder to mount at /kind/store, None for an image that needs none."""

    name: str
    store: Path | None

    @property
    def built_here(self) -> bool:
        """Say whether this is the lab's own image, which brings no network plugin of its own."""
        return self.store is not None


def to_pull(engine: Engine) -> str | None:
    """Return the node image to use as it is, pulled if it was missing; None where images must be built here."""
    choice = os.environ.get(CHOICE_VARIABLE, "")
    if choice == "build":
        return None
    with lock("node-image"):
        if choice:
            _pull(engine, choice)
            return choice
        return OFFICIAL if _can_pull(engine) else None


def build(engine: Engine, pods: Sequence[str]) -> NodeImage:
    """Return the node image made here, with the images `pods` in its store; made first if it is missing."""
    with lock("node-image"):
        return _seeded(engine, _built(engine), pods)


def _can_pull(engine: Engine) -> bool:
    """Say whether the official image is here or can be pulled; not asked again where one was built here."""
    if engine.has_image(OFFICIAL):
        return True
    if engine.has_image(_built_name("node")):
        return False
    with step(f"checking whether {OFFICIAL} can be pulled"):
        try:
            engine.docker("manifest", "inspect", OFFICIAL, timeout=ASK_SECONDS)
        except LabError:
            say(f"{OFFICIAL} cannot be pulled here: building a node image ({CHOICE_VARIABLE} chooses another)")
            return False
    _pull(engine, OFFICIAL)
    return True


def _pull(engine: Engine, name: str) -> None:
    if not engine.has_image(name):
        with step(f"pulling {name}"):
            engine.docker("pull", "-q", name, timeout=PULL_SECONDS)


def _built_name(target: str) -> str:
    """Return the name of an image of `node/Dockerfile`; its tag is a hash of all its inputs."""
    digest = hashlib.sha256(repr((rootfs.COMMAND, binaries.KUBERNETES_VERSION)).encode())
    for module in sorted({binaries.PACKAGES[program][0] for program in PROGRAMS}):
        digest.update(binaries.key(module).encode())
    for path in sorted(path for path in NODE_FILES.iterdir() if path.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"tftraining/{target}:{digest.hexdigest()[:12]}"


def _built(engine: Engine) -> dict[str, str]:
    """Return target → image of `node/Dockerfile`, built first where missing."""
    names = {target: _built_name(target) for target in ("component", "coredns", "pause", "node")}
    if not all(engine.has_image(name) for name in names.values()):
        pause = next(line for line, target in _component_references().items() if target == "pause")
        arguments = {"BASE": rootfs.ensure(engine), "VERSION": binaries.KUBERNETES_VERSION, "PAUSE": pause}
        programs = binaries.ensure(*PROGRAMS, pinned=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="context-") as folder:
            context = Path(folder)
            shutil.copytree(NODE_FILES, context / "node", ignore=shutil.ignore_patterns("__pycache__"))
            (context / "bin").mkdir()
            for program in PROGRAMS:
                os.link((programs / program).resolve(), context / "bin" / program)
            for target, name in names.items():
                with step(f"building the {target} image"):
                    engine.build(context, target, name, arguments, "node/Dockerfile")
    return names


def _component_references() -> dict[str, str]:
    """Return the name that kubeadm gives to each component's image → the target of `node/Dockerfile` that it is."""
    kubeadm = binaries.ensure("kubeadm", pinned=True) / "kubeadm"
    listing = run([kubeadm, "config", "images", "list", "--kubernetes-version", f"v{binaries.KUBERNETES_VERSION}"])
    names = {line.rpartition("/")[2].partition(":")[0]: line for line in listing.split()}
    return {line: name if name in {"coredns", "pause"} else "component" for name, line in names.items()}


def _seeded(engine: Engine, built: dict[str, str], pods: Sequence[str]) -> NodeImage:
    """Return the built image with a store that holds the components and the heavy layers of `pods`."""
    tag = hashlib.sha256(f"{built['node']} {pod_images.heavy_tag()}".encode()).hexdigest()[:12]
    name, store = f"{SEEDED}:{tag}", cache_dir() / "stores" / tag
    if not (engine.has_image(name) and store.exists()):
        references = _component_references()
        for reference, target in references.items():
            engine.docker("tag", built[target], reference)
        with step("unpacking all images into the nodes' store"):
            _seed(engine, built["node"], name, store, [*references, *pods])
        engine.docker("image", "rm", *references)
        _forget_old(engine)
    return NodeImage(name, store)


def _forget_old(engine: Engine) -> None:
    """Remove all stores and their images but the latest few, as far as no node uses them."""
    stores = sorted((cache_dir() / "stores").iterdir(), key=lambda store: store.stat().st_mtime, reverse=True)
    for store in stores[KEPT_STORES:]:
        image = f"{SEEDED}:{store.name}"
        if not engine.docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}").strip():
            if engine.has_image(image):
                engine.docker("image", "rm", image)
            shutil.rmtree(store)


def _seed(engine: Engine, image: str, name: str, store: Path, contents: Sequence[str]) -> None:
    """Run `node/seed` on `image` with these images as input; make the result `name`, and fill `store`."""
    container = f"tftraining-seed-{os.getpid()}"
    partial = store.with_name(f".{store.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    seed = ["run", "-i", "--privileged", "--network", "none", "--name", container, "-v", f"{partial}:/kind/store"]
    try:
        with subprocess.Popen(["docker", "save", *contents], env=engine.env, stdout=subprocess.PIPE) as archive:
            engine.docker(*seed, "--entrypoint", "/usr/local/bin/seed", image, stdin=archive.stdout)
        if archive.returncode != 0:
            raise LabError(f"docker save failed with exit code {archive.returncode}")
        shutil.rmtree(store, ignore_errors=True)
        partial.rename(store)
        engine.docker("commit", "--change", 'ENTRYPOINT ["/usr/local/bin/entrypoint"]', container, name)
    finally:
        engine.docker("rm", "--force", "--volumes", container)
