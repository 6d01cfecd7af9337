"""The CEL rules of the CRD, evaluated as the API server does when an object is created.

Rules that read the old object apply to updates only and are skipped. The CEL project's own evaluator is used.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from tftraining_client.validation.problems import NotInstalled, Problem
from tftraining_client.validation.structure import Json, path_of

RULES = "x-kubernetes-validations"


def rule_problems(job: Json, schema: Json) -> list[Problem]:
    """The violations of the rules, in the order of the schema. The job must be structurally valid."""
    return list(_problems(job, schema, ()))


def _problems(value: Any, schema: Json, at: tuple[str | int, ...]) -> Iterator[Problem]:
    for rule in schema.get(RULES, ()):
        if not compares(rule) and not holds(rule["rule"], value):
            yield _problem(rule, schema["type"], path_of(at))
    if isinstance(value, dict):
        for name, below in schema.get("properties", {}).items():
            if name in value:
                yield from _problems(value[name], below, (*at, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, schema.get("items", {}), (*at, index))


def compares(rule: Json) -> bool:
    """Whether the rule compares with the old object."""
    return "oldSelf" in rule["rule"]


def _problem(rule: Json, kind: str, path: str) -> Problem:
    field = (path + rule.get("fieldPath", "")).removeprefix(".")
    if rule.get("reason") == "FieldValueRequired":
        return Problem(field, f"Required value: {rule['message']}")
    return Problem(field, f'Invalid value: "{kind}": {rule["message"]}')


def holds(rule: str, value: Any) -> bool:
    """Whether the rule allows the value; False if the evaluation fails."""
    result = compiled(rule).eval(data={"self": value})
    return result.type() == _cel().Type.BOOL and bool(result.value())


@cache
def compiled(rule: str) -> Any:
    """The compiled rule; RuntimeError if the rule is not CEL."""
    return _environment().compile(rule)


@cache
def _environment() -> Any:
    cel = _cel()
    from cel_expr_python.ext import ext_optional, ext_strings  # noqa: PLC0415  with the package itself

    extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    return cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN}, extensions=extensions)


def _cel() -> Any:
    """The evaluator. NotInstalled where its extra is not: Alpine, for one, has no wheel of it."""
    try:
        from cel_expr_python import cel  # noqa: PLC0415  of an extra
    except ImportError as error:
        raise NotInstalled("cel-expr-python") from error
    return cel
