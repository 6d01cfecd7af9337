"""What kubectl honours of a kubeconfig is honoured, and nothing else is guessed."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.certificates import Certificates, make_certificates
from tftraining_api.kube.api import unproxied
from tftraining_client import UserError
from tftraining_client.cluster import credentials
from tftraining_client.cluster.connection import Connection, connect
from tftraining_client.cluster.transport import load_certificate

VERSION = "client.authentication.k8s.io/v1"


def written(path: Path, user: Any = None, cluster: Any = None, context: Any = None, users: Any = None) -> Path:
    """A kubeconfig with the context `one`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}] if users is None else users,
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"} if context is None else context}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def opened(*paths: Path) -> Connection:
    found = await connect(None, os.pathsep.join(map(str, paths)))
    await found.api.close()
    return found


async def headers(*paths: Path) -> list[tuple[str, str]]:
    """The headers of a request that say who asks."""
    sent = (await (await opened(*paths)).api._headers({})).items()
    return [(name, value) for name, value in sent if name.lower().startswith(("impersonate", "authorization"))]


async def test_requests_are_in_the_name_of_whom_the_kubeconfig_says(tmp_path: Path) -> None:
    user = {"token": "t", "as": "ada", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x/Y": ["1", "2"]}}
    assert await headers(written(tmp_path / "config", user)) == [
        ("authorization", "Bearer t"),
        ("Impersonate-User", "ada"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-x%2FY", "1"),
        ("Impersonate-Extra-x%2FY", "2"),
    ]
    with pytest.raises(UserError, match="has as-groups, as-uid or as-user-extra without as"):
        await opened(written(tmp_path / "config", {"as-groups": ["a"]}))


async def test_an_empty_first_file_and_a_user_without_credentials_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert await headers(tmp_path / "empty", written(tmp_path / "a", {"token": "t"})) == [("authorization", "Bearer t")]
    others: tuple[dict[str, Any], ...] = ({"context": {"cluster": "c"}}, {"users": [{"name": "u"}]}, {"user": {}})
    for other in others:
        assert await headers(written(tmp_path / "b", **other)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"users": []}, "the kubeconfig has no user u, which context one names"),
        (
            {"context": {"cluster": "other", "user": "u"}},
            "has no cluster other, which context one names",
        ),
        ({"context": {"user": "u"}}, "the kubeconfig has no cluster for it, which context one names"),
        ({"cluster": {"server": ""}}, "the cluster of context one has no server"),
        ({"user": {"client-certificate-data": "YQ=="}}, "has a client certificate without its key"),
        ({"user": {"client-certificate-data": "?"}}, "cannot be used: .*base64"),
        ({"cluster": {"proxy-url": "socks5://p:1"}}, "a proxy of the kind socks5 is not supported"),
        ({"cluster": {"certificate-authority": "none.pem"}}, r"cannot be used: .*none\.pem"),
    ],
)
async def test_what_cannot_be_honoured_is_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as told:
        await opened(written(tmp_path / "config", **changes))
    assert "\n" not in str(told.value)


async def test_a_kubeconfig_that_is_not_yaml_is_not_quoted(tmp_path: Path) -> None:
    """The line with the error may have a token."""
    (tmp_path / "config").write_text("users:\n- user: {token: secret\nb: [")
    with pytest.raises(UserError, match="config cannot be used: line 3: not YAML: ") as told:
        await opened(tmp_path / "config")
    assert "secret" not in str(told.value)


async def test_a_proxy_of_the_environment_is_honoured_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "config", {}, {"server": "https://10.1.2.3:6443"})
    for name in ("HTTPS_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert (await opened(path)).api._transport.proxy == "http://proxy:3128"
    monkeypatch.setenv("no_proxy", "example.org,10.0.0.0/8")
    assert (await opened(path)).api._transport.proxy is None
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("https_proxy", "socks5://proxy:1080")
    with pytest.raises(UserError, match="a proxy of the kind socks5 is not supported"):
        await opened(path)


@pytest.mark.parametrize(
    ("server", "listed", "expected"),
    [
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "11.0.0.0/8, fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "10.0.0.0/8,nonsense", False),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
        ("https://host:6443", "10.0.0.0/8", False),
    ],
)
def test_networks_of_no_proxy(server: str, listed: str, expected: bool) -> None:
    assert unproxied(urlsplit(server), listed) is expected


async def test_a_path_of_a_plugin_is_relative_to_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = f'{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "status": {{"token": "t"}}}}'
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/plugin").write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    (tmp_path / "bin/plugin").chmod(0o700)
    for command in ("./plugin", "../bin/plugin"):
        path = written(tmp_path / "bin/config", {"exec": {"apiVersion": VERSION, "command": command}})
        assert await headers(path) == [("authorization", "Bearer t")]
    path = written(tmp_path / "bin/config", {"exec": {"apiVersion": VERSION, "command": "no-such", "installHint": "x"}})
    with pytest.raises(UserError, match=r"the exec plugin of context one failed: no-such: .*; x$"):
        await opened(path)


async def test_the_token_of_an_auth_provider_is_used(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3600}).encode()).decode().rstrip("=")
    provider = {"name": "oidc", "config": {"id-token": f"head.{claims}.sign"}}
    path = written(tmp_path / "config", {"auth-provider": provider, "as": "ada"}, {"server": "https://h:1"})
    assert await headers(path) == [("authorization", f"Bearer head.{claims}.sign"), ("Impersonate-User", "ada")]


