"""Which cluster is meant: kubeconfig files, contexts, the service account of a pod, exec plugins."""

import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from tftraining_api.kube.api import ApiError
from tftraining_client import UserError
from tftraining_client.cluster import connection, credentials
from tftraining_client.cluster.connection import Connection, connect
from tftraining_client.cluster.transport import IDLE_SECONDS, Transport, keepalive_socket


def kubeconfig(path: Path, name: str, user: dict[str, Any], namespace: str = "", current: str | None = None) -> Path:
    """A kubeconfig with one context."""
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    document = {
        "current-context": name if current is None else current,
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}:80"}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": context}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def opened(context: str | None = None, kubeconfig: Path | None = None) -> Connection:
    found = await connect(context, str(kubeconfig) if kubeconfig else None)
    await found.api.close()
    return found


async def token(found: Connection) -> str | None:
    configuration = found.api._client.configuration
    value: str | None = (await configuration.auth_settings()).get("BearerToken", {}).get("value")
    return value


async def test_the_first_of_several_files_names_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [kubeconfig(tmp_path / name, name, {"token": name}, f"ns-{name}") for name in ("one", "two")]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, [*files, tmp_path / "missing"])))
    first, second = await opened(), await opened("two")
    assert (first.context, first.server, first.namespace) == ("one", "http://one:80", "ns-one")
    assert (second.context, second.server, second.namespace) == ("two", "http://two:80", "ns-two")
    assert (await token(first), await token(second)) == ("Bearer one", "Bearer two")


async def test_a_context_without_a_namespace_means_default(tmp_path: Path) -> None:
    found = await opened(kubeconfig=kubeconfig(tmp_path / "config", "one", {"token": "t"}))
    assert found.namespace == "default"


async def test_a_kubeconfig_without_a_current_context_is_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "one", {"token": "t"}, current="")
    with pytest.raises(UserError, match="no current context; choose one with --context: it has one"):
        await opened(kubeconfig=path)


async def test_in_a_pod_without_a_kubeconfig_the_service_account_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("token", "secret"), ("ca.crt", "certificate"), ("namespace", "team")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(connection, "SERVICE_ACCOUNT", tmp_path)
    for each in ("ApiClient", "Transport"):
        monkeypatch.setattr(connection, each, lambda configuration: configuration)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    found = await connect()
    assert (found.context, found.server, found.namespace) == ("in-cluster", "https://10.0.0.1:443", "team")
    with pytest.raises(UserError, match=r"no kubeconfig: .*missing does not exist"):
        await connect("prod")


def plugin(directory: Path, seconds: int) -> dict[str, Any]:
    """A plugin whose tokens are numbered and live so long."""
    program = directory / "plugin.py"
    program.write_text(
        "import datetime, json, pathlib\n"
        f"runs = pathlib.Path({str(directory / 'runs')!r})\n"
        "number = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text(str(number))\n"
        f"expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds={seconds})\n"
        "status = {'token': f'token-{number}', 'expirationTimestamp': expiry.strftime('%Y-%m-%dT%H:%M:%SZ')}\n"
        "version = 'client.authentication.k8s.io/v1'\n"
        "print(json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status}))\n"
    )
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(program)]}}


async def test_a_plugin_runs_again_only_for_a_token_that_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "config", "one", plugin(tmp_path, 600))
    found = await connect(None, str(path))
    assert [await token(found), await token(found)] == ["Bearer token-1", "Bearer token-1"]
    later = time.time() + 600 - credentials.EARLY_SECONDS + 1
    monkeypatch.setattr(credentials, "now", lambda: later)
    assert await token(found) == "Bearer token-2"
    await found.api.close()


async def test_a_plugin_that_fails_once_keeps_the_token_while_it_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "config", "one", plugin(tmp_path, 600))
    found = await connect(None, str(path))
    program = (tmp_path / "plugin.py").read_text()
    (tmp_path / "plugin.py").write_text("import sys; sys.exit('no network')")
    began, passed = time.time(), 0.0
    monkeypatch.setattr(credentials, "now", lambda: began + passed)
    passed = 600 - credentials.EARLY_SECONDS + 1
    assert await token(found) == "Bearer token-1"
    passed = 601
    with pytest.raises(ApiError, match=r"the exec plugin of the kubeconfig failed: .*no network"):
        await token(found)
    (tmp_path / "plugin.py").write_text(program)
    assert await token(found) == "Bearer token-2"
    await found.api.close()


async def test_each_connection_has_keepalive(tmp_path: Path) -> None:
    found = await connect(None, str(kubeconfig(tmp_path / "config", "one", {"token": "t"})))
    assert isinstance(found.api._client.rest_client, Transport)
    await found.api.close()
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE_SECONDS


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("first\n")
    found = await connect(None, str(kubeconfig(tmp_path / "config", "one", {"tokenFile": "token"})))
    (tmp_path / "token").write_text("second\n")
    assert await token(found) == "Bearer first"
    later = time.time() + credentials.FILE_SECONDS + 1
    monkeypatch.setattr(credentials, "now", lambda: later)
    assert await token(found) == "Bearer second"
    (tmp_path / "token").unlink()
    monkeypatch.setattr(credentials, "now", lambda: later + credentials.FILE_SECONDS)
    assert await token(found) == "Bearer second"
    await found.api.close()
    with pytest.raises(UserError, match=r"cannot be used: .*token"):
        await opened(kubeconfig=tmp_path / "config")


async def test_a_plugin_that_fails_or_is_missing_is_told(tmp_path: Path) -> None:
    user = plugin(tmp_path, 60)
    (tmp_path / "plugin.py").write_text("import sys; sys.exit('log in first')")
    path = kubeconfig(tmp_path / "config", "one", user)
    with pytest.raises(UserError, match=r"the exec plugin of context one failed: .*log in first"):
        await opened(kubeconfig=path)
    user["exec"]["command"] = "no-such-plugin"
    with pytest.raises(UserError, match=r"the exec plugin of context one failed: .*no-such-plugin"):
        await opened(kubeconfig=kubeconfig(tmp_path / "config", "one", user))
