"""`python -m tftraining.launch.install DIRECTORY`: copies the launcher to where the user's image can run it.

Any Python from 3.9 on runs the copy as `python DIRECTORY -- command…`; an older one reports that and fails the job. The
copy must hold every module that the launcher imports. The installer needs write access to DIRECTORY only.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# The modules for user programs: save directories, progress reports, backups in memory.
FOR_PROGRAMS = ("__init__.py", "cluster.py", "memory_backup.py", "paths.py", "report.py")


def install(directory: Path) -> None:
    """Copy the launcher into `directory`, which need not exist; OSError if that fails."""
    package = directory / PACKAGE.name
    shutil.copytree(PACKAGE / "launch", package / "launch", ignore=_unwanted, dirs_exist_ok=True)
    for name in FOR_PROGRAMS:
        shutil.copy(PACKAGE / name, package / name)
    shutil.copy(PACKAGE / "launch" / "entry.py", directory / "__main__.py")


def _unwanted(_: str, names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(".py") and ("." in name or name == "__pycache__")}


def main(arguments: Sequence[str]) -> int:
    """Install the launcher; exit code 0, or 1 or 2 after one error line."""
    if len(arguments) != 1:
        print("usage: python -m tftraining.launch.install DIRECTORY", file=sys.stderr)
        return 2
    try:
        install(Path(arguments[0]))
    except OSError as error:
        print(f"tftraining: cannot install the launcher in {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
