"""A webhook that adds a container to every new pod of a namespace, as the injection of a service mesh does.

It runs on this machine, which the API server of a kind cluster reaches by the gateway of the nodes' network. It judges
nothing: it changes pods, and notes which. Other webhooks that are asked about new pods use its server.
"""

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from testbed.kube import Kube
from testbed.nodes import Nodes
from testbed.shell import LabError
from tests.support.certificates import make_certificates

Manifest = dict[str, Any]
SECONDS = 10  # that the API server waits for an answer
EFFECT_SECONDS = 30


@contextmanager
def injected(
    kube: Kube, nodes: Nodes, namespace: str, field: str, container: Manifest, folder: Path
) -> Iterator[list[str]]:
    """Put `container` before all others of the list `field` (containers or initContainers) of each new pod of the
    namespace while the block lasts; gives the names of the pods that got it."""
    done: list[str] = []

    def answer(request: Manifest) -> Manifest:
        done.append(request["object"]["metadata"]["name"])
        return _answer(request, field, container)

    kind, name = "MutatingWebhookConfiguration", f"injector-{namespace}"
    with webhook(nodes.gateway(), answer, folder) as client:
        try:
            kube.apply(configuration(kind, name, client, namespace))
            _await_effect(kube, namespace, done)
            yield done
        finally:
            kube.kubectl("delete", kind, name, "--ignore-not-found")


@contextmanager
def webhook(address: str, answer: Callable[[Manifest], Manifest], folder: Path) -> Iterator[Manifest]:
    """Answer the API server's reviews at this address while the block lasts; gives how the API server reaches it."""
    certificates = make_certificates("injector", "tests", address=address)
    for file, content in certificates.files.items():
        (folder / file).write_bytes(content)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer(request)}
            body = json.dumps(review).encode()
            with suppress(ConnectionError, ssl.SSLError):  # the API server waits no longer
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((address, 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        authority = base64.b64encode(certificates.authority).decode()
        try:
            yield {"url": f"https://{address}:{server.server_port}/", "caBundle": authority}
        finally:
            server.shutdown()
            thread.join()


def _await_effect(kube: Kube, namespace: str, done: list[str]) -> None:
    """Wait until the API server asks: it reads the new configuration a moment after it was written."""
    deadline = time.monotonic() + EFFECT_SECONDS
    while not done:
        assert time.monotonic() < deadline, "the API server does not ask the webhook"
        with suppress(LabError):  # the pod itself is not to the liking of the Pod Security Standard
            kube.kubectl("run", "probe", "--image=probe", "--dry-run=server", "--namespace", namespace)
    done.clear()


def _answer(request: Manifest, field: str, container: Manifest) -> Manifest:
    """The answer that adds the container to the pod of the request."""
    present = request["object"]["spec"].get(field) or []
    patch = [{"op": "add", "path": f"/spec/{field}", "value": [container, *present]}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}


def configuration(kind: str, name: str, client: Manifest, namespace: str) -> Manifest:
    """What makes the API server ask for each new pod of the namespace; a pod that it cannot ask for is refused."""
    asked = {
        "name": "injector.tests.tftraining.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": SECONDS,
        "clientConfig": client,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [asked],
    }
