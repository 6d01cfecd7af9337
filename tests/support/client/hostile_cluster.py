"""An API server whose every text carries escape sequences, as a hostile job's would."""

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.client.cluster_objects import HISTORY, RAW, a_pod, an_event

# A title, a cleared screen, a hidden text, a bell, a C1 sequence, a text from right to left, an overwritten line.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b2J\u202ereversed\rover"
TIME = "2026-01-02T03:40:00Z"
# What has a form of its own, without which nothing is shown.
FORMED = ("uid", "resourceVersion", "tftraining.dev/role", "tftraining.dev/index", "phase", "type", "status")


def hostile(value: Any, name: str = "") -> Any:
    """A copy with the sequences in each text, but for times and what has a form of its own."""
    if isinstance(value, dict):
        return {key: hostile(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each, name) for each in value]
    if (
        not isinstance(value, str)
        or name in FORMED
        or value == "tensorflow"
        or name.lower().endswith(("time", "timestamp"))
    ):
        return value
    return value + HOSTILE


def _objects() -> dict[str, list[Any]]:
    job = copy.deepcopy(RAW)
    metrics = {f"{name}{HOSTILE}": values for name, values in HISTORY["metrics"].items()}
    failure = {"pod": "digits-worker-1", "exception": "ValueError: boom", "logTail": "one\ntwo", "exitCode": 1}
    condition = {"type": "NoGPU", "status": "True", "reason": "NoGPU", "message": "no GPU", "lastTransitionTime": TIME}
    job["status"] |= {
        "phase": "Failed",
        "conditions": [condition],
        "failure": failure,
        "history": {**HISTORY, "metrics": metrics},
    }
    events = [{**an_event(TIME, "Error", "boom").raw, "metadata": {"name": "e", "uid": "e"}}]
    found: dict[str, list[Any]] = hostile(
        {"tftrainingjobs": [job], "pods": [a_pod(0).raw, a_pod(1, "Waiting").raw], "events": events}
    )
    return found


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        objects = _objects()
        if parts[-1] == "log":
            self._answer(f"2026-01-02T03:00:00.000000000Z line {HOSTILE}\x1b[31mred\n".encode())
        elif "watch=" in url.query:
            self._answer(b"")
        elif parts[-1] in objects:
            self._answer(json.dumps({"metadata": {"resourceVersion": "1"}, "items": objects[parts[-1]]}).encode())
        elif "tftrainingjobs" in parts:
            self._answer(json.dumps(objects["tftrainingjobs"][0]).encode())
        else:
            self._answer(json.dumps({"kind": "Status", "message": f"no {HOSTILE}"}).encode(), 404)

    do_PATCH = do_GET

    def do_POST(self) -> None:
        self._answer(json.dumps({"kind": "Status", "message": f"no {HOSTILE}"}).encode(), 403)

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def hostile_cluster() -> Iterator[str]:
    """Serve it; the text of a kubeconfig for it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        yield json.dumps(
            {
                "current-context": "one",
                "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
