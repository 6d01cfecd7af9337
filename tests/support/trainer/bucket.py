"""A bucket of Google Cloud Storage on this machine: an emulator behind Google's names, for programs of TensorFlow.

TensorFlow has Google's addresses compiled in. So the program gets these names for an address of this machine, and
trusts an authority of the test by CURL_CA_BUNDLE. No request leaves the machine.

`bucket_of_this_process` needs a process with a network and mounts of its own (`OWN_WORLD` comes before its command),
because its changes must not reach any other.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import create_default_context
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.support.certificates import make_certificates
from tests.support.needed import need_or_skip

OWN_WORLD = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
NAMES = ("storage.googleapis.com", "www.googleapis.com", "oauth2.googleapis.com")
METADATA = "metadata.google.internal"
BUCKET = "training"
LOOPBACK = "127.0.0.1"
PATIENCE = 20.0


@contextmanager
def emulated_bucket(server: Path, folder: Path, address: str = LOOPBACK, token: str = "") -> Iterator[None]:
    """Serve the empty bucket `gs://training` by the program `server` on an address of this machine.

    In the folder are then `ca.crt`, which a client has to trust, and `requests`, the log. With a token the address also
    has a metadata server that gives it, and other requests are refused.
    """
    for name, text in make_certificates(NAMES[0], "tests", *NAMES[1:], address=address).files.items():
        (folder / name).write_bytes(text)
    command = [str(server), "-address", address, "-token", token, "-bucket", BUCKET]
    command += ["-certificate", str(folder / "tls.crt"), "-key", str(folder / "tls.key")]
    with (folder / "requests").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_server(process, address)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def bucket_of_this_process(server: Path, folder: Path) -> Iterator[None]:
    """Serve the empty bucket to the programs in this process' world."""
    need_or_skip("ip")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(NAMES)}\n")
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    # NO_GCE_CHECK: there is no metadata server to ask for a token, and the emulator wants none.
    os.environ.update({"CURL_CA_BUNDLE": str(folder / "ca.crt"), "NO_GCE_CHECK": "true"})
    with emulated_bucket(server, folder):
        yield


def _await_server(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((address, 443)).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "the emulator of the bucket does not answer"
            time.sleep(0.05)


def objects(prefix: str, folder: Path, address: str = NAMES[0], token: str = "") -> list[str]:
    """The names of all objects that begin with the prefix, without it, in the order of the alphabet."""
    url = f"https://{address}/storage/v1/b/{BUCKET}/o?prefix={quote(prefix)}"
    request = Request(url, headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, context=create_default_context(cafile=str(folder / "ca.crt"))) as answer:
        found = json.load(answer)
    return sorted(each["name"].removeprefix(prefix) for each in found.get("items", ()))
