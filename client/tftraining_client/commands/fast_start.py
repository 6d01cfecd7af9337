"""Spares the commands half of their imports. For a process that runs one command only, never for a library."""

import importlib.util
import sys

# Their __init__ import a client without asyncio, websockets and requests: 0.3 s for modules that no command uses.
PACKAGES = ("kubernetes", "kubernetes.aio")


def skip_package_imports() -> None:
    """Let the modules of PACKAGES be imported without the __init__ of the packages."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name) if name not in sys.modules else None
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)
