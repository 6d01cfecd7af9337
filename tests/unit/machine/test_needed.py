"""A test whose programs cannot be had is skipped, and fails where CI runs it."""

import os
from pathlib import Path

import pytest

from testbed.shell import Impossible, LabError
from tests.support.control_plane.server_process import NotServing, ServerProcess
from tests.support.needed import need_or_skip, skip_unless_in_ci


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


def test_a_server_that_was_had_and_does_not_get_ready_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    server = ServerProcess(Path("sleep"), ["60"], tmp_path / "log")
    with pytest.raises(NotServing, match="sleep was not ready within 0 s") as caught:
        server.wait_until(lambda: False, 0.0)
    server.kill()
    with pytest.raises(NotServing):
        skip_unless_in_ci(caught.value, "no server: ")
    with pytest.raises(pytest.skip.Exception, match="no server: it cannot be built"):
        skip_unless_in_ci(LabError("it cannot be built"), "no server: ")
