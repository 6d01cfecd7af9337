"""A bare Debian: its file system, and a command that runs in it with processes and mounts of its own.

Its caches are the user's, at the same paths, and so is Go; the network is this machine's. It must never mount anything
in this machine's own mount namespace: however it ends, its mounts and processes end with it.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import packages
from testbed.rootfs import SUITE
from testbed.shell import LabError, cache_dir, run, step
from tests.support.repository import REPOSITORY

from . import settings

CHECKOUT = Path("/srv/tftraining")  # inside; the test cluster is named after it
ENTER = Path(__file__).with_name("enter.sh")
INCLUDE = ("apt", "python3", "make", "git", "ca-certificates", "procps")
RECIPE = ("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(INCLUDE)}", SUITE)
ROOTS = Path("/var/tmp")  # several gigabytes: no place in memory
UNSHARE_COMMAND = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_COPIED = (".git", ".venv", "build", "dist")
REMOVAL_SECONDS = 30.0


@dataclass(frozen=True)
class Bare:
    """A bare machine with its file system below `root`, and what is mounted into it from this one."""

    root: Path
    environment: Mapping[str, str]
    written: tuple[Path, ...]
    read: tuple[Path, ...]

    def run(self, *words: str) -> int:
        """Run a command in the checkout, with no standard input; return its exit status."""
        with subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, env=self.environment) as process:
            try:
                return process.wait()
            except BaseException:
                process.kill()
                raise

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs a command in it, and ends all its processes when it is killed."""
        binds = sorted([(path, "rw") for path in self.written] + [(path, "ro") for path in self.read])
        mounts = [word for path, mode in binds for word in (mode, str(path))]
        wrapper = ["setpriv", "--pdeathsig", "KILL", *UNSHARE_COMMAND]
        return [*wrapper, "bash", str(ENTER), str(self.root), str(CHECKOUT), *mounts, "--", *words]


@contextmanager
def made() -> Iterator[Bare]:
    """Give a bare machine with this checkout in it; it is removed at the end. LabError where none can be made.

    The caller holds a lock: what an earlier one left behind, because it was killed, is removed.
    """
    base = _base()
    prefix = f"tftraining-bare-{hashlib.sha256(bytes(cache_dir())).hexdigest()[:6]}-"
    for left in ROOTS.glob(f"{prefix}*"):
        _remove(left)
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=ROOTS))  # for root's eyes only
    root = place / "root"
    root.mkdir()
    try:
        with step("unpacking a bare Debian"):
            run(["tar", "--extract", "--preserve-permissions", "--exclude=./dev/*", "--file", base, "-C", root])
        bare = _furnish(root)
        run(bare.command("true"), env=bare.environment)
        yield bare
    finally:
        _remove(place)


def _base() -> Path:
    """Return the archive of the file system, made first if the recipe has changed; earlier ones are removed."""
    name = f"{hashlib.sha256(repr(RECIPE).encode()).hexdigest()[:12]}.tar"
    archive = cache_dir() / "bare" / name
    if not archive.exists():
        packages.need("mmdebstrap")
        shutil.rmtree(archive.parent, ignore_errors=True)
        archive.parent.mkdir()
        partial = archive.with_suffix(".partial.tar")
        with step("building a bare Debian from packages"):
            run([*RECIPE, partial])
        partial.replace(archive)
    return archive


def _furnish(root: Path) -> Bare:
    """Copy the checkout and the settings of this machine into the file system, and say what is mounted into it."""
    same_debian = settings.is_suite(platform.freedesktop_os_release(), SUITE)
    found = settings.collect(os.environ, Path.home(), same_debian)
    if same_debian:
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
    for path in found.copied:
        _copy(path, root)
    _write_apt_settings(root)
    shutil.copytree(REPOSITORY, root / CHECKOUT.relative_to("/"), symlinks=True, ignore=ignored)
    caches, go, environment = [settings.cache_home()], [], _environment()
    if shutil.which("go"):
        home, modules = map(Path, run(["go", "env", "GOROOT", "GOMODCACHE"]).splitlines())
        caches, go = [*caches, modules], go_folders(home)
        environment |= {"GOMODCACHE": str(modules), "PATH": f"{home}/bin:{SEARCH_PATH}"}
    for path in caches:
        path.mkdir(parents=True, exist_ok=True)
    read = [path for path in found.read if not (root / path.relative_to("/")).exists()]
    return Bare(root, {**found.variables, **environment}, (*caches, *found.written), (*read, *go))


def _environment() -> dict[str, str]:
    """Return the variables that each bare machine has."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return {
        **({"XDG_CACHE_HOME": cache} if cache else {}),
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "CI": "true",
        "PATH": SEARCH_PATH,
        "UV_LINK_MODE": "copy",  # its cache is another mount
    }


def go_folders(home: Path) -> list[Path]:
    """Return the directories that make up the Go at `home`: Debian's keeps parts of it elsewhere, behind links."""
    return [home, *(each.resolve() for each in sorted(home.iterdir()) if each.is_symlink() and each.is_dir())]


def ignored(folder: str, names: list[str]) -> set[str]:
    """What of a folder is no part of a clean checkout."""
    built = {name for name in names if name == "__pycache__" or name.endswith((".egg-info", "_cache"))}
    return built | (set(names) & set(NOT_COPIED) if Path(folder) == REPOSITORY else set())


def _copy(path: Path, root: Path) -> None:
    """Put a file or a directory of this machine at the same path of the other, in place of what is there."""
    target = root / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(path, target, ignore_dangling_symlinks=True)
    else:
        target.unlink(missing_ok=True)
        shutil.copy(path, target)


def _write_apt_settings(root: Path) -> None:
    if shutil.which("apt-config"):
        text = settings.apt(run(["apt-config", "dump"]))
        (root / "etc/apt/apt.conf.d/99-this-machine").write_text(text)


def _remove(place: Path) -> None:
    """Remove a file system; its processes, killed a moment ago, may still write to it."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while place.exists():
        try:
            shutil.rmtree(place)
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(f"{place} cannot be removed: {error}") from error
            time.sleep(0.2)
