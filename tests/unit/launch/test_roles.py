"""The table of roles is the only place that knows what a role does."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.support.crd import definition
from tests.support.repository import REPOSITORY
from tftraining.launch import roles
from tftraining_api.model.spec import ReplicaSpecs

CRD: dict[str, Any] = definition()
SPEC: dict[str, Any] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
DECIDING = ("api", "operator", "client", "trainer/tftraining/launch")
# TensorFlow's own rules by the name of a task, inside the program: these modules import nothing else of the launcher.
OF_TENSORFLOW = REPOSITORY / "trainer" / "tftraining" / "launch" / "in_user_process"
# The roles of a TFJob, which `tftj convert` reads.
OF_TFJOBS = REPOSITORY / "client" / "tftraining_client" / "tfjob"


def test_the_roles_are_those_of_the_custom_resource() -> None:
    assert roles.ROLES == ReplicaSpecs.__struct_fields__ == get_args(roles.RoleName)
    assert set(roles.ROLES) == set(SPEC["replicaSpecs"]["properties"])


@pytest.mark.parametrize(
    ("member", "outside"),
    [("evaluator-0", True), ("worker-1", False), ("ps-0", False), ("evaluator", False), ("stranger-0", False)],
)
def test_only_a_replica_of_such_a_role_is_outside_the_gang(member: str, outside: bool) -> None:
    assert roles.is_outside_gang(member) is outside


def test_there_is_no_other_role() -> None:
    with pytest.raises(KeyError):
        roles.traits_of("stranger-0")


def sources() -> Iterator[Path]:
    for place in DECIDING:
        paths = (REPOSITORY / place).rglob("*.py")
        yield from (
            path for path in paths if not {OF_TENSORFLOW, OF_TFJOBS} & {*path.parents} and path.name != "roles.py"
        )


def comparisons(tree: ast.AST) -> Iterator[int]:
    """The lines that compare something with the name of a role, or look it up by that name."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += node.args if isinstance(node, ast.Call) else []
        # Literal["worker"] is the type of an option's values, which decides nothing.
        parts += [node.slice] if isinstance(node, ast.Subscript) and ast.unparse(node.value) != "Literal" else []
        words = [each for part in parts for each in (part.elts if isinstance(part, ast.Tuple | ast.List) else [part])]
        if any(isinstance(each, ast.Constant) and str(each.value).strip("-=") in roles.ROLES for each in words):
            yield node.lineno  # type: ignore[attr-defined]


def test_no_other_module_asks_for_a_role_by_its_name() -> None:
    found = [f"{path}:{line}" for path in sources() for line in comparisons(ast.parse(path.read_text("utf-8")))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ['role == "worker"', 'role in ("ps", "evaluator")', 'spec.role("chief")', 'all["ps"]', 'x.startswith("ps-")'],
)
def test_such_a_question_is_found(line: str) -> None:
    assert list(comparisons(ast.parse(line))) == [1]
