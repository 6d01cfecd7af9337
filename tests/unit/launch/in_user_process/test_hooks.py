"""The hooks in every Python process of the program are cheap; the rest loads with TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import hooks
from tftraining.launch.process import progress_reader

LIST = "import sys; print(*sorted(sys.modules))"
OURS = {
    f"_tftraining{name}" for name in ("", ".hooks", ".legacy_keras", ".import_fallback", ".leftovers", ".stack_dump")
}


def modules(environment: dict[str, str], text: str = LIST) -> set[str]:
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.fixture
def hooked(tmp_path: Path) -> dict[str, str]:
    os.close(progress_reader.create(tmp_path / "page"))
    (tmp_path / "stand-ins").mkdir()
    (tmp_path / "stand-ins/tensorflow.py").write_text("")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TF_", "COV"))}
    path = hooks.python_path(str(tmp_path / "stand-ins"))
    return {**bare, "PYTHONPATH": path, hooks.PROGRESS: str(tmp_path / "page"), "TF_CONFIG": "{}"}


def bare(hooked: dict[str, str]) -> dict[str, str]:
    return {**hooked, "PYTHONPATH": hooked["PYTHONPATH"].rpartition(os.pathsep)[2]}


def test_a_python_process_without_tensorflow_loads_only_cheap_hooks(hooked: dict[str, str]) -> None:
    more = modules(hooked) - modules(bare(hooked))
    assert more - {"sitecustomize"} <= OURS | {"atexit", "faulthandler"}  # both are built in
    assert "_tftraining.hooks" in more


def test_only_one_process_handles_the_stack_dump_signal(hooked: dict[str, str]) -> None:
    first = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {LIST!r}], text=True))"
    assert "faulthandler" in modules(hooked)
    assert "faulthandler" not in modules(hooked, first)


def test_the_training_hooks_load_with_tensorflow(hooked: dict[str, str]) -> None:
    more = modules(hooked, f"import tensorflow; {LIST}")
    assert {"_tftraining.keras_hook", "_tftraining.leader_hook", "_tftraining.gpu_hook"} <= more


OWN = """
import os, sys
os.environ["RUN_ID"] = str(os.getpid())  # another one in each start
from _tftraining import keras_hook
keras_hook.install = lambda tracker, told, environment, _: print("RUN_ID" in environment, "TF_CONFIG" in environment)
import tensorflow
"""


def test_the_fingerprint_uses_the_environment_at_the_start(hooked: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", OWN], env=hooked, capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_a_process_that_outlives_its_round_is_not_disturbed(hooked: dict[str, str]) -> None:
    gone = {**hooked, hooks.PROGRESS: hooked[hooks.PROGRESS] + "-gone"}
    assert modules(gone) >= {"_tftraining.hooks"}


@pytest.mark.parametrize(("users", "path"), [("", hooks.SITECUSTOMIZE), ("/a:/b", f"{hooks.SITECUSTOMIZE}:/a:/b")])
def test_the_users_pythonpath_stays(users: str, path: str) -> None:
    assert hooks.python_path(users) == path
