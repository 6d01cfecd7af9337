"""The Python of an image, for the programs that we run in the image of the user."""

import re
from posixpath import basename

from tftraining_api.model.spec import Manifest


def python_of(container: Manifest) -> str:
    """The interpreter of a container: the command's first word if that is a Python, otherwise python3."""
    command = container.get("command") or [""]
    return command[0] if re.fullmatch(r"python(\d+(\.\d+)*)?", basename(command[0])) else "python3"
