"""What a bare Debian takes over from the machine, and when there is none."""

import os
import sys
from pathlib import Path

import pytest

from testbed import private_engine
from testbed.shell import Impossible, use
from tests.bare import cli, machine, settings
from tests.support.repository import REPOSITORY

DUMP = """APT "";
APT::Architecture "amd64";
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://10.0.0.1:3142";
Acquire::https::CaInfo "/etc/ssl/certs/own.pem";
Acquire::http::Proxy-Auto-Detect "/usr/bin/auto-apt-proxy";
Acquire::Retries "3";
Acquire::Check-Date "false";
Acquire::Languages "none";
DPkg::Pre-Install-Pkgs:: "/usr/bin/apt-listchanges --apt";
"""


def test_of_apts_settings_only_those_are_taken_over_that_fetch_packages_and_name_no_program() -> None:
    assert settings.apt(DUMP).splitlines() == [
        'Acquire::http::Proxy "http://10.0.0.1:3142";',
        'Acquire::https::CaInfo "/etc/ssl/certs/own.pem";',
        'Acquire::Retries "3";',
        'Acquire::Check-Date "false";',
    ]


def collect(home: Path, **environment: str) -> settings.Settings:
    return settings.collect(environment, home, same_debian=True)


def test_what_is_about_packages_is_taken_over_and_nothing_else(tmp_path: Path) -> None:
    taken = {"PIP_INDEX_URL": "a", "UV_INDEX": "b", "GOPROXY": "c", "GOFLAGS": "d", "https_proxy": "e", "TERM": "f"}
    left = {"PYTHONPATH": "a", "VIRTUAL_ENV": "b", "GOROOT": "/x", "GOBIN": "/x", "KUBECONFIG": "c", "DOCKER_HOST": "d"}
    assert collect(tmp_path, **taken, **left).variables == taken


def test_what_variables_name_comes_along_and_what_is_missing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "go").mkdir()
    (tmp_path / "own.pem").touch()
    environment = {
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "GOPATH": str(tmp_path / "go"),
        "SSL_CERT_FILE": str(tmp_path / "own.pem"),
        "UV_FIND_LINKS": str(tmp_path / "nowhere"),
    }
    found = collect(tmp_path, **environment)
    assert (found.read, found.written) == ((tmp_path / "wheels",), (tmp_path / "go",))
    assert tmp_path / "own.pem" in found.copied
    assert "UV_FIND_LINKS" not in found.variables


def test_personal_settings_come_along(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").touch()
    assert tmp_path / ".config/pip/pip.conf" in collect(tmp_path).copied


def test_package_sources_are_taken_from_the_same_debian_only(tmp_path: Path) -> None:
    other = settings.collect({}, tmp_path, same_debian=False)
    assert not [path for path in other.copied if path.is_relative_to("/etc/apt")]
    assert settings.is_suite({"ID": "debian", "VERSION_CODENAME": "bookworm"}, "bookworm")
    assert not settings.is_suite({"ID": "debian", "VERSION_CODENAME": "trixie"}, "bookworm")
    assert not settings.is_suite({"ID": "ubuntu", "VERSION_CODENAME": "bookworm"}, "bookworm")


def test_only_a_clean_checkout_is_copied(tmp_path: Path) -> None:
    here = str(REPOSITORY)
    names = [".git", ".venv", "build", "tests", "__pycache__", "x.egg-info", ".ruff_cache", "Makefile"]
    assert set(names) - machine.ignored(here, names) == {"tests", "Makefile"}
    assert machine.ignored(f"{here}/operator/tftraining_operator", ["build", "__pycache__"]) == {"__pycache__"}


def test_a_go_whose_parts_lie_elsewhere_comes_along_whole(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "lib" / "go", tmp_path / "share" / "go" / "src"
    (home / "bin").mkdir(parents=True)
    elsewhere.mkdir(parents=True)
    (home / "src").symlink_to("../../share/go/src")
    (home / "VERSION").symlink_to("../../share/go/VERSION")
    assert machine.go_folders(home) == [home, elsewhere]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if root on a Linux machine with an empty cache."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("root")
def test_only_ci_gets_a_bare_machine() -> None:
    cli.check({"CI": "true"})
    for environment in ({}, {"CI": ""}, {"CI": "false"}):
        with pytest.raises(Impossible, match="only CI=true"):
            cli.check(environment)


@pytest.mark.usefixtures("root")
def test_only_root_on_linux_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Impossible, match="root on Linux"):
        cli.check({"CI": "true"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Impossible, match="root on Linux"):
        cli.check({"CI": "true"})


@pytest.mark.usefixtures("root")
def test_two_docker_engines_never_work_on_the_same_data() -> None:
    with use(private_engine.DATA), pytest.raises(Impossible, match="make cluster-down"):
        cli.check({"CI": "true"})
    cli.check({"CI": "true"})


def test_elsewhere_the_command_runs_on_the_machine_as_it_is_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert cli.main(["sh", "-c", "echo CI=$CI; exit 3"]) == 3
    out, err = capfd.readouterr()
    assert out == "CI=true\n"
    assert err == "[lab] running on this machine, not in a bare Debian: only CI=true gets one\n"
    assert cli.main(["no-such-command"]) == 127
    assert "no-such-command" in capfd.readouterr().err.splitlines()[-1]
