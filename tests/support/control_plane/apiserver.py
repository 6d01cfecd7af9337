"""A real Kubernetes API server with its etcd, as bare processes: `with ControlPlane() as plane:`.

It has no nodes and, until `start_controllers` is called, no controllers: a pod stays as it was written. It listens on
free ports of 127.0.0.1 and keeps all its files in a temporary directory, so that several run side by side.
It must never leave a process or a file behind, nor touch the user's own kubeconfig.
"""

import json
import secrets
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testbed import binaries
from testbed.shell import LabError, run
from tests.support.control_plane.server_process import ServerProcess
from tests.support.deprecated_apis import deprecations
from tests.support.ports import free_port

READY_SECONDS = 120.0
START_TRIES = 3
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
CONTROLLER_MANAGER = "kube-controller-manager"
CONTROLLERS = ("garbage-collector-controller", "namespace-controller")  # unless a test asks for others


class WriteRefused(LabError):
    """The API server's answer to a request that it refuses: a Status."""

    def __init__(self, request: str, code: int, text: str) -> None:
        super().__init__(f"{request}: {code} {text}")
        self.code = code
        self._text = text

    @property
    def status(self) -> dict[str, Any]:
        """The Status, parsed."""
        status: dict[str, Any] = json.loads(self._text)
        return status


