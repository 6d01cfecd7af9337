"""The Debian 12 root file system under all images that are built where no image can be pulled.

It comes from Debian packages, by mmdebstrap. It must never hold anything of this machine.
"""

import hashlib
import os
import subprocess
import tempfile

from . import packages
from .docker import Engine
from .shell import LabError, lock, step

SUITE = "bookworm"
INCLUDE = ("python3", "python3-venv", "ca-certificates")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
COMMAND = [
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    f"--include={','.join(INCLUDE)}",
    *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
    SUITE,
    "-",
]


def ensure(engine: Engine) -> str:
    """Return the name of the engine's Debian base image, made first if it is missing."""
    name = f"tftraining/debian:{hashlib.sha256(repr(COMMAND).encode()).hexdigest()[:12]}"
    with lock("rootfs"):
        if not engine.has_image(name):
            packages.need("mmdebstrap")
            with step("building a Debian base image from packages"):
                _make(engine, name)
    return name


def _make(engine: Engine, name: str) -> None:
    """Stream the file system from mmdebstrap into the engine; nothing is kept if either fails."""
    partial = f"{name}-{os.getpid()}"
    with tempfile.TemporaryFile() as complaints:
        with subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints) as maker:
            engine.docker("import", "-", partial, stdin=maker.stdout)
        complaints.seek(0)
        complaint = complaints.read().decode(errors="replace").strip()
    if maker.returncode != 0:
        engine.docker("image", "rm", partial)
        raise LabError(f"mmdebstrap failed with exit code {maker.returncode}: {complaint[-1500:]}")
    engine.docker("tag", partial, name)
    engine.docker("image", "rm", partial)
