"""What Kubernetes is going to remove, and was asked for: APIs, which an API server counts, and fields, of which it
warns in its answers to the tests, and to the operator, which logs that.
"""

import re
from collections.abc import Iterable

COUNTED = re.compile(
    r'^apiserver_requested_deprecated_apis\{group="(.*?)",.*,resource="(.*?)",.*version="(.*?)"\}', re.M
)
OF_KUBERNETES = {"/v1 endpoints"}  # its own controllers and proxies ask for them
ASKED_ON_PURPOSE = "/v1 componentstatuses"  # by the tests of this check
WARNING = re.compile(r"\b(299 \S+|API server warns:) .*(deprecated|non-functional)")


def deprecated_apis(metrics: str) -> set[str]:
    """The APIs of an API server's metrics, as GROUP/VERSION RESOURCE, but for those of Kubernetes' own programs."""
    found = {f"{group}/{version} {resource}" for group, resource, version in COUNTED.findall(metrics)}
    return found - OF_KUBERNETES


def deprecations(lines: Iterable[str]) -> list[str]:
    """Which of these headers, or lines of a log, warn of what Kubernetes is going to remove, or has no use for."""
    return [each for each in lines if WARNING.search(each)]
