"""What is behind, as a table in Markdown: the locked Python packages, and the Go modules of the test programs.

    python -m testbed.outdated

A package stays in the list while another one holds it back (h5py by TensorFlow); so does an older minor version of
Kubernetes, whose newest patch is what counts. The package index and Go's module proxy are asked; nothing is written.
"""

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from testbed.binaries import BUILD_ENV, SOURCES
from testbed.shell import LabError, run, say

LOCKS = Path(__file__).parent.parent / "requirements"
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^\s;\\]+)", re.MULTILINE)
RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")  # to the end of the word: v1.38.0-beta.0 is none
UNKNOWN = "unknown"
Row = tuple[str, str, str, str]  # the name, the version here, the newest one to move to, and where it stands


def python_rows(locks: Iterable[Path], newest: dict[str, str]) -> list[Row]:
    """Return a row for each version in a lock that is not its package's newest one."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(locks):
        for name, version in PIN.findall(path.read_text()):
            found.setdefault((name, version), []).append(path.stem)
    return [
        (name, version, newest[name], ", ".join(where))
        for (name, version), where in sorted(found.items())
        if version != newest[name]
    ]


def newest_python(locks: Iterable[Path]) -> dict[str, str]:
    """Return the newest version of each locked package for Python 3.11, whatever the others allow."""
    names = sorted({name for path in locks for name, _ in PIN.findall(path.read_text())})
    words = ["pip", "compile", "-q", "-", "--no-deps", "--no-header", "--no-annotate", "--python-version", "3.11"]
    return dict(PIN.findall(run([Path(sys.executable).with_name("uv"), *words], stdin="\n".join(names))))


def moves(current: str, versions: Iterable[str]) -> str:
    """Return what to move to: the newest patch of this minor version, and the newest release where that is another."""
    releases = {
        tuple(int(part) for part in found.groups()): each for each in versions if (found := RELEASE.fullmatch(each))
    }
    here = RELEASE.match(current)
    if not here or not releases:
        return UNKNOWN
    minor = [key for key in releases if key[:2] == (int(here[1]), int(here[2]))]
    best = [*dict.fromkeys([releases[max(minor)] if minor else current, releases[max(releases)]])]
    return ", ".join(each for each in best if each != current) or current


def go_modules(told: str) -> dict[str, str]:
    """Return the modules that programs are built from, with their versions, of what `go mod edit -json` prints."""
    module = json.loads(told)
    tools = [each["Path"] + "/" for each in module.get("Tool") or []]  # their modules count as indirect
    required = {
        each["Path"]: each["Version"]
        for each in module["Require"]
        if not each.get("Indirect") or any(tool.startswith(each["Path"] + "/") for tool in tools)
    }
    # The version of one that is replaced stands with what replaces it.
    replaced = {each["Old"]["Path"]: each["New"].get("Version", "") for each in module.get("Replace") or []}
    return {path: replaced.get(path) or version for path, version in required.items()}


def go_rows(here: dict[str, dict[str, str]], listed: dict[str, list[str]]) -> list[Row]:
    """Return a row for each module that has a version to move to, or of which nothing is known."""
    found = [(path, version, folder) for folder, modules in here.items() for path, version in modules.items()]
    rows = [(path, version, moves(version, listed.get(path, [])), folder) for path, version, folder in found]
    return [row for row in rows if row[1] != row[2]]


def go_versions(told: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return what `go list -m -e -versions -json` tells: the versions of each module, and the refusals of the proxy."""
    modules = json.loads("[" + told.replace("}\n{", "},{") + "]")  # one object after the other
    refusals = [" ".join(each["Error"]["Err"].split()) for each in modules if "Error" in each]
    return {each["Path"]: each.get("Versions") or [] for each in modules}, refusals


def main() -> int:
    """Print the table; 1 where an index does not answer, or does not list the versions of a module: it says which."""
    locks = [*LOCKS.glob("*.txt")]
    folders = sorted(path.parent for path in SOURCES.glob("*/go.sum"))
    try:
        here = {path.name: go_modules(run(["go", "mod", "edit", "-json"], cwd=path)) for path in folders}
        modules = sorted({path for each in here.values() for path in each})
        asked = ["go", "list", "-m", "-e", "-versions", "-json", *modules]
        listed, refusals = go_versions(run(asked, cwd=SOURCES, env=os.environ | BUILD_ENV))
        rows = python_rows(locks, newest_python(locks)) + go_rows(here, listed)
    except LabError as error:
        say(f"error: {error}")
        return 1
    print(
        "| Package | Here | Newest | Where |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        sep="\n",
        flush=True,
    )
    unknown = sorted({name for name, _, newest, _ in rows if newest == UNKNOWN})
    if unknown:
        say(f"error: the module proxy lists no release of {', '.join(unknown)}: look yourself whether they are behind")
    for refusal in refusals:
        say(refusal)
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