ASKING = """\
import json, os, sys
sys.stderr.write("Code: ")
sys.stderr.flush()
interactive = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]["interactive"]
status = {"token": sys.stdin.readline().strip() + str(interactive)}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""
CONNECTING = """\
import asyncio, sys
from tftraining_client.cluster.connection import connect
async def main():
    found = await connect(None, sys.argv[1])
    print((await found.api._headers({}))["authorization"])
    await found.api.close()
asyncio.run(main())
"""


def test_a_plugin_asks_the_person_at_the_terminal(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", ASKING]}}
    path = written(tmp_path / "config", user)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CONNECTING, str(path)], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as program:
        os.close(theirs)
        asked = b""
        while b"Code: " not in asked:
            asked += os.read(ours, 1024)
        os.write(ours, b"1234\n")
        assert program.stdout is not None and program.stdout.read() == "Bearer 1234True\n"
    os.close(ours)
    user["exec"]["interactiveMode"] = "Always"
    with pytest.raises(UserError, match="needs a terminal"):
        asyncio.run(opened(written(tmp_path / "config", user)))


@contextmanager
def tls_server(own: Certificates, clients: list[Certificates], seen: list[str]) -> Iterator[str]:
    """An API server that takes these clients; `seen` gets the name in each request's certificate."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            subject: Any = self.connection.getpeercert()["subject"]
            seen.append(subject[0][0][1])
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    authorities = "".join(each.authority.decode() for each in clients)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authorities)
    context.verify_mode = ssl.CERT_REQUIRED
    load_certificate(context, own.files["tls.crt"], own.files["tls.key"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


OWN = make_certificates("server", "authority")
CLIENTS = [make_certificates(f"client-{number}", f"authority-{number}") for number in (1, 2)]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_a_client_certificate_is_used_and_its_key_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    changed = scratch.stat().st_mtime_ns
    files = CLIENTS[0].files
    (tmp_path / "client.crt").write_bytes(files["tls.crt"])
    user = {"client-certificate": "client.crt", "client-key-data": encoded(files["tls.key"])}
    with tls_server(OWN, CLIENTS, seen) as server:
        (tmp_path / "ca.crt").write_bytes("# Größe\n".encode() + OWN.authority)
        cluster = {"server": server, "certificate-authority": "ca.crt"}
        found = await connect(None, str(written(tmp_path / "config", user, cluster)))
        await found.api.request("GET", "/version")
        await found.api.close()
    assert seen == ["client-1"]
    # Not even for a moment: a signal may come in it.
    assert scratch.stat().st_mtime_ns == changed


CERTIFICATES = """\
import datetime, json, pathlib
folder = pathlib.Path({folder!r})
number = int((folder / "runs").read_text()) + 1 if (folder / "runs").exists() else 1
(folder / "runs").write_text(str(number))
expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=600)
status = {{"clientCertificateData": (folder / f"{{number}}.crt").read_text(),
           "clientKeyData": (folder / f"{{number}}.key").read_text(),
           "expirationTimestamp": expiry.strftime("%Y-%m-%dT%H:%M:%SZ")}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


async def test_a_certificate_of_a_plugin_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, client in enumerate(CLIENTS, 1):
        (tmp_path / f"{number}.crt").write_bytes(client.files["tls.crt"])
        (tmp_path / f"{number}.key").write_bytes(client.files["tls.key"])
    program = CERTIFICATES.format(folder=str(tmp_path))
    user = {"exec": {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", program]}}
    seen: list[str] = []
    with tls_server(OWN, CLIENTS, seen) as server:
        cluster = {"server": server, "certificate-authority-data": encoded(OWN.authority)}
        found = await connect(None, str(written(tmp_path / "config", user, cluster)))
        await found.api.request("GET", "/version")
        later = time.time() + 600 - credentials.EARLY_SECONDS + 1
        monkeypatch.setattr(credentials, "now", lambda: later)
        await found.api.request("GET", "/version")
        await found.api.close()
    assert seen == ["client-1", "client-2"]
