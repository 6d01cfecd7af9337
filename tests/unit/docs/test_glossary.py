"""The glossary of docs/concepts.md holds for the code: its names exist, and a term has no other name."""

import ast
import importlib
import inspect
import re
from functools import cache, reduce
from importlib.util import find_spec
from types import ModuleType

import pytest

from tests.support.repository import REPOSITORY

PAGE = (REPOSITORY / "docs" / "concepts.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([\w -]+?) \| [^|]+ \| `([\w.]+)` \|([^|]*)\|$", PAGE.partition("\n## Glossary\n")[2], re.MULTILINE
)
PACKAGES = ("api/tftraining_api", "operator/tftraining_operator", "trainer/tftraining", "client/tftraining_client")


@cache
def nodes() -> tuple[ast.AST, ...]:
    """All nodes of the product's code."""
    files = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    return tuple(node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def defined_and_used() -> set[str]:
    """The names of variables, attributes, functions and classes, without a leading underscore."""
    fields = [
        (ast.Name, "id"),
        (ast.Attribute, "attr"),
        (ast.arg, "arg"),
        (ast.FunctionDef, "name"),
        (ast.ClassDef, "name"),
    ]
    return {getattr(node, field).lstrip("_") for node in nodes() for kind, field in fields if isinstance(node, kind)}


def test_every_row_has_a_term_of_its_own() -> None:
    lines = PAGE.partition("\n## Glossary\n")[2].count("\n| ")
    assert len({term for term, _, _ in ROWS}) == len(ROWS) == lines - 1 > 25


def test_a_term_has_none_of_its_other_names_in_the_code() -> None:
    banned = {name for _, _, never in ROWS for name in re.findall(r"`(\w+)`", never)}
    assert len(banned) >= 3 and banned & defined_and_used() == set()


def has(owner: object, name: str) -> bool:
    """Whether the class has this field, or its instances this attribute."""
    fields = {field for each in getattr(owner, "__mro__", ()) for field in getattr(each, "__annotations__", ())}
    return hasattr(owner, name) or name in fields or f"self.{name}" in inspect.getsource(owner)  # type: ignore[arg-type]


def split(name: str) -> tuple[ModuleType, list[str]]:
    """The module of a dotted name, and the rest of the name."""
    parts = name.split(".")
    at = next(at for at in range(2, len(parts)) if find_spec(".".join(parts[:at])).submodule_search_locations is None)  # type: ignore[union-attr]
    return importlib.import_module(".".join(parts[:at])), parts[at:]


@pytest.mark.parametrize(("term", "name"), [row[:2] for row in ROWS])
def test_a_term_is_where_the_page_says(term: str, name: str) -> None:
    module, (*owners, last) = split(name)
    assert has(reduce(getattr, owners, module), last), term
