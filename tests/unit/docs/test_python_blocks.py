"""The Python of the pages calls the client as it is: names to import, methods, arguments, options of functions."""

import ast
import inspect
from collections.abc import Iterator

import pytest

import tftraining_client
from tests.support.page_commands import blocks
from tests.unit.docs.test_paths import PAGES
from tftraining_client import AsyncClient, Client
from tftraining_client.function_job import Options

PACKAGE = "tftraining_client"
FUNCTIONS = ("distributed", "from_function")


def trees() -> Iterator[ast.Module]:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python" and PACKAGE in block.text:
                yield ast.parse(block.text)


def wrong(tree: ast.Module) -> list[str]:
    """What a block does that the package does not have."""
    return [problem for node in ast.walk(tree) for problem in (*_imports(node), *_calls(node))]


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
        yield from (f"no {each.name}" for each in node.names if not hasattr(tftraining_client, each.name))


def _calls(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    named = {each.arg: None for each in node.keywords if each.arg}
    if isinstance(node.func, ast.Name) and node.func.id in ("Client", "AsyncClient"):
        yield from _bound(getattr(tftraining_client, node.func.id), node, named)
    elif isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        yield from (f"no option {name}" for name in named if name not in Options.__dataclass_fields__)
    elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        method = node.func.attr
        if node.func.value.id == "client":
            for cls in (Client, AsyncClient):
                yield from _bound(getattr(cls, method, None), node, named, None) if method != "close" else ()


def _bound(function: object, node: ast.Call, named: dict[str, None], *first: None) -> Iterator[str]:
    try:
        if not callable(function):
            raise TypeError("no such method")
        inspect.signature(function).bind(*first, *node.args, **named)
    except TypeError as error:
        yield f"{ast.unparse(node)}: {error}"


def test_the_blocks_call_the_client_as_it_is() -> None:
    found = list(trees())
    assert len(found) >= 5
    assert [problem for tree in found for problem in wrong(tree)] == []


@pytest.mark.parametrize(
    "code",
    [
        f"from {PACKAGE} import Cleint",
        "client.histroy('digits')",
        "client.logs('digits', folow=True)",
        "Client(name_space='team')",
        "from_function(train, 1, worker=2)",
    ],
)
def test_a_misspelt_call_is_found(code: str) -> None:
    assert wrong(ast.parse(code))
