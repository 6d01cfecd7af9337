"""The warnings that an API server sends with an answer: of an API or a field that Kubernetes is going to remove, of a
field that it drops, of a policy that a pod does not meet. They are logged, as kubectl prints them."""

import logging
import re
from collections import deque
from collections.abc import Iterable

logger = logging.getLogger(__name__)
# The code of all warnings of Kubernetes, the agent, and the text in quotes.
WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
REMEMBERED = 100


class ServerWarnings:
    """The log. A warning comes with each request that causes it, and is logged once, unless REMEMBERED others came
    since."""

    def __init__(self) -> None:
        self._logged: deque[str] = deque(maxlen=REMEMBERED)

    def log(self, headers: Iterable[str]) -> None:
        """Log what the Warning headers of an answer say."""
        for text in (re.sub(r"\\(.)", r"\1", each) for header in headers for each in WARNING.findall(header)):
            if text not in self._logged:
                self._logged.append(text)
                logger.warning("the API server warns: %s", text)
