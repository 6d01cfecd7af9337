"""A Docker engine as the lab sees it: an address, and commands sent to it.

It must never decide which engine to use, nor start or stop one.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .shell import LabError, run


@dataclass(frozen=True)
class Engine:
    """A Docker engine: `host` is the address of the private one, or None for the one that `docker` finds by itself."""

    host: str | None

    @property
    def private(self) -> bool:
        """Say whether the lab started this engine."""
        return self.host is not None

    @property
    def env(self) -> Mapping[str, str]:
        """Return the environment for programs that are to use this engine."""
        # The private engine is Debian's, whose BuildKit does not run steps with the lab's runtime.
        return os.environ | ({"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"} if self.host else {})

    def docker(
        self, *words: str | Path, stdin: str | bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> str:
        """Run one `docker` command and return what it prints; LabError when it fails."""
        return run(["docker", *words], stdin=stdin, env=self.env, timeout=timeout)

    def execute(self, container: str, *words: str, stdin: str | bytes | IO[bytes] | None = None) -> str:
        """Run a program in a container and return what it prints."""
        return self.docker("exec", *(["-i"] if stdin is not None else []), container, *words, stdin=stdin)

    def build(
        self, context: Path, target: str, name: str, arguments: Mapping[str, str], file: str = "Dockerfile"
    ) -> None:
        """Build one target of a Dockerfile in `context`, with build arguments, as the image `name`."""
        given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        options: list[str | Path] = ["--network", "host", "--target", target, "--tag", name, "--file", context / file]
        self.docker("build", "--quiet", *options, *given, context)

    def has_image(self, name: str) -> bool:
        """Say whether the engine holds an image of this name."""
        return bool(self.docker("image", "ls", "-q", name).strip())


def answers(host: str | None) -> bool:
    """Say whether an engine answers at this address (None: where `docker` looks by itself)."""
    if not shutil.which("docker"):
        return False
    env = os.environ | ({"DOCKER_HOST": host} if host else {})
    try:
        return bool(run(["docker", "info", "--format", "{{.ServerVersion}}"], env=env, timeout=20).strip())
    except LabError:
        return False
