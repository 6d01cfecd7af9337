"""docs/quickstart.md as it is written, but for the laptop, with kind, Docker, kubectl, Helm and pip.

Each command is read out of its page. tests/support/quick_start.py says what is replaced where no registry has it.
Left out are `make cluster-up`, which a person runs instead, and `tftj submit`, whose files are the reader's.
"""

import dataclasses
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.release_files import Release, make_chart
from testbed.shell import Impossible, lock
from tests.support.page_commands import Command, commands
from tests.support.quick_start import Newcomer, newcomer
from tests.support.registry import served
from tests.support.repository import REPOSITORY

READY = "kubectl rollout status deployment --namespace tftraining-system --timeout 120s"
TRAIN_SECONDS = 300


@pytest.fixture
def at_the_shell(tmp_path: Path) -> Iterator[Newcomer]:
    """A newcomer without a cluster."""
    with lock("quickstarts"), ExitStack() as stack:
        try:
            found = stack.enter_context(newcomer(tmp_path / "newcomer"))
        except Impossible as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no cluster: {error}")
        yield found


def of_section(heading: str) -> list[Command]:
    """The commands of a section of the page in their order, those in blocks first."""
    return list(commands(REPOSITORY / "docs" / "quickstart.md", heading))


def test_on_kind(at_the_shell: Newcomer) -> None:
    here = at_the_shell
    create, build, load, install, apply, watch, delete, describe, instead, check, remove = of_section("On kind")
    assert instead.words == ("make", "cluster-up")
    here.run(create)
    here.finish_cluster()
    here.run(build)
    here.run(load)
    assert "STATUS: deployed" in here.run(install)
    here.run(apply)
    with here.watching(watch) as seen:
        here.training.wait_for_line("worker-0", "^epoch 3/30", TRAIN_SECONDS)
        assert 'pod "first-job-worker-1" deleted' in here.run(delete)
        here.training.wait_for("resumed", lambda now: "resumedFromEpoch" in now.get("lastRestart", {}), TRAIN_SECONDS)
        told = here.run(describe)
        here.training.wait_for_phase("Succeeded", TRAIN_SECONDS)
        assert_told(seen, "first-job +Succeeded")
    assert re.search("Resumed From Epoch: +[1-9]", told), told
    assert "Phase:          Succeeded" in here.run(check)
    here.run(remove)
    assert here.nodes.all(state="") == []


def test_on_a_cluster(at_the_shell: Newcomer) -> None:
    here = at_the_shell
    from_release, build, push, install, apply, watch, doctor, pip, *_ = of_section("On your own cluster")
    here.run("kind create cluster")
    here.finish_cluster()
    here.run(f"{sys.executable} -m venv ~/venv")
    here.run(pip)
    with served(here.nodes.gateway()) as port:
        registry = f"localhost:{port}"
        here.serve_registry(port)
        here.run(with_registry(build, registry))
        (digest,) = re.findall(r"digest: (sha256:\w+)", here.run(with_registry(push, registry)))

        make_chart(here.checkout, here.checkout, Release(image=f"{registry}/tftraining-operator@{digest}"), "")
        here.run(from_release)
        here.run(READY)
        assert here.run(doctor)
        here.run("kubectl delete --filename install.yaml")

        here.run(with_registry(install, registry))
        here.run(apply)
        with here.watching(watch) as seen:
            here.training.wait_for_phase("Succeeded", 2 * TRAIN_SECONDS)
            assert_told(seen, "first-job +Succeeded")


def with_registry(command: Command, registry: str) -> Command:
    """The command with the address of the reader's registry."""
    words = tuple(word.replace("REGISTRY/", f"{registry}/") for word in command.words)
    assert words != command.words
    return dataclasses.replace(command, words=words)


def assert_told(output: Path, pattern: str) -> None:
    """A line of the output of a command that goes on begins so, if only in a moment."""
    deadline = time.monotonic() + 10
    while not re.search(f"^{pattern}", output.read_text(), re.MULTILINE):
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.2)
