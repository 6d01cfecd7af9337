"""All commands but `run`, and the Python client, import no module that only Linux has."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import make_certificates
from tests.support.client.tfjobs import FILES
from tests.support.client.verbs import CLUSTER_VERBS, WITHOUT_CLUSTER
from tests.support.repository import REPOSITORY
from tests.unit.client.test_cluster_errors import KUBECONFIG
from tftraining.launch.history import FILE, Series

BLOCKED = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "curses", "readline", "syslog", "spwd", "crypt")
PROGRAM = f"""
import asyncio, ssl, subprocess, sys  # Python's own, which import what the platform has
for name in {BLOCKED}:
    sys.modules[name] = None
import signal, os
functions = "fork", "getuid", "setsid", "killpg", "pidfd_open"
flags = "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY"
for module, names in ((signal, ("SIGHUP", "SIGKILL")), (os, (*functions, *flags))):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
MODULES = """
import importlib, pkgutil, tftraining_client
# `run` alone needs the modules of `local` that start processes.
skipped = ("tftraining_client.local", "tftraining_client.__main__")
found = [each.name for each in pkgutil.walk_packages(tftraining_client.__path__, "tftraining_client.")]
for name in found:
    if not name.startswith(skipped):
        importlib.import_module(name)
assert {"tftraining_client.commands.dashboard.server", "tftraining_client.tfjob.replicas"} <= set(sys.modules)
assert tftraining_client.Client and tftraining_client.AsyncClient and tftraining_client.from_function
assert not [name for name in sys.modules if name.startswith("tftraining_client.local.run")]
"""
HELP = """
from tftraining_client.__main__ import main
from tftraining_client.commands.app import app
for verb in (each.name for each in app.registered_commands):
    assert main([verb, "--help"]) == 0
sys.exit(main(["--help"]))
"""
# Without the plot in the terminal: plotext imports what its platform has.
WORK = """
from tftraining_client.__main__ import main
commands = ["list"], ["plot", "./job", "-o", "html"], ["convert", TFJOB], ["completion", "powershell"]
codes = [main(words) for words in commands]
sys.exit(0 if codes == [3, 0, 0, 0] else str(codes))
"""


def run(text: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + text], capture_output=True, text=True, check=False, **settings
    )


def test_the_modules_can_be_imported() -> None:
    done = run(MODULES)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_help_of_each_command_is_there() -> None:
    done = run(HELP)
    assert (done.returncode, done.stderr) == (0, "")
    usages = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("Usage: ")]
    assert set(usages) == {*CLUSTER_VERBS, *WITHOUT_CLUSTER, "[OPTIONS]"}


