"""A bucket of Google Cloud Storage on this machine: an emulator behind Google's names, for programs of TensorFlow.

TensorFlow has Google's addresses compiled in. So a process with a network and mounts of its own gives these names to
the loopback, and trusts an authority of the test by CURL_CA_BUNDLE. No request leaves the machine.

Run in such a process (`OWN_WORLD` comes before its command), because the changes must not reach any other.
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
from urllib.request import urlopen

from tests.support.certificates import make_certificates
from tests.support.needed import need_or_skip

OWN_WORLD = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
NAMES = ("storage.googleapis.com", "www.googleapis.com", "oauth2.googleapis.com")
BUCKET = "training"
PATIENCE = 20.0


@contextmanager
def emulated_bucket(server: Path, folder: Path) -> Iterator[None]:
    """Serve the empty bucket `gs://training` by the program `server`; TensorFlow finds it in this process' world."""
    need_or_skip("ip")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(NAMES)}\n")
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    for name, text in make_certificates(NAMES[0], "tests", *NAMES[1:]).files.items():
        (folder / name).write_bytes(text)
    # NO_GCE_CHECK: there is no metadata server to ask for a token, and the emulator wants none.
    os.environ.update({"CURL_CA_BUNDLE": str(folder / "ca.crt"), "NO_GCE_CHECK": "true"})
    command = [str(server), "-certificate", str(folder / "tls.crt"), "-key", str(folder / "tls.key")]
    with (folder / "requests").open("wb") as log:
        process = subprocess.Popen([*command, "-bucket", BUCKET], stdout=log, stderr=log)
    try:
        _await_server(process)
        yield
    finally:
        process.kill()
        process.wait()


def _await_server(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", 443)).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "the emulator of the bucket does not answer"
            time.sleep(0.05)


def objects(prefix: str, folder: Path) -> list[str]:
    """The names of all objects that begin with the prefix, without it, in the order of the alphabet."""
    address = f"https://{NAMES[0]}/storage/v1/b/{BUCKET}/o?prefix={quote(prefix)}"
    with urlopen(address, context=create_default_context(cafile=str(folder / "ca.crt"))) as answer:
        found = json.load(answer)
    return sorted(each["name"].removeprefix(prefix) for each in found.get("items", ()))
