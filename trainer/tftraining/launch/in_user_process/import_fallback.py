"""Makes `import tftraining` work in a program whose image lacks the package, for `tftraining.report`.

Its finder is the last one, so an installed tftraining always takes precedence.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # every Python of the program imports this module, so typing would cost time
if TYPE_CHECKING:
    from typing import Any


class _Finder:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "tftraining":
            return None
        import importlib.util  # noqa: PLC0415

        place = os.path.join(self._directory, "__init__.py")
        return importlib.util.spec_from_file_location(name, place, submodule_search_locations=[self._directory])


def install(directory: str) -> None:
    """Make the package in `directory` importable."""
    sys.meta_path.append(_Finder(directory))
