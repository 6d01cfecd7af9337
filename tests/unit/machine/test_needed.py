"""A test whose programs cannot be had is skipped, and fails where CI runs it."""

import os

import pytest

from testbed.shell import Impossible
from tests.support.needed import need_or_skip


@pytest.fixture
def without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `ip` were missing, for somebody who may not install it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("without_root")
def test_what_is_missing_skips_a_test_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="missing programs: iproute2 iptables: install them"):
        need_or_skip("ip", "iptables")


@pytest.mark.usefixtures("without_root")
def test_under_ci_what_is_missing_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Impossible, match="iproute2"):
        need_or_skip("ip")
