"""A commit of a Git repository (spec.code.git) becomes a directory, by the program git of the image.

Name and password of a private repository come from files, which only git's credential helper reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from tftraining.launch.unpack import CodeError, check_links, clear

NO_GIT = (
    "spec.code.git needs the program git in the launcher's image: set spec.launcher.image to an image with both, or "
    "use spec.code.configMap (`tftj submit --code`)"
)
PROGRAM = "git"
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
    if shutil.which(PROGRAM) is None:
        raise CodeError(NO_GIT)
    try:
        clear(directory)
        _git(directory, "", "init", "--quiet")
        _fetch(url, revision, directory, credentials)
        _git(directory, "", "checkout", "--quiet", "--detach", revision)
        shutil.rmtree(directory / ".git")
    except OSError as error:
        raise CodeError(f"cannot write the files of {url}: {error}") from error
    check_links(directory)


def _fetch(url: str, revision: str, directory: Path, credentials: Path | None) -> None:
    """Fetch the commit alone; again after a failure, which may be the network's."""
    helper = _helper(url, credentials)
    for left in reversed(range(ATTEMPTS)):
        try:
            _git(directory, helper, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, revision)
            return
        except CodeError as error:
            if not left:
                raise CodeError(f"cannot fetch {revision} of {url}: {error}") from None
            time.sleep(WAIT_SECONDS)


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
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CodeError(f"git {words[0]} did not end within {FETCH_SECONDS:.0f} s") from None
    if done.returncode:
        raise CodeError((done.stderr.strip().splitlines() or [f"git {words[0]}: exit code {done.returncode}"])[-1])