class ControlPlane:
    """kube-apiserver and etcd while the `with` block lasts. Raises LabError when they cannot be had or do not start.

    A subclass may have more `flags` for the API server, `etcd_flags`, and other addresses than those of IPv4.
    """

    address: ClassVar[str] = "127.0.0.1"  # of the API server
    services: ClassVar[str] = "10.0.0.0/16"  # the ranges of their addresses, the first of which is the cluster's own

    flags: ClassVar[tuple[str, ...]] = ()
    etcd_flags: ClassVar[tuple[str, ...]] = ()

    def __enter__(self) -> Self:
        """Start both servers and write the administrator's kubeconfig; ready in about 5 s."""
        self._programs = binaries.ensure(*PROGRAMS)
        self._folder = tempfile.TemporaryDirectory(prefix="tftraining-control-plane-")
        self.directory = Path(self._folder.name)
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self._servers: dict[str, ServerProcess] = {}
        try:
            self._prepare()
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the servers and remove their files."""
        self._close()

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{f'[{self.address}]' if ':' in self.address else self.address}:{self._port}"

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self._token

    @property
    def ca(self) -> Path:
        """The certificate that the API server made for itself, as a PEM file."""
        return self.directory / "certificates" / "apiserver.crt"

    @property
    def kubectl_program(self) -> Path:
        """The program kubectl."""
        return self._programs / "kubectl"

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as administrator and return its output; LabError carries its message when it fails, and when the
        API server warns."""
        options = ["--warnings-as-errors", f"--cache-dir={self.directory / 'kubectl'}"]
        return run([self.kubectl_program, "--kubeconfig", self.kubeconfig, *options, *arguments], stdin=stdin)

    def get(self, *arguments: str) -> dict[str, object]:
        """Return what `kubectl get … -o json` prints, parsed."""
        document: dict[str, object] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return document

    def request(
        self, method: str, path: str, body: object = None, kind: str = "application/json", token: str = ""
    ) -> dict[str, Any]:
        """Send one request as administrator, or as whom the token names, without kubectl's 0.1 s; LabError carries the
        server's message, or its warning of an API or a field that Kubernetes is going to remove, or has no use for."""
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        context = ssl.create_default_context(cafile=self.ca)
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                document: dict[str, Any] = json.load(answer)
                warnings = deprecations(answer.headers.get_all("Warning", []))
        except urllib.error.HTTPError as error:
            with error:
                raise WriteRefused(f"{method} {path}", error.code, error.read().decode(errors="replace")) from error
        if warnings:
            raise LabError(f"{method} {path}: {'; '.join(warnings)}")
        return document

    def watched(self, path: str, version: str, seconds: int = 1) -> list[dict[str, Any]]:
        """The events of a watch from that version on: each object as it was then, the past included."""
        query = f"{path}?watch=true&resourceVersion={version}&timeoutSeconds={seconds}"
        request = urllib.request.Request(self.url + query, headers={"Authorization": f"Bearer {self._token}"})
        context = ssl.create_default_context(cafile=self.ca)
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return [json.loads(line)["object"] for line in answer]

    def create_namespace(self, name: str) -> None:
        """Create a namespace and its service account `default`, without which no pod is admitted."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    def wait_until_allowed(self, namespace: str, token: str, rules: Sequence[dict[str, Any]]) -> None:
        """Wait until whom the token names may do what these rules of RBAC allow: the API server reads new roles a
        moment after it has stored them."""
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        path, wanted = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": namespace}}
        deadline = time.monotonic() + READY_SECONDS
        while not all(
            each in self.request("POST", path, {**review, **wanted}, token=token)["status"]["resourceRules"]
            for each in rules
        ):
            assert time.monotonic() < deadline, f"not allowed: {rules}"
            time.sleep(0.03)

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig for whom the token names, readable by this user only, and return its path."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        context = {"cluster": "plane", "user": "user", "namespace": namespace}
        new = path.with_name(f".{path.name}")
        new.touch(mode=0o600)
        new.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "plane", "cluster": cluster}],
                    "users": [{"name": "user", "user": {"token": token}}],
                    "contexts": [{"name": "plane", "context": context}],
                    "current-context": "plane",
                }
            )
        )
        # An operator that starts just now reads the old file or the new one, and never half of it.
        new.replace(path)
        return path

    def restart_apiserver(self, down_seconds: float = 0.0) -> None:
        """Kill the API server, wait, start it again at the same address: every watch breaks.

        Controllers start again behind it. Their own watches would wait longer with each outage, up to a minute
        (client-go's back-off), and no test could tell when garbage collection goes on.
        """
        self._servers.pop("kube-apiserver").kill()
        time.sleep(down_seconds)
        self._start_apiserver()
        if CONTROLLER_MANAGER in self._servers:
            self._servers[CONTROLLER_MANAGER].restart()

    def compact_etcd(self) -> None:
        """Forget all history and restart the API server (its cache remembers too): older watches now get a 410."""
        revision = self._etcd("kv/range", {"key": "AA=="})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        self.restart_apiserver()

    def make_room(self, collection: str) -> None:
        """Delete all objects of a collection, and let an etcd that was full take writes again."""
        self.request("DELETE", collection)
        revision = self._etcd("kv/range", {"key": "AA=="})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        self._etcd("maintenance/defragment", {})
        for alarm in self._etcd("maintenance/alarm", {"action": "GET"}).get("alarms", ()):
            self._etcd("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def start_controllers(self, *flags: str, controllers: Sequence[str] = CONTROLLERS) -> None:
        """Start kube-controller-manager, unless it runs: by default garbage collection and namespace deletion.

        It may send as many requests as it likes. With its own limit, 20 a second, a test waits until what earlier tests
        left is collected: 15 s for 300 objects.
        """
        if CONTROLLER_MANAGER not in self._servers:
            names, rate = f"--controllers={','.join(controllers)}", ("--kube-api-qps=1000", "--kube-api-burst=2000")
            self.start(CONTROLLER_MANAGER, names, "--leader-elect=false", "--secure-port=0", *rate, *flags)

    def stop_controllers(self) -> None:
        """End kube-controller-manager."""
        self._servers.pop(CONTROLLER_MANAGER).kill()

    def start(self, name: str, *flags: str) -> ServerProcess:
        """Start one more program as administrator; it ends with the API server. LabError if it cannot be had."""
        program = binaries.ensure(name) / name
        return self._serve(program, [f"--kubeconfig={self.kubeconfig}", *flags])

    def _prepare(self) -> None:
        """Write the token file and the key that signs service-account tokens."""
        self._token = secrets.token_hex(16)
        (self.directory / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self.directory / "service-accounts.key").write_bytes(key)

    def _start(self) -> None:
        """Start etcd and the API server, on other ports if somebody else took one meanwhile."""
        for tries_left in reversed(range(START_TRIES)):
            self._port, self._etcd_port = free_port(), free_port()
            try:
                self._start_etcd()
                self._start_apiserver()
                break
            except LabError as error:
                self._stop_servers()
                if not tries_left or "address already in use" not in str(error):
                    raise
        self.write_kubeconfig(self.kubeconfig, self._token)

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        flags = [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            *self.etcd_flags,
        ]
        self._serve(self._programs / "etcd", flags)

    def _start_apiserver(self) -> None:
        key = self.directory / "service-accounts.key"
        flags = [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--bind-address={self.address}",
            f"--secure-port={self._port}",
            f"--cert-dir={self.directory / 'certificates'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--service-cluster-ip-range={self.services}",
            "--shutdown-delay-duration=0s",
            *self.flags,
        ]
        server = self._serve(self._programs / "kube-apiserver", flags)
        server.wait_until(self._is_ready, READY_SECONDS)

    def _serve(self, program: Path, flags: list[str]) -> ServerProcess:
        server = ServerProcess(program, flags, self.directory / f"{program.name}.log")
        self._servers[program.name] = server
        return server

    def _is_ready(self) -> bool:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._token}"})
            with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):  # no certificate yet, no listener yet, or not ready (500)
            return False

    def _etcd(self, method: str, body: dict[str, object]) -> dict[str, Any]:
        """Call etcd through its JSON gateway."""
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{method}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def _stop_servers(self) -> None:
        """End what runs, the last started first."""
        for server in reversed(self._servers.values()):
            server.kill()
        self._servers.clear()

    def _close(self) -> None:
        self._stop_servers()
        self._folder.cleanup()
