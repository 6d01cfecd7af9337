"""`$(NAME)` in commands, arguments and variables, expanded exactly as the kubelet does.

`$$(NAME)` stands for a literal `$(NAME)`. A reference to an unknown name stays as it is.
Source: third_party/forked/golang/expansion of Kubernetes.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with each reference to a known variable replaced; the values are not expanded again."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return variables.get(found[2], found[0])

    return _REFERENCE.sub(replaced, text)


def escape(text: str) -> str:
    """The text escaped such that `expand` returns the original."""
    return text.replace("$", "$$")
