"""Shows which small changes of the pure modules below some directories no test notices.

The sample is the same in every run, and spread over the modules by their size. A change that nobody could notice is in
`equivalents.toml` with the reason.
"""

import argparse
import ast
import os
import pickle
import random
import sys
import tomllib
from pathlib import Path

from .mutations import Mutant, mutants
from .runner import Runs, Trial, judge, preload, watch

HERE = Path(__file__).parent
EQUIVALENTS = HERE / "equivalents.toml"
SEED = 13
# A module that imports one of these is not pure: it has a clock, a socket, a file, a process or the interpreter itself.
IMPURE = {
    *("asyncio", "ctypes", "fcntl", "importlib", "os", "pathlib", "selectors", "shutil", "socket", "subprocess", "sys"),
    *("tempfile", "threading", "time", "urllib"),
}
Key = tuple[str, str, str, str]
Sampled = tuple[Path, Mutant]


def pure(path: Path) -> bool:
    """Whether the module imports nothing that reaches outside."""
    names = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.name for node in names if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in names if isinstance(node, ast.ImportFrom)}
    return not {name.split(".")[0] for name in imported} & IMPURE


def sample(modules: list[Path], count: int) -> list[Sampled]:
    """So many changes, of each module its share; a change of one module changes little of what others give."""
    ranked: list[tuple[float, Path, Mutant]] = []
    for path in modules:
        found = mutants(path.read_text())
        random.Random(f"{SEED} {path.name}").shuffle(found)
        ranked += [((rank + 0.5) / len(found), path, mutant) for rank, mutant in enumerate(found)]
    chosen = sorted(ranked, key=lambda each: (each[0], each[1]))[:count]
    return sorted(((path, mutant) for _, path, mutant in chosen), key=lambda each: (each[0], each[1].number))


def key(path: Path, mutant: Mutant) -> Key:
    """What a change is known by: it stays when lines or directories move."""
    return path.stem, mutant.function, mutant.before, mutant.after


def equivalents() -> set[Key]:
    """The changes that nobody could notice."""
    listed = tomllib.loads(EQUIVALENTS.read_text()).get("equivalent", [])
    return {(each["module"], each["function"], each["before"], each["after"]) for each in listed if each["reason"]}


def place(path: Path, mutant: Mutant) -> str:
    """Where a change is, for a person."""
    return f"{os.path.relpath(path)}:{mutant.first} {mutant.function}"


def survivors(chosen: list[Sampled], runs: Runs, tests: list[str]) -> list[Sampled]:
    """The changes that no test noticed, each shown as soon as that is known."""
    alive: list[Sampled] = []
    for number, (trial, survives) in enumerate(judge([_trial(*each, runs) for each in chosen], tests), 1):
        if survives:
            shown = [*_lines("-", trial.mutant.before), *_lines("+", trial.mutant.after)]
            print(f"{place(trial.path, trial.mutant)} ({len(trial.tests)} tests)", *shown, sep="\n  ", flush=True)
            alive.append((trial.path, trial.mutant))
        if sys.stderr.isatty() or number % 20 == 0:
            print(f"{number} of {len(chosen)}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    return alive


def _trial(path: Path, mutant: Mutant, runs: Runs) -> Trial:
    tests = tuple(runs.of(path, mutant))
    # The times were taken line by line, which takes several times as long.
    return Trial(path, path.read_text(), mutant, tests, 20 + sum(runs.seconds[test] for test in tests))


def _lines(sign: str, text: str) -> list[str]:
    return [f"{sign} {line}" for line in text.splitlines()]


def options() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIRECTORY", help="modules to change")
    parser.add_argument("--tests", nargs="+", required=True, metavar="DIRECTORY", help="tests that should fail")
    parser.add_argument("--count", type=int, default=220, help="changes per directory (default: 220)")
    parser.add_argument(
        "--least", type=float, default=93, help="required share of noticed changes, in %% (default: 93)"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only changes whose `path:line name` contains this text"
    )
    parser.add_argument("--lines", type=Path, metavar="FILE", help="file that caches which tests run which line")
    return parser.parse_args()


def lines(asked: argparse.Namespace, modules: list[Path]) -> Runs:
    """Which tests run which line."""
    if asked.lines and asked.lines.exists():
        kept = pickle.loads(asked.lines.read_bytes())
        assert isinstance(kept, Runs)
        return kept
    runs = watch(modules, asked.tests)
    if asked.lines:
        asked.lines.write_bytes(pickle.dumps(runs))
    return runs


def main() -> int:
    """Run it; return 1 if too little was noticed."""
    asked = options()
    os.nice(19)
    groups = {root: sorted(filter(pure, root.resolve().rglob("*.py"))) for root in asked.directories}
    runs = lines(asked, [path for modules in groups.values() for path in modules])
    print("".join(f"left out, as it fails by itself: {test}\n" for test in sorted(runs.failed)), end="", flush=True)
    preload(runs)
    shares = [noticed(root, sample(modules, asked.count), runs, asked) for root, modules in groups.items()]
    return int(min(shares) < asked.least)


def noticed(root: Path, chosen: list[Sampled], runs: Runs, asked: argparse.Namespace) -> float:
    """The share of the changes that tests notice, or that nobody could; in percent."""
    known = equivalents()
    chosen = [each for each in chosen if asked.only in place(*each)]
    rest = [each for each in chosen if key(*each) not in known]
    alive, judged = len(survivors(rest, runs, asked.tests)), len(chosen) - len(rest)
    share = 100 * (1 - alive / max(1, len(chosen)))
    told = f"{len(rest) - alive} noticed, {judged} that nobody could notice, {alive} not noticed: {share:.1f} %"
    print(f"{root}: {len(chosen)} changes, {told}", flush=True)
    return share


if __name__ == "__main__":
    sys.exit(main())
