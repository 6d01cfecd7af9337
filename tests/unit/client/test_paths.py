"""A name that a user or a cluster gives is one segment of a path, whatever it contains."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support.client.verbs import words
from tests.support.control_plane.manifests import minimal
from tftraining_client import UserError
from tftraining_client.__main__ import main
from tftraining_client.cluster.paths import collection, jobs_path, object_path

ELSEWHERE = "../../../../api/v1/secrets?"


def test_a_name_stays_one_segment() -> None:
    jobs = "/apis/tftraining.dev/v1/namespaces/..%2F..%2F..%2F..%2Fapi%2Fv1%2Fsecrets%3F/tftrainingjobs"
    assert jobs_path(ELSEWHERE) == jobs
    assert object_path("/api/v1/pods", "a#b%2F\n", "log") == "/api/v1/pods/a%23b%252F%0A/log"
    assert collection("/api/v1", "", "pods") == "/api/v1/pods"


@pytest.mark.parametrize("name", [".", "..", ""])
def test_a_directory_is_no_name(name: str) -> None:
    with pytest.raises(UserError, match="is no name of an object"):
        object_path("/api/v1/pods", name)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths that an API server is asked for; it has nothing."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            body = json.dumps({"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"}).encode()
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    document = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    yield paths
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("verb", ["list", "status", "submit", "convert", "top", "doctor"])
def test_no_command_leaves_the_namespace(verb: str, asked: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(minimal("digits")))
    main([*words(verb, tmp_path / "job.yaml"), "--namespace", ELSEWHERE])
    inside = [path for path in asked if path.split("?")[0].endswith("secrets")]
    assert asked and inside == [] and not any("/../" in path for path in asked)
    namespaced = [path for path in asked if "/namespaces/" in path and "kube-system" not in path]
    assert all("/namespaces/..%2F..%2F" in path for path in namespaced)
