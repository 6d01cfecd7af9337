"""`python -m tftraining.launch.install DIRECTORY`: copies the launcher to where the user's image can run it.

Any Python from 3.9 on runs the copy as `python DIRECTORY -- command…`; an older one reports that and fails the job. The
copy must hold every module that the launcher imports. The installer needs write access to DIRECTORY only, and with
--code to that directory too: the program of spec.code, from an archive or a Git repository.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tftraining.launch.git_checkout import checkout
from tftraining.launch.unpack import CodeError, unpack

PACKAGE = Path(__file__).parents[1]
# The modules for user programs: save directories, progress reports, backups in memory. And those of the cleanup, which
# needs the TensorFlow of the user's image to open a bucket.
FOR_PROGRAMS = ("__init__.py", "cluster.py", "memory_backup.py", "moving_statistics.py", "paths.py", "report.py")
FOR_CLEANUP = ("bucket_cleanup.py", "cleanup.py")


def install(directory: Path) -> None:
    """Copy the launcher into `directory`, which need not exist; OSError if that fails."""
    package = directory / PACKAGE.name
    shutil.copytree(PACKAGE / "launch", package / "launch", ignore=_unwanted, dirs_exist_ok=True)
    for name in FOR_PROGRAMS + FOR_CLEANUP:
        shutil.copy(PACKAGE / name, package / name)
    shutil.copy(PACKAGE / "launch" / "entry.py", directory / "__main__.py")


def _unwanted(_: str, names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(".py") and ("." in name or name == "__pycache__")}


def install_code(arguments: argparse.Namespace) -> None:
    """Bring the program into its directory; CodeError if that fails."""
    if arguments.git:
        checkout(arguments.git, arguments.revision, arguments.code, arguments.credentials)
    else:
        unpack(arguments.archive, arguments.digest, arguments.code)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tftraining.launch.install", allow_abbrev=False)
    add = parser.add_argument
    add("directory", type=Path, metavar="DIRECTORY", help="where the launcher is copied to")
    add("--code", type=Path, metavar="DIR", help="where the program is unpacked")
    add("--archive", type=Path, metavar="FILE", help="the program as a tar.gz file")
    add("--digest", metavar="DIGEST", help="the digest of the archive, sha256:…")
    add("--git", metavar="URL", help="the program as a Git repository")
    add("--revision", metavar="SHA", help="the commit")
    add("--credentials", type=Path, metavar="DIR", help="a directory with the files username and password")
    parsed = parser.parse_args(arguments)
    archive, git = (parsed.archive, parsed.digest), (parsed.git, parsed.revision)
    if parsed.code is not None and all(archive) == all(git):
        parser.error("--code needs --archive and --digest, or --git and --revision")
    return parsed


def main(arguments: Sequence[str]) -> int:
    """Install the launcher and the program; exit code 0, 1 after one error line; SystemExit(2) for wrong arguments."""
    parsed = _parse(arguments)
    try:
        install(parsed.directory)
    except OSError as error:
        print(f"tftraining: cannot install the launcher in {parsed.directory}: {error}", file=sys.stderr)
        return 1
    try:
        if parsed.code is not None:
            install_code(parsed)
    except CodeError as error:
        print(f"tftraining: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
