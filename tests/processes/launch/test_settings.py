"""A launcher with invalid settings reports them in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang
from tftraining_operator.model.launcher_report import split_result


def launch(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tftraining.launch", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"secretFile": "/nowhere/key"}, "secretFile /nowhere/key: No such file or directory"),
        ({"rendezvous": "nowhere"}, "rendezvous 'nowhere' is not host:port"),
        ({"statusPort": 0}, "0 is not a port"),
        ({"memberTimeoutSeconds": 0}, "memberTimeoutSeconds must be at least 0.5 seconds"),
        ({"memoryBackup": {"mode": "On"}}, "memoryBackup.mode 'On' is neither Auto nor Off"),
        (
            {"memoryBackup": {"mode": "Auto", "maxOverheadPercent": 0}},
            "memoryBackup.maxOverheadPercent must be above 0",
        ),
        ({"job": None}, "TFTRAINING_LAUNCHER: a field is of the wrong type"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        environment = gang.environment("worker-0")
        settings = {**json.loads(environment["TFTRAINING_LAUNCHER"]), **change}
        code, error = launch({**environment, "TFTRAINING_LAUNCHER": json.dumps(settings)}, "--", "true")
        assert code == 2
        assert told in error
        assert len(error.splitlines()) == 1


def test_a_missing_tmpdir_is_not_used(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        environment = {**gang.environment("worker-0"), "TMPDIR": str(tmp_path / "nowhere")}
        assert launch(environment, "--", "true")[0] == 0


BROKEN = """
import sys
from tftraining.launch import __main__ as entry
entry.Launcher = lambda *_: 1 / 0
sys.argv[1:] = ["--", "true"]
entry.run()
"""


def test_a_crash_of_the_launcher_leaves_a_termination_message(tmp_path: Path) -> None:
    message = tmp_path / "message"
    with LocalGang(tmp_path, {"worker": 1}, terminationMessage=str(message)) as gang:
        environment = gang.environment("worker-0")
        command = [sys.executable, "-c", BROKEN]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and "Traceback" in done.stderr
    verdict, rest = split_result(message.read_text())
    assert verdict is not None and rest == ""
    assert (verdict.verdict, verdict.reason) == ("", "LauncherFailed")
    assert verdict.message == "internal error of the launcher: ZeroDivisionError: division by zero"


def test_without_a_command_the_usage_is_printed(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        assert launch(gang.environment("worker-0"), "python", "train.py")[0] == 2


def test_without_settings_the_error_names_who_sets_them(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        environment = gang.environment("worker-0")
        del environment["TFTRAINING_LAUNCHER"]
        code, error = launch(environment, "--", "true")
        assert (code, len(error.splitlines())) == (2, 1)
        assert "TFTRAINING_LAUNCHER is not set" in error
