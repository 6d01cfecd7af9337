"""A newcomer at a shell: a clean copy of the checkout, a home directory of his own, and kind, docker, kubectl and Helm.

What no registry gives here is built: the image of kind's nodes, the base image of the Dockerfile, TensorFlow's image.
Two scripts before the real programs on the PATH give them to `kind create cluster` and `docker build`; where the
official images can be pulled, there are no scripts. It must never touch a cluster, an image or a setting of the user.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries, cluster, local_path, node_image, packages, pod_images, private_engine, rootfs, stock_image
from testbed import engine as engines
from testbed.docker import Engine
from testbed.kube import Kube
from testbed.node_image import NodeImage
from testbed.nodes import Nodes
from testbed.shell import run
from tests.bare.machine import ignored
from tests.support.cluster.training import Training
from tests.support.page_commands import Command
from tests.support.repository import REPOSITORY

# Nodes ask a registry on this machine as `localhost`, which is another machine for them (serve_registry).
MIRRORS = "/etc/containerd/certs.d"
CONTAINERD = f'[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "{MIRRORS}"\n'
COMMAND_SECONDS = 600


@dataclass(frozen=True)
class Newcomer:
    """Where the newcomer works. `node` is the image of the nodes that are built here, None where one is pulled."""

    checkout: Path
    home: Path
    environment: Mapping[str, str]
    engine: Engine
    name: str  # of his cluster
    node: NodeImage | None
    trainer: str

    @property
    def kube(self) -> Kube:
        """His cluster."""
        return Kube(self.home / ".kube" / "config", self.home / ".kube" / "cache")

    @property
    def nodes(self) -> Nodes:
        """Its nodes."""
        return Nodes(self.engine, self.name)

    @property
    def training(self) -> Training:
        """The job of examples/first-job.yaml."""
        return Training(self.kube, "default", "first-job")

    def run(self, command: Command | str) -> str:
        """Run a command in the checkout and return what it prints; LabError if it fails."""
        words = ["bash", "-c", command if isinstance(command, str) else shlex.join(command.words)]
        return run(words, cwd=self.checkout, env=self.environment, timeout=COMMAND_SECONDS)

    @contextmanager
    def watching(self, command: Command) -> Iterator[Path]:
        """Run a command that does not end, as in a second terminal, while the block lasts; gives what it prints."""
        output = self.home / "watched"
        with output.open("w") as file:
            process = subprocess.Popen(command.words, cwd=self.checkout, env=self.environment, stdout=file)
            try:
                yield output
            finally:
                process.kill()
                process.wait()

    def finish_cluster(self) -> None:
        """Give the new cluster what official nodes bring, or pull: network, storage class, TensorFlow's image."""
        cluster.await_registration(self.nodes, self.kube)
        if self.node is None:
            return
        cluster.install_network(self.engine, self.kube)
        self.kube.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s")
        local_path.install(self.kube, self.engine, self.nodes.all())
        stock_image.load(self.engine, self.nodes.all(), self.trainer)

    def serve_registry(self, port: int) -> None:
        """Let the nodes pull from the registry on this machine that it calls localhost."""
        folder, address = f"{MIRRORS}/localhost:{port}", f"http://{self.nodes.gateway()}:{port}"
        for node in self.nodes.all():
            text = f'[host."{address}"]\n  capabilities = ["pull", "resolve"]\n'
            self.engine.execute(node, "sh", "-c", f"mkdir -p {folder} && cat > {folder}/hosts.toml", stdin=text)


@contextmanager
def newcomer(folder: Path) -> Iterator[Newcomer]:
    """Give a newcomer, whose cluster, images and files are removed at the end. Impossible where no engine runs."""
    checkout, home, programs = folder / "checkout", folder / "home", folder / "bin"
    try:
        with engines.started() as engine, ExitStack() as stack:
            official = node_image.to_pull(engine)
            images = pod_images.ensure(engine, own_base=official is None)
            node = None if official else node_image.build(engine, images)
            stack.callback(shutil.rmtree, folder)
            shutil.copytree(REPOSITORY, checkout, symlinks=True, ignore=ignored)
            home.mkdir()
            programs.mkdir()
            if node is not None:
                _write_scripts(programs, engine, node)
            name = f"{cluster.name()}-quick"
            environment = _environment(home, programs, engine, name)
            ours = Newcomer(checkout, home, environment, engine, name, node, images[1])
            stack.enter_context(_images_as_before(engine))
            engine.docker("network", "create", name)
            stack.callback(engine.docker, "network", "rm", name)
            stack.callback(ours.run, f"kind delete cluster --name {name}")
            yield ours
    finally:
        engines.stop_if_unused()


def _environment(home: Path, programs: Path, engine: Engine, name: str) -> dict[str, str]:
    """Return the environment of the newcomer's shell; Docker and pip keep the settings of this user."""
    path = [programs, binaries.ensure("kind", "kubectl", "helm"), home / "venv" / "bin", os.environ["PATH"]]
    return {
        "DOCKER_CONFIG": str(Path.home() / ".docker"),
        "XDG_CONFIG_HOME": str(Path.home() / ".config"),
        **{variable: value for variable, value in engine.env.items() if variable != "KUBECONFIG"},
        "HOME": str(home),
        "PATH": ":".join(map(str, path)),
        "KIND_CLUSTER_NAME": name,
        "KIND_EXPERIMENTAL_DOCKER_NETWORK": name,
    }


def _write_scripts(programs: Path, engine: Engine, node: NodeImage) -> None:
    """Write the scripts that call kind and docker with what is built here."""
    packages.need("docker")
    private_engine.refresh_build_settings()
    config = {**cluster.kind_config(node, ["control-plane"]), "containerdConfigPatches": [CONTAINERD]}
    (programs / "kind.json").write_text(json.dumps(config))
    build = f"--network host --build-arg BASE_IMAGE={rootfs.ensure(engine)}"
    scripts = {
        "kind": f'[ "$1 $2" != "create cluster" ] || set -- "$@" --config {programs}/kind.json\n'
        f'exec {binaries.ensure("kind")}/kind "$@"',
        "docker": f'[ "$1" != build ] || set -- build {build} "${{@:2}}"\nexec {shutil.which("docker")} "$@"',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)


@contextmanager
def _images_as_before(engine: Engine) -> Iterator[None]:
    """Take away the names that images get while the block lasts, and give those back that they had before."""
    before = _named_images(engine)
    try:
        yield
    finally:
        for name in _named_images(engine).keys() - before.keys():
            engine.docker("image", "rm", name)
        for name, image in before.items():
            engine.docker("tag", image, name)


def _named_images(engine: Engine) -> dict[str, str]:
    """Return the image behind each name under which a newcomer may build one."""
    listing = engine.docker("image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
    images = dict(line.split() for line in listing.splitlines())
    return {name: image for name, image in images.items() if re.search(r"(^|/)tftraining-(operator|trainer):", name)}
