"""A copy of an installed package in which the text of some modules is another, with links for all others."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def make(place: Path, package: str, pattern: str, replacement: str) -> list[str]:
    """Make the copy in `place`, to be put on `sys.path`; the modules in which `pattern` was replaced."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    source, changed = Path(spec.origin).parent, re.compile(pattern, re.DOTALL)
    texts = {path: path.read_text() for path in source.rglob("*.py")}
    found = {path: changed.sub(replacement, text) for path, text in texts.items() if changed.search(text)}
    place.mkdir(parents=True)
    _link(place / package, source, found)
    return [str(path.relative_to(source)) for path in found]


def _link(target: Path, source: Path, changed: dict[Path, str]) -> None:
    """Link `target` to `source`, or make it a directory of links where a module within is changed."""
    if not any(source in path.parents for path in changed):
        return target.symlink_to(source)
    target.mkdir()
    for path in source.iterdir():
        if path in changed:
            (target / path.name).write_text(changed[path])
        elif path.name != "__pycache__":
            _link(target / path.name, path, changed)
        else:
            (target / path.name).mkdir()
            for cached in path.iterdir():
                if path.parent / f"{cached.name.partition('.')[0]}.py" not in changed:
                    (target / path.name / cached.name).symlink_to(cached)
    return None
