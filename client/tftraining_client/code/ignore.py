"""Which files of a directory belong to the program: all but those that its ignore files exclude.

.tftjignore in the directory itself has the syntax of .gitignore and precedence over it: `!labels.txt` brings back a
file that git does not track.
"""

from pathlib import Path, PurePosixPath

import pathspec

GITIGNORE, OWN = ".gitignore", ".tftjignore"
# Never part of a program. A virtual environment is recognised by its pyvenv.cfg.
ALWAYS = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".DS_Store", ".venv", OWN})


class IgnoreRules:
    """The rules of a directory. `enter` must be called for each directory before its entries are asked about."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own = _read(root / OWN)
        self._git: dict[PurePosixPath, pathspec.GitIgnoreSpec] = {}

    def enter(self, directory: PurePosixPath) -> None:
        """Read the .gitignore of a directory, given relative to the root."""
        if (rules := _read(self._root / directory / GITIGNORE)) is not None:
            self._git[directory] = rules

    def excludes(self, path: PurePosixPath, is_directory: bool) -> bool:
        """Whether the entry, given relative to the root, is excluded."""
        if path.name in ALWAYS or (is_directory and (self._root / path / "pyvenv.cfg").exists()):
            return True
        end = "/" if is_directory else ""
        if self._own is not None and (decided := self._own.check_file(f"{path}{end}").include) is not None:
            return decided
        # The nearest .gitignore that has a pattern for the entry decides.
        for directory in path.parents:
            if rules := self._git.get(directory):
                decided = rules.check_file(f"{path.relative_to(directory)}{end}").include
                if decided is not None:
                    return decided
        return False


def _read(path: Path) -> pathspec.GitIgnoreSpec | None:
    if not path.is_file():
        return None
    return pathspec.GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8", errors="replace").splitlines())
