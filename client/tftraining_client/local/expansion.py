"""`$(NAME)` in commands, arguments and variables, expanded exactly as the kubelet does.

`$$(NAME)` stands for a literal `$(NAME)`, and a name that is not known is left as it is written.
Source: third_party/forked/golang/expansion of Kubernetes.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with every reference to one of the variables replaced; values are not expanded again."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return variables.get(found[2], found[0])

    return _REFERENCE.sub(replaced, text)


def escape(text: str) -> str:
    """The text such that `expand` gives it back."""
    return text.replace("$", "$$")
