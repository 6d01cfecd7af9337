"""The images of operator and trainer hold no setuid program, and need no program but Python, not even a shell."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import loading, release
from testbed.cluster import Cluster
from testbed.docker import Engine
from tests.support.cluster.training import Training, condition, example

START_SECONDS, TRAIN_SECONDS, CLEAN_SECONDS = 180, 300, 120
PRIVILEGED = """
import os, stat
for folder, folders, names in os.walk("/"):
    if folder == "/":
        folders[:] = set(folders) - {"proc", "sys", "dev"}
    for path in (os.path.join(folder, name) for name in names):
        if stat.S_ISREG(os.lstat(path).st_mode) and os.lstat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
            print(path)
"""
# Shells cannot run in the last step, therefore the list form of RUN.
DOCKERFILE = """FROM {image}
USER root
RUN ["python", "-c", "import os; [os.unlink(os.path.join(place, name)) for place in ('/usr/bin', '/usr/sbin') \
for name in os.listdir(place) if not name.startswith('python')]; assert not os.path.exists('/bin/sh')"]
USER {user}
"""


@pytest.fixture
def engine(cluster: Cluster) -> Engine:
    """The engine that built the images."""
    if cluster.nodes is None:
        pytest.skip("only the test cluster's own images are at hand")
    return cluster.nodes.engine


@pytest.fixture
def images_without_programs(cluster: Cluster, engine: Engine) -> Iterator[list[str]]:
    """The images of operator and trainer with Python as their only program, on all nodes."""
    assert cluster.nodes is not None
    made = []
    for image in cluster.images:
        user = engine.docker("image", "inspect", "--format", "{{.Config.User}}", image).strip()
        made.append(image.replace(":", "-without-programs:"))
        dockerfile = DOCKERFILE.format(image=image, user=user)
        engine.docker("build", "--quiet", "--tag", made[-1], "-", stdin=dockerfile)
    loading.load(engine, cluster.nodes.all(), made)
    yield made
    engine.docker("image", "rm", *made)


def test_no_program_of_the_images_changes_its_user(cluster: Cluster, engine: Engine) -> None:
    for image in cluster.images:
        container = ("--rm", "--network=none", "--user=root", "--entrypoint=python")
        assert engine.docker("run", *container, image, "-c", PRIVILEGED).split() == [], image


@pytest.mark.slow_fault
def test_operator_and_training_need_no_program_but_python(
    cluster: Cluster, operator: str, namespace: str, directory: Path, images_without_programs: list[str]
) -> None:
    operator_image, trainer_image = images_without_programs
    try:
        release.install(cluster.kube, operator_image, *release.OFF_THE_WORKERS)
        manifest = example(trainer_image, "--epochs=30")
        manifest["metadata"]["namespace"] = namespace
        cluster.kube.apply(manifest)
        training = Training(cluster.kube, namespace, "digits")
        training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)
        training.kill_program("worker-1")
        status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
        training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", CLEAN_SECONDS)
        pods = cluster.kube.get("pods", "--namespace", namespace, "--selector", training.selector)["items"]
        specs = [pod["spec"] for pod in pods]
        used = {each["image"] for spec in specs for each in spec.get("initContainers", []) + spec["containers"]}
        assert used == {operator_image, trainer_image}
        assert status["restarts"]["counted"] == 1, status
    finally:
        release.install(cluster.kube, cluster.images[0], *release.OFF_THE_WORKERS)
