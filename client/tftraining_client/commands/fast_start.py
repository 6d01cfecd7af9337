"""Spares the commands half of their imports. For a process that runs one command only, never for a library."""

import gc
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

# Their __init__ import a client without asyncio, websockets, requests and more: 0.3 s for modules that no command uses.
PACKAGES = ("kubernetes", "kubernetes.aio", "kubernetes.aio.client", "kubernetes.aio.utils")
CLIENT = "kubernetes.aio.client"
ADAPTERS = "typer._adapters"
GARBAGE = 100_000  # objects


def skip_package_imports() -> None:
    """Let the modules of PACKAGES be imported without the __init__ of the packages."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name) if name not in sys.modules else None
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)
    vars(sys.modules[CLIENT]).setdefault("__getattr__", _client_name)


def _client_name(name: str) -> Any:
    """What the reader of kubeconfigs imports from the client: the configuration, and the ApiClient, which costs an
    import of pydantic, for functions that no command calls."""
    if name == "ApiClient":
        return None
    if name == "Configuration":
        return importlib.import_module(f"{CLIENT}.configuration").Configuration
    raise AttributeError(f"module {CLIENT!r} has no attribute {name!r} in a command")


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


def collect_no_garbage_yet() -> None:
    """Import without the garbage collector, which would walk through all modules again and again."""
    gc.disable()


def collect_garbage() -> None:
    """Begin to collect garbage, if that waited for the imports. The modules stay; and the collector runs less often
    than by default, which is that of a time of small memories: a list of jobs is decoded in one go."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
        gc.enable()


def import_aiohttp() -> None:
    """Import aiohttp without the system's certificates, which it reads for servers that name no authority of their own,
    and for those that it does not verify. The former are read at the first handshake that needs them: a tenth of a
    command's CPU time each, for no command."""
    import ssl  # noqa: PLC0415  the help does without it

    load = ssl.SSLContext.load_default_certs

    def load_later(context: Any, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        def wrap_bio(*arguments: Any, **options: Any) -> Any:
            del context.wrap_bio
            load(context, purpose)
            return context.wrap_bio(*arguments, **options)

        context.wrap_bio = wrap_bio

    own = vars(ssl.SSLContext).get("set_default_verify_paths")  # of a class in the place of Python's, or inherited
    ssl.SSLContext.load_default_certs = load_later  # type: ignore[method-assign, assignment]
    ssl.SSLContext.set_default_verify_paths = lambda _: None  # type: ignore[method-assign, assignment]
    try:
        importlib.import_module("aiohttp")
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]
        if own is None:
            del ssl.SSLContext.set_default_verify_paths
        else:
            ssl.SSLContext.set_default_verify_paths = own  # type: ignore[method-assign]
