"""A bucket of Google Cloud Storage for the pods of a kind cluster: an emulator on this machine, behind Google's names.

The pods reach this machine by the gateway of the nodes' network. There a stand-in for the metadata server, as workload
identity has one, gives them tokens, and the bucket answers only requests with such a token.
"""

import http.client
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from tests.support.certificates import make_certificates
from tests.support.ports import free_port
from tests.support.trainer.bucket import BUCKET, NAMES

METADATA = "metadata.google.internal"
TOKEN_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
TOKEN = "token-of-the-account"
PATIENCE = 20.0
UNANSWERED = ("connection", "transfer-encoding", "keep-alive")  # of one connection, not of the message


class EmulatedBucket:
    """The bucket at an address of this machine; `refused` counts requests without the token."""

    def __init__(self, address: str, authority: str, port: int) -> None:
        self.address = address
        self.authority = authority  # in PEM: the pods have to trust it
        self.tokens = self.refused = 0
        self.port = port

    @property
    def host_names(self) -> list[str]:
        """The names that have to lead to `address` in the pods."""
        return [*NAMES, METADATA]

    def objects(self, prefix: str) -> list[str]:
        """The names of all objects that begin with the prefix, without it, in the order of the alphabet."""
        with urlopen(f"http://127.0.0.1:{self.port}/storage/v1/b/{BUCKET}/o?prefix={quote(prefix)}") as answer:
            found = json.load(answer)
        return sorted(each["name"].removeprefix(prefix) for each in found.get("items", ()))


@contextmanager
def emulated_bucket(server: Path, address: str, folder: Path) -> Iterator[EmulatedBucket]:
    """Serve the empty bucket `gs://training` by the program `server` on an address that is this machine's."""
    certificates = make_certificates(NAMES[0], "tests", *NAMES[1:], address=address)
    for name, content in certificates.files.items():
        (folder / name).write_bytes(content)
    bucket = EmulatedBucket(address, certificates.authority.decode(), free_port())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with ExitStack() as stack:
        stack.enter_context(_emulator(server, bucket.port, folder))
        front = stack.enter_context(_serving((address, 443), _front(bucket), context))
        stack.enter_context(_serving((address, 80), _metadata(bucket), None))
        assert front.server_port == 443
        yield bucket


@contextmanager
def _emulator(server: Path, port: int, folder: Path) -> Iterator[None]:
    command = [str(server), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-external-url", f"https://{NAMES[0]}"]
    with (folder / "emulator").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _create_bucket(process, port)
        yield
    finally:
        process.kill()
        process.wait()


def _create_bucket(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request("POST", "/storage/v1/b", json.dumps({"name": BUCKET}))
            assert connection.getresponse().status == 200
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "the emulator of the bucket does not answer"
            time.sleep(0.05)
        finally:
            connection.close()


@contextmanager
def _serving(
    address: tuple[str, int], handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None
) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(address, handler) as server:
        server.daemon_threads = True
        if context is not None:
            # The handshake is left to the thread of the connection: a client that is slow or gone delays no other.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _metadata(bucket: EmulatedBucket) -> type[BaseHTTPRequestHandler]:
    class Metadata(_Handler):
        def do_GET(self) -> None:
            if self.path != TOKEN_PATH or self.headers.get("Metadata-Flavor") != "Google":
                return self.answer(404, [], b"")
            bucket.tokens += 1
            token = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
            return self.answer(200, [("Content-Type", "application/json")], json.dumps(token).encode())

    return Metadata


def _front(bucket: EmulatedBucket) -> type[BaseHTTPRequestHandler]:
    class Front(_Handler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                bucket.refused += 1
                return self.answer(401, [], b"")
            connection = http.client.HTTPConnection("127.0.0.1", bucket.port)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                kept = [
                    each for each in response.getheaders() if each[0].lower() not in (*UNANSWERED, "content-length")
                ]
                return self.answer(response.status, kept, response.read())
            finally:
                connection.close()

        do_GET = do_POST = do_PUT = do_DELETE = forward

    return Front
