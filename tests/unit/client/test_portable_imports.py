"""All commands but `run`, and the Python client, import no module that only Linux has."""

import subprocess
import sys

import pytest

BLOCKED = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "curses", "readline", "syslog", "spwd", "crypt")
PROGRAM = f"""
import asyncio, ssl, subprocess, sys  # Python's own, which import what the platform has
for name in {BLOCKED}:
    sys.modules[name] = None
import signal, os
for module, names in ((signal, ("SIGHUP", "SIGKILL")), (os, ("fork", "getuid", "setsid", "killpg", "pidfd_open"))):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
MODULES = """
import importlib, pkgutil
import tftraining_client, tftraining_client.cluster, tftraining_client.code, tftraining_client.commands
for package in (tftraining_client.cluster, tftraining_client.code, tftraining_client.commands):
    for each in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(each.name)
assert tftraining_client.Client and tftraining_client.AsyncClient and tftraining_client.from_function
assert not [name for name in sys.modules if name.startswith("tftraining_client.local.run")]
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM + text], capture_output=True, text=True, check=False)


def test_the_modules_can_be_imported() -> None:
    done = run(MODULES)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["", "list", "status", "logs", "wait", "scale", "delete", "doctor", "plot"])
def test_the_help_is_there(command: str) -> None:
    words = [command, "--help"] if command else ["--help"]
    done = run(f"from tftraining_client.__main__ import main\nsys.exit(main({words}))")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: tftj {command}")


def test_a_blocked_module_cannot_be_imported() -> None:
    assert "fcntl" in run("import fcntl").stderr


def test_a_command_does_without_the_packages_that_only_cost_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], env={"KUBECONFIG": "/none"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scale", "x", "--replicas", "a"], "Invalid value for '--replicas': Input should be a valid integer"),
        (["scale", "x", "--replicas", "3"], "no kubeconfig"),
        (["logs", "x", "--index", "-1"], "Invalid value for '--index': Input should be greater than or equal to 0"),
        (["list", "--output", "xml"], "'xml' is not one of 'json', 'yaml', 'name', 'wide'"),
        (["list", "--output", "json"], "no kubeconfig"),
        (["delete", "x", "y"], "no kubeconfig"),
    ],
)
def test_without_them_arguments_are_checked_as_before(words: list[str], message: str) -> None:
    program = (
        f"import sys\nfrom tftraining_client.__main__ import main\nsys.argv = {['tftj', *words]}\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"KUBECONFIG": "/none"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


COMMAND = """
import sys
from tftraining_client.__main__ import main
sys.argv = ["tftj", "list"]
print(main())
imported = [name for name in ("requests", "urllib3", "websocket", "oauthlib") if name in sys.modules]
imported += [] if type(sys.modules["typer._adapters"]).__name__ == "_Adapters" else ["typer._adapters"]
sys.exit(f"imported: {imported}" if imported else 0)
"""
