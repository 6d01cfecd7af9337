#!/usr/bin/python3
"""runc for machines that hold back CAP_SYS_RESOURCE, and for image builds that need this machine's pip settings.

Docker and the nodes' containerd call it in place of runc. It changes a container's configuration and becomes runc:
  * where this machine lacks CAP_SYS_RESOURCE, nobody can get it, raise a limit, or ask not to be killed for memory;
  * for a container without privileges (in the lab's engine: a build step) it adds what `build.json` beside it lists,
    environment and mounts below /dev, so that nothing of it lands in an image.
It must never touch anything else.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

RUNC = "/usr/sbin/runc"
SYS_RESOURCE = "CAP_SYS_RESOURCE"
SYS_RESOURCE_BIT = 24


def lacks_sys_resource() -> bool:
    """Say whether this process could never hold CAP_SYS_RESOURCE."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    bounding = next(int(line.split()[1], 16) for line in lines if line.startswith("CapBnd"))
    return not bounding >> SYS_RESOURCE_BIT & 1


def without_sys_resource(process: dict[str, Any]) -> None:
    """Take out of a process what needs CAP_SYS_RESOURCE."""
    for kind, names in (process.get("capabilities") or {}).items():
        process["capabilities"][kind] = [name for name in names or [] if name != SYS_RESOURCE]
    process["oomScoreAdj"] = max(process.get("oomScoreAdj") or 0, 0)
    process.pop("rlimits", None)


def with_build_settings(config: dict[str, Any], settings: Path) -> None:
    """Add the machine's settings for builds to a container without privileges."""
    process = config["process"]
    bounding = (process.get("capabilities") or {}).get("bounding") or []
    if settings.exists() and "CAP_SYS_ADMIN" not in bounding:
        added = json.loads(settings.read_text())
        process.setdefault("env", []).extend(added["env"])
        config.setdefault("mounts", []).extend(added["mounts"])


def option(arguments: list[str], *names: str) -> str | None:
    """Return the value of a command line option, given as `--name value` or `--name=value`."""
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else arguments[position + 1]
    return None


def prepare(arguments: list[str]) -> None:
    """Change the configuration that this call of runc is about to read."""
    if "exec" in arguments and (given := option(arguments, "--process", "-p")):
        path = Path(given)
        process = config = json.loads(path.read_text())
    elif {"create", "run"} & set(arguments):
        path = Path(option(arguments, "--bundle", "-b") or ".") / "config.json"
        config = json.loads(path.read_text())
        with_build_settings(config, Path(__file__).with_name("build.json"))
        process = config["process"]
    else:
        return
    if lacks_sys_resource():
        without_sys_resource(process)
    path.write_text(json.dumps(config))


if __name__ == "__main__":
    prepare(sys.argv[1:])
    os.execv(RUNC, ["runc", *sys.argv[1:]])
