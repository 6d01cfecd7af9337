"""Runs at the start of every Python interpreter of the program, found through PYTHONPATH: that of the command, which
may be a wrapper, and those of all child processes.

It removes its directory from sys.path, but not from PYTHONPATH, prepares the interpreter to report progress, then runs
the sitecustomize that would have run without it. It must never fail, nor take noticeable time, and this file must keep
to a syntax that every Python, old ones too, can parse.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys


def _restore_path(here):
    while here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)


def _prepare_package(directory):
    package = type(sys)("_tftraining")
    package.__path__ = [directory]
    sys.modules["_tftraining"] = package


def _set_what_is_not_exported():
    from _tftraining import long_tf_config  # type: ignore[import-not-found,unused-ignore]

    long_tf_config.unpack(os.environ)


def _prepare():
    from _tftraining import hooks  # type: ignore[import-not-found,unused-ignore]

    hooks.install()
    hooks.arm_before_tensorflow()


def _run_the_users_own():
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


_here = os.path.dirname(os.path.abspath(__file__))
_restore_path(_here)
if sys.version_info >= (3, 9):
    _prepare_package(os.path.dirname(_here))
    if "TFTRAINING_TF_CONFIG" in os.environ:  # no other interpreter needs the import
        try:
            _set_what_is_not_exported()
        except Exception as _error:
            sys.stderr.write("tftraining: cannot set TF_CONFIG: %r\n" % (_error,))
            os._exit(1)  # without TF_CONFIG the program would train alone
    try:
        _prepare()
    except Exception as _error:
        sys.stderr.write("tftraining: cannot report progress: %r\n" % (_error,))
if sys.version_info >= (3, 5):
    _run_the_users_own()