def test_commands_work_also_for_a_user_without_a_home_directory(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    series = Series()
    series.record(1, 1, 1.0, {"loss": 1.0})
    (tmp_path / "job" / FILE).parent.mkdir(parents=True)
    (tmp_path / "job" / FILE).write_text(json.dumps(series.cut().to_json()))
    done = run(
        f"TFJOB = {str(FILES[0])!r}\n{WORK}",
        cwd=tmp_path,
        env={"KUBECONFIG": str(tmp_path / "config")},
    )
    assert done.returncode == 0, done.stderr
    assert "cannot reach the API server" in done.stderr and "Register-ArgumentCompleter" in done.stdout


# What the extra `client` does not bring.
OF_EXTRAS = """
import sys
for name in ("cel_expr_python", "jsonschema", "plotext", "matplotlib"):
    sys.modules[name] = None
"""


def without_extras(text: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program with only the packages of the extra `client`."""
    return subprocess.run(
        [sys.executable, "-c", OF_EXTRAS + text, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_each_module_can_be_imported_with_the_extra_client_alone(tmp_path: Path) -> None:
    done = without_extras(MODULES, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_local_validation_and_the_plots_need_another_extra(tmp_path: Path) -> None:
    series = Series()
    series.record(1, 1, 1.0, {"loss": 1.0})
    (tmp_path / "job" / FILE).parent.mkdir(parents=True)
    (tmp_path / "job" / FILE).write_text(json.dumps(series.cut().to_json()))
    example = str(REPOSITORY / "examples" / "multi-worker-digits.yaml")
    program = "from tftraining_client.__main__ import main; sys.exit(main(sys.argv[1:]))"
    missing = "a manifest cannot be validated here without jsonschema: pip install jsonschema cel-expr-python"

    converted = without_extras(program, tmp_path, "convert", str(FILES[0]))
    assert converted.returncode == 0 and "kind: TFTrainingJob" in converted.stdout
    assert missing in converted.stderr and "the API server validates the converted job" in converted.stderr

    said = {("run", example): missing, ("plot", "./job"): "needs plotext", ("plot", "./job", "-o", "png"): "matplotlib"}
    for words, text in said.items():
        done = without_extras(program, tmp_path, *words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1) and text in done.stderr
    assert without_extras(program, tmp_path, "plot", "./job", "-o", "html").returncode == 0


def test_each_package_of_an_extra_is_needed_by_it_alone() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name: {re.split(r"[>=<]", each)[0] for each in extras[name]} for name in ("client", "local", "plot")}
    assert {"cel-expr-python", "jsonschema"} == named["local"] and {"matplotlib", "plotext"} == named["plot"]
    assert not named["client"] & (named["local"] | named["plot"])


def test_a_blocked_module_cannot_be_imported() -> None:
    assert "fcntl" in run("import fcntl").stderr


def test_a_command_does_without_the_packages_that_only_cost_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], env={"KUBECONFIG": "/none"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


SAID = {
    "scale x --replicas a": "Invalid value for '--replicas': Input should be a valid integer",
    "scale x --replicas 3": "no kubeconfig",
    "logs x --index -1": "Invalid value for '--index': Input should be greater than or equal to 0",
    "list --output xml": "'xml' is not one of 'json', 'yaml', 'name', 'wide'",
    "list --output json": "no kubeconfig",
    "delete x y": "no kubeconfig",
}
# Each command in a process of its own, as pydantic is imported once; the rest is imported before.
EACH = """
import json, os, sys
from tftraining_client import __main__
__main__._start_fast(["list"])
import tftraining_client.commands.app, tftraining_client.cluster.async_client
for words in json.loads(sys.argv[1]):
    if not (child := os.fork()):
        sys.argv = ["tftj", *words.split()]
        sys.exit(__main__.main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_without_them_arguments_are_checked_as_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(list(SAID))],
        env={"KUBECONFIG": "/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2\n" * len(SAID), done.stderr
    lines = done.stderr.splitlines()
    assert [words for words, line in zip(SAID, lines, strict=True) if SAID[words] not in line] == []


COMMAND = """
import gc, sys
from tftraining_client.__main__ import main
sys.argv = ["tftj", "list"]
print(main())
unwanted = "requests", "urllib3", "websocket", "oauthlib", "pydantic", "rich", "pathspec"
imported = [name for name in unwanted if name in sys.modules]
assert gc.isenabled() and gc.get_freeze_count() > 10_000, "garbage is collected, but not the modules"
imported += [] if type(sys.modules["typer._adapters"]).__name__ == "_Adapters" else ["typer._adapters"]
sys.exit(f"imported: {imported}" if imported else 0)
"""


LATE = """
import asyncio, ssl, sys
from tftraining_client.commands.fast_start import import_aiohttp
import_aiohttp()
import aiohttp
from aiohttp import connector
for context in (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED):
    assert context.cert_store_stats()["x509_ca"] == 0, "read too early"

async def main() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    answer = lambda reader, writer: writer.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as session:
        try:
            await session.get(f"https://127.0.0.1:{port}/")
        except aiohttp.ClientConnectorCertificateError:
            print("refused")
        except aiohttp.ServerDisconnectedError:
            print("connected")
    server.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(("trusted", "answer"), [(True, "connected\n"), (False, "refused\n")])
def test_the_certificates_of_the_system_are_read_for_the_first_connection(
    tmp_path: Path, trusted: bool, answer: str
) -> None:
    for name, text in make_certificates("server", "authority").files.items():
        (tmp_path / name).write_bytes(text)
    done = subprocess.run(
        [sys.executable, "-c", LATE, "tls.crt", "tls.key"],
        env={**os.environ, "SSL_CERT_FILE": "ca.crt" if trusted else os.devnull, "SSL_CERT_DIR": "none"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, answer), done.stderr
