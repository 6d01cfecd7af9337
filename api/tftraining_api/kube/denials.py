"""Recognizes the API server's message about a denial by a webhook or an admission policy. Pure."""

import re

# The API server's message about a denial by a webhook or an admission policy, which choose the HTTP status.
_DENIAL = re.compile(r'^admission webhook "[^"]*" denied the request|with binding \'[^\']*\' denied request')


def is_denial(message: str) -> bool:
    """Whether a webhook or an admission policy has denied the request, by the server's words."""
    return _DENIAL.search(message) is not None
