"""Spares the commands half of their imports. For a process that runs one command only, never for a library."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

# Their __init__ import a client without asyncio, websockets and requests: 0.3 s for modules that no command uses.
PACKAGES = ("kubernetes", "kubernetes.aio")
ADAPTERS = "typer._adapters"


def skip_package_imports() -> None:
    """Let the modules of PACKAGES be imported without the __init__ of the packages."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name) if name not in sys.modules else None
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)


class _Adapters(ModuleType):
    """In place of the module of typer that makes type adapters of pydantic. It is imported when the first number,
    choice or list is given: an option that is not given needs no conversion, nor does a text or a flag."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real_adapters(), name)

    def try_build_adapter(self, annotation: Any, parameter_info: Any) -> Any:
        """What converts values of the type; None if there is nothing to do but to check the type."""
        return None if annotation in (str, bool) else _Adapter(annotation, parameter_info)


class _Adapter:
    """Converts values by the adapter of typer, which is made at the first value."""

    def __init__(self, annotation: Any, parameter_info: Any) -> None:
        self._made_of = annotation, parameter_info

    def validate_python(self, value: Any, **options: Any) -> Any:
        """The converted value; pydantic's ValidationError if the value is wrong."""
        return _real_adapters().try_build_adapter(*self._made_of).validate_python(value, **options)


def _real_adapters() -> Any:
    if isinstance(sys.modules.get(ADAPTERS), _Adapters):
        del sys.modules[ADAPTERS]
    return importlib.import_module(ADAPTERS)


def skip_pydantic() -> None:
    """Let typer do without pydantic's type adapters while it can: they are a sixth of a command's CPU time."""
    if ADAPTERS not in sys.modules:
        sys.modules[ADAPTERS] = _Adapters(ADAPTERS)
