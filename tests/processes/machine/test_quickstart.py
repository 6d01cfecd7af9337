"""docs/quickstart.md on a laptop as it is written, on a machine that has what the page asks for and nothing else."""

import os
import subprocess

import pytest

from testbed.shell import lock
from tests.bare import machine
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY

PAGE = REPOSITORY / "docs" / "quickstart.md"


@pytest.mark.slow_fault
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a bare machine")
@pytest.mark.skipif(machine.CHECKOUT == REPOSITORY, reason="this is a bare machine")
def test_the_commands_of_the_page_train_and_resume() -> None:
    demo, by_hand = [block.text for block in blocks(PAGE, "On a laptop") if block.language == ""]
    with lock("bare-machine"), machine.made() as bare:
        assert "worker-1 was killed (SIGKILL), resumed from " in said(bare, demo)
        assert "worker-1 was killed (SIGKILL), resumed from " in said(bare, by_hand)


def said(bare: machine.Bare, script: str) -> str:
    """What a script of the page prints; AssertionError if it fails."""
    words = bare.command("bash", "-e", "-c", script)
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, env=bare.environment, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
