"""What a build step needs to reach the package registries that this machine reaches.

pip's settings, proxy variables and certificate authorities of this machine are given to running build steps only: the
mounts are below /dev, a file system of the running step, so nothing of them can land in an image layer.
It must never write them into an image, a build argument or a file of the repository.
"""

import os
import shutil
import sys
from pathlib import Path

from .shell import run

VARIABLES = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INSIDE = "/dev/lab"


def collect(folder: Path) -> dict[str, list[object]]:
    """Copy the settings into `folder` and return the environment and mounts (OCI) that bring them into a step."""
    certificates = next((Path(os.environ[name]) for name in CERTIFICATES if os.environ.get(name)), SYSTEM_CERTIFICATES)
    folder.mkdir(exist_ok=True)
    settings = run([sys.executable, "-m", "pip", "config", "list"])
    (folder / "pip.conf").write_text(_pip_conf(settings))
    env: list[object] = [
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(VARIABLES) and not value.startswith("/")  # a path of this machine says nothing in an image
    ]
    env.append(f"PIP_CONFIG_FILE={INSIDE}/pip.conf")
    if certificates.is_file():
        shutil.copy(certificates, folder / "certificates.pem")
        env += [f"{name}={INSIDE}/certificates.pem" for name in CERTIFICATES]
    mount = {"source": str(folder), "destination": INSIDE, "type": "bind", "options": ["rbind", "ro"]}
    return {"env": env, "mounts": [mount]}


def _pip_conf(listing: str) -> str:
    """Turn the output of `pip config list` into a pip.conf, without what names files or comes from the environment."""
    wanted = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
    lines = ["[global]"]
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        if name.startswith("global.") and name.removeprefix("global.") in wanted:
            lines.append(f"{name.removeprefix('global.')} = {value.strip(chr(39))}")
    return "\n".join(lines) + "\n"
