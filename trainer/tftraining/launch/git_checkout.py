"""A commit of a Git repository (spec.code.git) becomes a directory, by the program git of the image, or by the library
dulwich, which the operator's image has.

Name and password of a private repository come from files, which only git's credential helper or the
library reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from tftraining.launch.unpack import CodeError, check_links, clear

NO_GIT = (
    "spec.code.git needs the program git or the Python package dulwich in the launcher's image: leave out "
    "spec.launcher.image (the operator's image has dulwich), set it to an image with one of them, or use "
    "spec.code.configMap (`tftj submit --code`)"
)
PROGRAM = "git"
LIBRARY, FETCH_WITH_LIBRARY = "dulwich", "tftraining.git_fetch"
_SHA256_DIGITS = 64
ATTEMPTS, WAIT_SECONDS, FETCH_SECONDS = 3, 2.0, 600.0
# Git asks nobody, takes no settings of the image, and runs no hook.
_SETTINGS = ("safe.directory=*", "core.hooksPath=/dev/null", "advice.detachedHead=false", "credential.helper=")
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
_HELPER = (
    '!f() {{ test "$1" = get && printf "username=%s\\npassword=%s\\n" '
    '"$(cat {0}/username)" "$(cat {0}/password)"; }}; f'
)


def checkout(url: str, revision: str, directory: Path, credentials: Path | None = None) -> None:
    """Replace the contents of `directory` by the files of the commit, without history. CodeError if that fails."""
    if shutil.which(PROGRAM) is not None:
        fetch = _by_program
    elif find_spec(LIBRARY) is not None:
        fetch = _by_library
    else:
        raise CodeError(NO_GIT)
    for left in reversed(range(ATTEMPTS)):
        try:
            clear(directory)
            fetch(url, revision, directory, credentials)
            break
        except OSError as error:
            raise CodeError(f"cannot write the files of {url}: {error}") from error
        except CodeError as error:
            # A failure may be the network's.
            if not left:
                raise CodeError(f"cannot fetch {revision} of {url}: {error}") from None
            time.sleep(WAIT_SECONDS)
    check_links(directory)


def _by_program(url: str, revision: str, directory: Path, credentials: Path | None) -> None:
    # Only for a repository of that kind: older versions of git know no other than SHA-1, and no option.
    kind = ["--object-format=sha256"] if len(revision) == _SHA256_DIGITS else []
    _git(directory, "", "init", "--quiet", *kind)
    helper = _helper(url, credentials)
    _git(directory, helper, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, revision)
    _git(directory, "", "checkout", "--quiet", "--detach", revision)
    shutil.rmtree(directory / ".git")


def _by_library(url: str, revision: str, directory: Path, credentials: Path | None) -> None:
    """By a program of its own: this package is for images with nothing but Python."""
    secret = [] if credentials is None else [f"--credentials={credentials}"]
    _run([sys.executable, "-m", FETCH_WITH_LIBRARY, *secret, "--", url, revision, str(directory)], "the fetch", {})


def _helper(url: str, credentials: Path | None) -> str:
    """The setting of the credential helper, for the host of the URL alone: the host may redirect to another one."""
    server = urlsplit(url)
    return (
        ""
        if credentials is None
        else f"credential.{server.scheme}://{server.netloc}.helper={_HELPER.format(credentials)}"
    )


def _git(directory: Path, helper: str, *words: str) -> None:
    settings = (*_SETTINGS, *([helper] if helper else []))
    command = [PROGRAM, *(word for each in settings for word in ("-c", each)), "-C", str(directory), *words]
    _run(command, f"git {words[0]}", _ENVIRONMENT)


def _run(command: list[str], name: str, environment: dict[str, str]) -> None:
    """Run a program; CodeError with its last line if it fails."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CodeError(f"{name} did not end within {FETCH_SECONDS:.0f} s") from None
    if done.returncode:
        raise CodeError((done.stderr.strip().splitlines() or [f"{name}: exit code {done.returncode}"])[-1])
