"""A TF_CONFIG longer than Linux accepts in the environment of a new process (tf_config.LONGEST).

It reaches the program's interpreter compressed, in a variable of ours, and is set there without being exported:
`os.environ` has it, but the program's child processes do not, because they could not be started with it. This module
must change nothing for a TF_CONFIG that fits, and must never let the program run without the one that it was given.
"""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Mapping
from typing import Any

from .import_hook import after_import
from .shared.tf_config import LONGEST, NAME, size

PACKED = "TFTRAINING_TF_CONFIG"
# The index of the argument `env` in the functions of os, and in Popen's __init__.
ENV_OF_OS, ENV_OF_POPEN = 2, 11


def pack(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in a form with which a process can be started; the launcher's side."""
    kept = dict(environment)
    if size(kept.get(NAME, "")) <= LONGEST:
        return kept
    import zlib  # noqa: PLC0415  # a Python may have been built without it

    value = zlib.compress(os.fsencode(kept.pop(NAME)))
    return {**kept, PACKED: base64.b64encode(value).decode()}


def unpack(environ: os._Environ[str]) -> None:
    """Set the packed TF_CONFIG in `environ`, in the program's interpreter, and keep it from child processes."""
    if (text := environ.pop(PACKED, None)) is None:
        return
    import zlib  # noqa: PLC0415

    value = zlib.decompress(base64.b64decode(text))
    environ._data[NAME.encode()] = value  # type: ignore[attr-defined]  # an assignment would export it
    for name in ("execve", "posix_spawn", "posix_spawnp"):
        _wrap(os, name, ENV_OF_OS)
    after_import(frozenset({"subprocess"}), lambda module: _wrap(module.Popen, "__init__", ENV_OF_POPEN))


def _wrap(owner: Any, name: str, place: int) -> None:
    """Make a function of `owner`, if it exists, start processes without a TF_CONFIG that is too long."""
    if (start := getattr(owner, name, None)) is None:
        return

    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], _exported(args[place]), *args[place + 1 :])
        elif "env" in kwargs:
            kwargs["env"] = _exported(kwargs["env"])
        return start(*args, **kwargs)

    setattr(owner, name, started)


def _exported(env: Any) -> Any:
    """The environment without a TF_CONFIG that is too long; unchanged if it has none or is no mapping."""
    try:
        kept = {name: value for name, value in env.items() if os.fsdecode(name) != NAME or not _too_long(value)}
    except (AttributeError, TypeError):
        return env  # the wrapped function reports the error
    return env if len(kept) == len(env) else kept


def _too_long(value: str | bytes) -> bool:
    return size(os.fsdecode(value)) > LONGEST
