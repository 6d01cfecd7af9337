"""Runs at the start of every Python that the launcher starts plainly, found through PYTHONPATH.

It undoes what brought it here (sys.path, the variable), prepares the interpreter to tell of its progress, then makes
room for the sitecustomize that would have run without it. It must never fail, nor be seen by the program, and this
file stays in a syntax that any Python, old ones too, can read.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys


def _restore_path(here):
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here in entries:
        entries.remove(here)
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)
        if not entries:
            del os.environ["PYTHONPATH"]
    if here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)


def _set_what_is_not_exported(launch):
    import types

    package = types.ModuleType("_tftraining")
    package.__path__ = [launch]
    sys.modules["_tftraining"] = package
    from _tftraining import unexported  # type: ignore[import-not-found]

    unexported.unpack(os.environ)


def _prepare(launch):
    from _tftraining import gpu_hook, keras_hook, leader_hook, legacy, offer

    if legacy.apply(os.environ):
        sys.stderr.write(legacy.APPLIED + "\n")
    tracker = keras_hook.install()
    if tracker is not None:  # the program itself, not a child of it
        leader_hook.install(tracker.connects)
        gpu_hook.install(tracker)
    offer.install(os.path.dirname(launch))


def _run_the_users_own():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))
_restore_path(_here)
if sys.version_info >= (3, 9):
    try:
        _set_what_is_not_exported(os.path.dirname(_here))
    except Exception as _error:
        sys.stderr.write("tftraining: TF_CONFIG cannot be set: %r\n" % (_error,))
        os._exit(1)  # the program would take itself for the only one, and train alone
    try:
        _prepare(os.path.dirname(_here))
    except Exception as _error:
        sys.stderr.write("tftraining: no progress will be reported: %r\n" % (_error,))
    _run_the_users_own()
