"""The custom resource definition of the checkout, parsed once a process: it is large, and many tests read it."""

from copy import deepcopy
from functools import cache
from typing import Any

import yaml

from tests.support.repository import REPOSITORY

PATH = REPOSITORY / "crds" / "tftrainingjobs.yaml"


@cache
def _parsed() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.load(PATH.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return parsed


def definition() -> dict[str, Any]:
    """A copy of the definition, which the caller may change."""
    return deepcopy(_parsed())
