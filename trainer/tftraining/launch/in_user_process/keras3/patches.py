"""`fit` of Keras 3 for gangs: an unchanged program trains two or more workers as one process with the whole batch.

Patches the modules of Keras once all of them are imported, or none where one of them is not as it is known. With
TFTRAINING_KERAS=Unpatched nothing is changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..import_hook import after_import
from ..surface import Surface
from . import files, fit, optimizer, statistics, trainer

VARIABLE, UNPATCHED = "TFTRAINING_KERAS", "Unpatched"
SURFACE = Surface(
    "fit of Keras 3 cannot train two or more workers",
    (*trainer.PARTS, *optimizer.PARTS, *statistics.PARTS, *files.PARTS, *fit.PARTS),
)
PATCHES: dict[str, Callable[[Any], None]] = {
    trainer.MODULE: lambda module: trainer.patch(module, _say_once),
    optimizer.MODULE: optimizer.patch,
    statistics.MODULE: statistics.patch,
    files.BACKUP: files.patch_backup,
    files.CHECKPOINT: files.patch_checkpoint,
    files.LOGGER: files.patch_logger,
}
ACTIVE = "tftraining: fit of Keras {} is patched for {} workers (keras issue 20585)"


def install(environment: Mapping[str, str]) -> None:
    """Patch Keras 3 when it is imported. `environment`: the process's at its start."""
    if environment.get(VARIABLE) == UNPATCHED:
        return
    awaited = set(PATCHES)

    def extend(module: Any) -> None:
        awaited.discard(module.__name__)
        if not awaited:
            _patch(environment)

    after_import(frozenset(PATCHES), extend)


def _patch(environment: Mapping[str, str]) -> None:
    missing = SURFACE.missing()
    if missing:
        if _names_gang(environment.get("TF_CONFIG", "")):
            SURFACE.holds()  # says so
        return
    for name, patch in PATCHES.items():
        patch(sys.modules[name])
    fit.patch(sys.modules[fit.MODULE])  # keras_hook.py awaits that module, too


def _names_gang(text: str) -> bool:
    """Whether this TF_CONFIG names several members that train together."""
    try:
        cluster = json.loads(text)["cluster"]
        return sum(len(cluster.get(role, ())) for role in ("chief", "worker")) > 1
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


_said: list[str] = []


def _say_once(strategy: Any) -> None:
    if not _said:
        version = getattr(sys.modules.get("keras"), "__version__", "3")
        _said.append(ACTIVE.format(version, strategy.extended._num_workers))
        sys.stderr.write(_said[0] + "\n")
