"""docs/quickstart-kind.md as it is written, with kind, Docker, kubectl and Helm.

Each command is read out of the page. tests/support/quick_start.py says what is replaced where no registry has it.
Left out is `make cluster-up`, which a person runs instead.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.shell import Impossible, lock
from tests.support.page_commands import Command, commands
from tests.support.quick_start import Newcomer, newcomer
from tests.support.repository import REPOSITORY

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


def of_page(name: str) -> list[Command]:
    """The commands of the page in their order, those in blocks first."""
    return list(commands(REPOSITORY / "docs" / name))


def test_on_kind(at_the_shell: Newcomer) -> None:
    here = at_the_shell
    create, build, load, install, apply, watch, delete, describe, instead, check, remove = of_page("quickstart-kind.md")
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


def assert_told(output: Path, pattern: str) -> None:
    """A line of the output of a command that goes on begins so, if only in a moment."""
    deadline = time.monotonic() + 10
    while not re.search(f"^{pattern}", output.read_text(), re.MULTILINE):
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.2)
