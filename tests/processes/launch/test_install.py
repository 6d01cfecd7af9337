"""The installed launcher runs with a bare Python, down to the oldest supported version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang
from tftraining.launch import install

INSTALLED = Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3.*")
OTHERS = sorted(path for path in INSTALLED if re.fullmatch(r"python3\.\d+", path.name))
OLD = [path for path in OTHERS if path.name == "python3.9"]
NEWER = [path for path in OTHERS if path.name in ("python3.10", "python3.12", "python3.13")]
TOO_OLD = [path for path in Path("~/.pyenv/versions").expanduser().glob("3.[678].*/bin/python3") if path.exists()]


@pytest.mark.parametrize(
    "python",
    [Path(sys.executable).resolve(), *OLD, *(pytest.param(path, marks=pytest.mark.slow_fault) for path in NEWER)],
    ids=lambda path: path.name,
)
def test_an_installed_launcher_needs_nothing_but_python(tmp_path: Path, python: Path) -> None:
    assert install.main([str(tmp_path / "launcher")]) == 0
    script = tmp_path / "script.py"
    script.write_text(
        "import tftraining\nfrom tftraining.paths import write_filepath\ntftraining.report(step=1)\n"
        "print('it works', tftraining.__file__, write_filepath('model'))\n"
    )
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        environment = {**gang.environment("worker-0"), "PATH": os.defpath}
        environment.pop("PYTHONPATH", None)
        command = [str(python), "-s", str(tmp_path / "launcher"), "--", str(python), "-S", str(script)]
        # -S leaves no site-packages to the script, nor the offer of the package: it is on the path.
        environment["PYTHONPATH"] = str(tmp_path / "launcher")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert f"it works {tmp_path}" in done.stdout and done.stdout.split()[-1] == "model"
        assert gang.message("worker-0")["verdict"] == "Succeeded"


@pytest.mark.skipif(not OLD, reason="there is no Python 3.9 on this machine")
def test_the_oldest_python_can_import_all_of_it(tmp_path: Path) -> None:
    install.install(tmp_path)
    package = tmp_path / install.PACKAGE.name / "launch"
    programs = ("__main__", "entry", "zygote")  # act when they are imported
    modules = [path.stem for path in package.glob("*.py") if path.stem not in programs]
    assert "launcher" in modules
    lines = [f"import {install.PACKAGE.name}.launch.{module}" for module in modules]
    done = subprocess.run(
        [OLD[0], "-W", "error", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not TOO_OLD, reason="there is no older Python on this machine")
def test_a_python_that_is_too_old_fails_the_job(tmp_path: Path) -> None:
    install.install(tmp_path / "launcher")
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        command = [str(TOO_OLD[0]), str(tmp_path / "launcher"), "--", "true"]
        done = subprocess.run(
            command, env=gang.environment("worker-0"), capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "mode: Recreate" in done.stderr
        assert gang.message("worker-0")["reason"] == "NoPython"


def test_an_unwritable_directory_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert install.main([str(tmp_path / "file" / "launcher")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
