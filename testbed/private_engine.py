"""The private Docker engine: Debian's `dockerd`, with its own data, sockets, runtime and control group.

Its images are in the cache directory, everything else below one directory of /run. It changes no firewall rule, no
forwarding setting and no default bridge, so that stopping it leaves the machine as it was.
It must never touch an engine that it did not start.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import build_settings
from .docker import Engine, answers
from .shell import LabError, cache_dir, run, step, used, users_file

NODE_FILES = Path(__file__).parent / "node"
MODULES = Path("/lib/modules")
START_SECONDS = 30.0
STOP_SECONDS = 30.0
DATA = "engine-data"  # as `shell.used` calls it
IN_USE = 75
ADDRESSES = "198.18.0.0/16"  # for test networks (RFC 2544): no real network has these

_started: list[subprocess.Popen[bytes]] = []  # kept: a forgotten one warns, whenever the garbage collector comes by


def runtime_dir() -> Path:
    """Return the private engine's directory for sockets and state: short, and one for each cache directory."""
    return Path("/run") / f"tftraining-lab-{hashlib.sha256(bytes(cache_dir())).hexdigest()[:6]}"


def host() -> str:
    """Return the address of this cache directory's private engine."""
    return f"unix://{runtime_dir() / 'docker.sock'}"


def data_is_in_use() -> bool:
    """Say whether an engine works on the data of this cache directory, be it out of sight."""
    return used(DATA) or answers(host())


def start() -> Engine:
    """Start the engine and wait until it answers; LabError with its last words when it does not."""
    base, data = runtime_dir(), cache_dir() / "engine"
    base.mkdir(mode=0o711, exist_ok=True)
    _make_modules_folder(base)
    runtime = _write_runtime(base)
    command: list[str | Path] = [
        # The data can be in use by an engine that cannot be seen from here: that of a bare machine, or of a container.
        *("flock", "--exclusive", "--nonblock", "--conflict-exit-code", str(IN_USE), "--close", users_file(DATA)),
        "dockerd",
        *("--host", host(), "--pidfile", base / "docker.pid", "--exec-root", base / "exec"),
        *("--data-root", data, "--storage-driver", "overlay2", "--cgroup-parent", f"/{base.name}"),
        *("--add-runtime", f"lab={runtime}", "--default-runtime", "lab", "--oom-score-adjust", "0"),
        *("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        *("--default-address-pool", f"base={ADDRESSES},size=24", "--shutdown-timeout", "5", "--log-level", "warn"),
    ]
    with (base / "dockerd.log").open("wb") as log, step("starting the Docker engine"):
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        _started.append(daemon)
        deadline = time.monotonic() + START_SECONDS
        while not answers(host()):
            if daemon.poll() is not None or time.monotonic() > deadline:
                why = _why_not_started(daemon.returncode, base / "dockerd.log")
                stop()
                raise LabError(f"the private Docker engine did not start: {why}")
            time.sleep(0.1)
    return Engine(host())


def _why_not_started(status: int | None, log: Path) -> str:
    if status == IN_USE:
        return f"another engine, not visible here, uses {cache_dir() / 'engine'}: stop that engine first"
    return log.read_text(errors="replace").strip()[-1500:]


def _make_modules_folder(base: Path) -> None:
    """Make the folder that kind mounts into nodes, where the kernel has no modules; `stop` removes it again."""
    if not MODULES.exists():
        MODULES.mkdir()
        (base / "made-modules").touch()


def _write_runtime(base: Path) -> Path:
    """Write the container runtime, and beside it the settings for build steps."""
    runtime = base / "runc_lab.py"
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    _, _, body = (NODE_FILES / runtime.name).read_text().partition("\n")
    runtime.write_text(f"#!{python} -IS\n{body}".replace('"/usr/sbin/runc"', json.dumps(shutil.which("runc"))))
    runtime.chmod(0o755)
    refresh_build_settings()
    return runtime


def refresh_build_settings() -> None:
    """Take over this machine's present settings for build steps: an engine may run for weeks."""
    base = runtime_dir()
    (base / "build.json").write_text(json.dumps(build_settings.collect(base / "build")))


def stop() -> None:
    """End the engine and remove what it made outside the cache directory."""
    base = runtime_dir()
    _end_daemon(base / "docker.pid")
    for mount in _mounts_below(base, cache_dir() / "engine"):
        run(["umount", "--lazy", mount])
    for group in Path("/sys/fs/cgroup").glob(f"*/{base.name}"):
        _remove_cgroup(group)
    _remove_cgroup(Path("/sys/fs/cgroup") / base.name)
    if (base / "made-modules").exists():
        MODULES.rmdir()
    shutil.rmtree(base)


def _end_daemon(pidfile: Path) -> None:
    """End the daemon of this pid file, and wait for it."""
    try:
        pid = int(pidfile.read_text())
        if b"dockerd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return
    except (FileNotFoundError, ValueError):
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise LabError(f"the private Docker engine (process {pid}) did not stop within {STOP_SECONDS:.0f} s")
        for daemon in _started:  # a child of this very process stays a zombie until it is asked for
            daemon.poll()
        time.sleep(0.05)


def _mounts_below(*roots: Path) -> list[str]:
    """Return the mount points below these directories, the deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if any(Path(point).is_relative_to(r) for r in roots)), reverse=True)


def _remove_cgroup(root: Path) -> None:
    """Remove an empty control group and its children."""
    for folder in sorted(root.glob("**/"), reverse=True):
        if folder.exists():
            folder.rmdir()
