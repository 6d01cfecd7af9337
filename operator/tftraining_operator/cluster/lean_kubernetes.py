"""Imports of the operator's program without the parts of the Kubernetes client that it does not use: 20 MiB.

The client's packages `kubernetes` and `kubernetes.aio` import all their parts, among them the synchronous client with
requests, oauthlib, google.auth and cryptography; kopf looks for that one, and does without if there is none. To be
imported before kopf. It changes nothing in a process that has imported the client already.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec


def _bare(name: str) -> None:
    """Make the package available without running its own code."""
    found = find_spec(name)
    if found is not None and found.submodule_search_locations is not None:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = list(found.submodule_search_locations)
        sys.modules[name] = module_from_spec(spec)


if "kubernetes" not in sys.modules:
    _bare("kubernetes")
    _bare("kubernetes.aio")
    # As if it were not installed.
    sys.modules["kubernetes.client"] = None  # type: ignore[assignment]
