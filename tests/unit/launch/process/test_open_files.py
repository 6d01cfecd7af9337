"""The limit of open files of the launcher, with the real limit of this process."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from tftraining.launch.process import open_files

SOFT = 512  # of these 256 are for others than members


@pytest.fixture(autouse=True)
def hard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The soft limit is a low one during the test; this is the hard one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(open_files, "_original_limits", None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_for_the_launcher_and_not_for_the_program(hard: int) -> None:
    open_files.raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    open_files.restore_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (SOFT, hard)


def test_a_limit_that_was_not_raised_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files.restore_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize(("members", "short"), [(256, False), (257, True)])
def test_a_limit_too_low_for_the_gang_is_described(members: int, short: bool) -> None:
    words = (
        f"the limit of open files is {SOFT}, and the rendezvous of 257 members needs 513: not all members can connect"
    )
    assert open_files.describe_shortage(members).startswith(words) == short
    assert bool(open_files.describe_shortage(members)) == short
