"""Makes `import tftraining` work in a program whose image does not have the package: for `tftraining.report`.

It comes last on the import path, so an installed tftraining is always taken first.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any


class _Finder:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "tftraining":
            return None
        place = os.path.join(self._directory, "__init__.py")
        return importlib.util.spec_from_file_location(name, place, submodule_search_locations=[self._directory])


def install(directory: str) -> None:
    """Offer the package that lies in `directory`."""
    sys.meta_path.append(_Finder(directory))
