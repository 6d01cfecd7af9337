"""What differs between a TFJob and the job made of it. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tftraining_client.errors import UserError

Json = dict[str, Any]
NO_COUNTERPART = "has no counterpart, and is left out"
# Of Helm, Jinja, Argo and shells.
_VARIABLE = re.compile(r"\{\{.*?\}\}|\$\{.*?\}|\$\(.*?\)|\$\w+|<[A-Za-z_][\w -]*>")


@dataclass(frozen=True)
class Note:
    """One difference: the field of the TFJob, and what became of it."""

    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


@dataclass
class Notes:
    """The differences found so far; the same one is told once, whatever the number of its roles."""

    found: list[Note] = field(default_factory=list)

    def add(self, where: str, text: str) -> None:
        """Note a difference."""
        if (note := Note(where, text)) not in self.found:
            self.found.append(note)


def leave_out(given: Json, where: str, known: Collection[str], notes: Notes, text: str = NO_COUNTERPART) -> None:
    """Note each field of an object that is set and not known."""
    for name in sorted(name for name, value in given.items() if value is not None and name not in known):
        notes.add(f"{where}.{name}", text)


def check_filled_in(text: str, where: str) -> None:
    """UserError if a name has a variable of Helm, Jinja, Argo or a shell: Kubernetes replaces none in names."""
    if found := _VARIABLE.search(text):
        raise UserError(f"{where} has the variable {found[0]}, which nothing has replaced: {text}")


def mapping(value: Any, where: str) -> Json:
    """The object at a field, empty if it is unset; UserError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{where} must be an object")
    return value


def items(value: Any, where: str) -> list[Json]:
    """The objects in the list at a field, none if it is unset; UserError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UserError(f"{where} must be a list of objects")
    return value


def strings(value: Any, where: str) -> list[str]:
    """The strings in the list at a field, none if it is unset; UserError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UserError(f"{where} must be a list of strings")
    return value


def whole(value: Any, where: str) -> int | None:
    """The number at a field, None if it is unset; UserError for anything else."""
    if value is not None and type(value) is not int:
        raise UserError(f"{where} must be a whole number")
    return value
