"""Which files of a directory belong to the program: all but those that its ignore files exclude, and credentials.

.tftjignore in the directory itself has the syntax of .gitignore and precedence over it: `!labels.txt` brings back a
file that git does not track, `!.env` one that looks like a credential.
"""

import os
import re
import subprocess
from pathlib import Path, PurePosixPath

import pathspec

from tftraining_client.code.secret_files import is_secret

GITIGNORE, OWN = ".gitignore", ".tftjignore"
PROGRAM = "git"  # it may be missing: then only its files count
GIT_SECONDS = 10.0
# Never part of a program. A virtual environment is recognised by its pyvenv.cfg.
ALWAYS = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".DS_Store", ".venv", OWN})


class IgnoreRules:
    """The rules of a directory. `enter` must be called for each directory before its entries are asked about.
    `left_out` are the entries that would belong to the program if they were no credentials."""

    def __init__(self, root: Path) -> None:
        self.left_out: list[str] = []
        self._root = root
        self._own = _lines(root / OWN)
        self._own_rules = _rules(self._own)
        self._git: dict[PurePosixPath, pathspec.GitIgnoreSpec] = {}
        self._above = _rules_above(root.resolve())

    def enter(self, directory: PurePosixPath) -> None:
        """Read the .gitignore of a directory, given relative to the root."""
        if lines := _lines(self._root / directory / GITIGNORE):
            self._git[directory] = _rules(lines)

    def excludes(self, path: PurePosixPath, is_directory: bool) -> bool:
        """Whether the entry, given relative to the root, is excluded."""
        if path.name in ALWAYS or (is_directory and (self._root / path / "pyvenv.cfg").exists()):
            return True
        text = f"{path}{'/' if is_directory else ''}"
        own = self._own_rules.check_file(text)
        if own.include if own.include is not None else self._excluded_by_git(path, text):
            return True
        if is_secret(self._root / path, is_directory) and not self._is_named(own):
            self.left_out.append(text)
            return True
        return False

    def _excluded_by_git(self, path: PurePosixPath, text: str) -> bool:
        """The nearest ignore file that has a pattern for the entry decides."""
        within = [(rules, f"{each}/") for each in path.parents if (rules := self._git.get(each)) is not None]
        for rules, prefix in within:
            decided = rules.check_file(text.removeprefix(prefix)).include
            if decided is not None:
                return bool(decided)
        for rules, prefix in self._above:
            decided = rules.check_file(f"{prefix}/{text}".removeprefix("./")).include
            if decided is not None:
                return bool(decided)
        return False

    def _is_named(self, own: pathspec.util.CheckResult[str]) -> bool:
        """Whether .tftjignore brings the entry back by a pattern with a letter of its name: `!*` names nothing."""
        if own.include is not False or own.index is None:
            return False
        return re.search(r"\w", self._own[own.index].rstrip("/").rpartition("/")[2]) is not None


def _rules_above(root: Path) -> list[tuple[pathspec.GitIgnoreSpec, str]]:
    """The ignore files between the directory and the top of its git repository, the nearest first, and then those of
    the repository and of the person, each with the path from its place to the directory. None count if they exclude the
    directory itself: the user has named it."""
    top = next((each for each in (root, *root.parents) if (each / ".git").exists()), None)
    if top is None:
        return []
    places = [each for each in root.parents if each == top or top in each.parents]
    found = [(_rules(_lines(each / GITIGNORE)), root.relative_to(each).as_posix()) for each in places]
    found += [(_rules(_lines(each)), root.relative_to(top).as_posix()) for each in _private_files(root, top)]
    excluded = any(rules.check_file(f"{prefix}/").include for rules, prefix in found if prefix != ".")
    return [] if excluded else found


def _private_files(root: Path, top: Path) -> list[Path]:
    """The repository's `info/exclude`, and the file `core.excludesFile` of the person."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    exclude = _git(root, "rev-parse", "--git-path", "info/exclude") or str(top / ".git" / "info" / "exclude")
    own = _git(root, "config", "--path", "core.excludesFile") or str(config / "git" / "ignore")
    return [root / exclude, root / own]


def _git(directory: Path, *arguments: str) -> str:
    """What git says; "" where it is not installed, or says nothing."""
    try:
        command = [PROGRAM, "-C", str(directory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.rstrip("\n")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def _rules(lines: list[str]) -> pathspec.GitIgnoreSpec:
    return pathspec.GitIgnoreSpec.from_lines(lines)
