"""What the operator's program imports, and what it keeps for each connection: its memory before the first job."""

import subprocess
import sys
from asyncio import sslproto

UNUSED = ("requests", "oauthlib", "google.auth", "cryptography", "kubernetes.dynamic")


def test_the_program_does_without_the_synchronous_client() -> None:
    shown = f"import sys, tftraining_operator.__main__; print([each for each in {UNUSED} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_asyncio_has_the_size_of_buffer_that_the_program_sets() -> None:
    assert sslproto.SSLProtocol.max_size == 2**18
