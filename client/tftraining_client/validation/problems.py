"""The messages of a rejection: the same text as the API server's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tftraining_client.errors import UserError
from tftraining_client.validation.crd import CustomResource

UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class InvalidManifest(UserError):
    """The problems of a manifest in the API server's words; one line each if there are several."""


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


def undecodable(resource: CustomResource, unknown: Sequence[str]) -> InvalidManifest:
    """The rejection of a manifest with unknown fields."""
    fields = ", ".join(f'unknown field "{field}"' for field in unknown)
    kind = resource.kind
    return InvalidManifest(
        f'{kind} in version "{resource.version}" cannot be handled as a {kind}: strict decoding error: {fields}'
    )
