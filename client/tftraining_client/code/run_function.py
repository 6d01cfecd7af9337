"""Runs the function of `tftraining_client.from_function` in a pod. A copy travels with each function, to any Python.

The packages that the function asks for are installed first, once a container, in its directory for temporary files. A
package that the image has stays as it is: another TensorFlow or NumPy beside the imported one would be a mixture.
"""

import hashlib
import os
import pickle
import re
import shutil
import site
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

OTHER_PYTHON = (
    "the function was pickled by Python {}.{}, but the image has Python {}.{}: use an image with the first, or call "
    "from_function in the second"
)
HERE = Path(__file__).parent
PACKAGES = HERE / "function-packages.txt"
# As a constraint pip takes no other form of a version.
VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?", re.IGNORECASE)
FAILED = "the packages of the function cannot be installed ({}): {}"
NO_NETWORK = "the pod has no way to the index: set env PIP_INDEX_URL to one that it reaches, or use an image with them"


def load() -> Any:
    """The function with its arguments. ImportError, which no restart follows, for another Python than that of the
    pickle: the bytecode of a function holds for one minor version only."""
    with (HERE / "function.pkl").open("rb") as file:
        wanted = tuple(pickle.load(file))
        if sys.version_info[:2] != wanted:
            raise ImportError(OTHER_PYTHON.format(*wanted, *sys.version_info[:2]))
        if PACKAGES.exists():
            install(PACKAGES.read_text("utf-8"))
        return pickle.load(file)


def install(requirements: str) -> None:
    """Install the packages, unless this container has them, and find them. RuntimeError if they cannot be had."""
    image = "".join(f"{name}=={version}\n" for name, version in sorted(package_versions().items()))
    key = hashlib.sha256(f"{requirements}\n{image}\n{sys.version}".encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"tftraining-packages-{key}"
    if not is_own(place):
        part = place.with_name(f"{place.name}.{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        try:
            (part / "constraints.txt").write_text(image, "utf-8")
            run_pip(part, requirements)
            part.rename(place)
        except OSError:
            # Another worker of this machine has been faster; a directory of another user is not trusted.
            if not is_own(place):
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    for directory in sorted(place.glob("**/python*/*-packages")):
        site.addsitedir(str(directory))
        # For the Pythons that the function starts.
        others = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        os.environ["PYTHONPATH"] = os.pathsep.join([*others, str(directory)])


def is_own(directory: Path) -> bool:
    """Whether it is of this user: the place for temporary files of a machine belongs to all its users."""
    return directory.is_dir() and not directory.is_symlink() and directory.stat().st_uid == os.getuid()


def package_versions() -> dict[str, str]:
    """The packages of the image with their versions; the first of a name is the one that Python imports."""
    found: dict[str, str] = {}
    for each in distributions():
        name, version = each.metadata["Name"], each.version
        if name and version and VERSION.fullmatch(version):
            found.setdefault(name, version)
    return found


def run_pip(directory: Path, requirements: str) -> None:
    """Install below the directory what the image does not have."""
    names = ", ".join(requirements.split("\n")[:-1])
    print(f"tftraining: installing the packages of the function: {names}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-cache-dir", "--no-warn-script-location", "--prefix", str(directory)]
    command += ["--constraint", str(directory / "constraints.txt"), "--requirement", str(PACKAGES)]
    # Without a directory for temporary files Python takes the working directory, which is another one for pip.
    env = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    done = subprocess.run(
        command, cwd="/", env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise RuntimeError(FAILED.format(names, why(done.stderr)))


def why(text: str) -> str:
    """The cause in the output of pip, in one line."""
    if "No module named pip" in text:
        return "the image has no pip; use an image with them"
    if re.search(r"Failed to establish a new connection|NewConnectionError|ConnectTimeout|name resolution", text):
        return NO_NETWORK
    errors = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("ERROR: ")]
    return " ".join(" ".join(errors or text.splitlines()[-1:]).split())[:500] or "pip has ended without a message"


if __name__ == "__main__":
    load()()
