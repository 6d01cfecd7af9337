"""The messages of a rejection: the same text as the API server's."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tftraining_client.errors import UserError
from tftraining_client.validation.crd import METADATA, CustomResource, fields

SIMILAR = 0.6  # of a name to a known one that is proposed
UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class InvalidManifest(UserError):
    """The problems of a manifest in the API server's words; one line each if there are several."""


class NotInstalled(UserError):
    """A package of the extra `local`, without which no manifest is validated on this machine."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"a manifest cannot be validated here without {package}: pip install jsonschema cel-expr-python "
            "(the extra local)"
        )


@dataclass(frozen=True)
class Problem:
    """A field and its error. The CEL rules are evaluated only if no problem `blocks` them."""

    field: str
    text: str
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.field or '<nil>'}: {self.text}"


def rejected(resource: CustomResource, job: dict[str, Any], problems: Sequence[Problem]) -> InvalidManifest:
    """The rejection of a decodable manifest."""
    lines = [str(each) for each in problems]
    if any(each.blocks and not each.field.startswith("metadata") for each in problems):
        lines.append(str(Problem("", f"Invalid value: null: {UNCHECKED}")))
    head = f'The {resource.kind} "{job["metadata"].get("name", "")}" is invalid: '
    return InvalidManifest(head + (lines[0] if len(lines) == 1 else "".join(f"\n* {line}" for line in lines)))


def nearest(name: str, known: Iterable[str], similar: float) -> str | None:
    """The known name that resembles the name, upper case or not."""
    lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), lower, 1, similar)
    return lower[near[0]] if near else None


def undecodable(resource: CustomResource, unknown: Sequence[str]) -> InvalidManifest:
    """The rejection of a manifest with unknown fields, and the nearest known ones."""
    fields = ", ".join(f'unknown field "{field}"' for field in unknown)
    kind = resource.kind
    return InvalidManifest(
        f'{kind} in version "{resource.version}" cannot be handled as a {kind}: strict decoding error: {fields}'
        + did_you_mean(unknown, resource.schema)
    )


def did_you_mean(unknown: Iterable[str], schema: dict[str, Any]) -> str:
    """The nearest known fields beside the unknown ones, as the end of a message: `; did you mean spec.replicas?`."""
    known = list(fields(schema))
    near = []
    for field in unknown:
        parent, _, name = field.rpartition(".")
        above = re.sub(r"\[\d+\]", "[]", parent)
        beside = [each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == above]
        if found := nearest(name, METADATA if parent == "metadata" else beside, SIMILAR):
            near.append(f"{parent}.{found}".lstrip("."))
    return f"; did you mean {' and '.join(near)}?" if near else ""
