"""`python -m tftraining.launch.install DIRECTORY`: puts the launcher where a foreign image can run it.

The result is started as `python DIRECTORY -- command…` by any Python from 3.9 on; an older one says so and ends the
job. It must hold everything that the launcher imports, and needs to write nothing else.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# What programs of the user's own call: where to save, and how far they are.
FOR_PROGRAMS = ("__init__.py", "cluster.py", "paths.py", "report.py")


def install(directory: Path) -> None:
    """Copy the launcher into `directory`, which need not be there; OSError if it cannot."""
    package = directory / PACKAGE.name
    shutil.copytree(PACKAGE / "launch", package / "launch", ignore=_unwanted, dirs_exist_ok=True)
    for name in FOR_PROGRAMS:
        shutil.copy(PACKAGE / name, package / name)
    shutil.copy(PACKAGE / "launch" / "entry.py", directory / "__main__.py")


def _unwanted(_: str, names: list[str]) -> set[str]:
    return {name for name in names if not (name.endswith(".py") or name == "inject")}


def main(arguments: Sequence[str]) -> int:
    """Install; 0, or 1 or 2 after one line on what went wrong."""
    if len(arguments) != 1:
        print("usage: python -m tftraining.launch.install DIRECTORY", file=sys.stderr)
        return 2
    try:
        install(Path(arguments[0]))
    except OSError as error:
        print(f"tftraining: the launcher cannot be installed in {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
