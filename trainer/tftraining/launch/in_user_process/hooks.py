"""The hooks that the launcher installs in every Python process of the program: the command and its child processes.

The command may be a wrapper, so the launcher cannot know which process trains; most others load data or install
packages. Each process gets only cheap hooks at its start, and the rest when it imports TensorFlow or Keras. This module
must import next to nothing, never fail, and never disturb the user's code.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False  # importing typing takes longer than this whole module
if TYPE_CHECKING:
    from typing import Any

    from .tracker import Tracker

PROGRESS, FINISHED = "TFTRAINING_PROGRESS", "TFTRAINING_FINISHED_FITS"
TENSORFLOW = frozenset({"keras", "tensorflow", "tf_keras"})
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))  # the package `tftraining` that the launcher belongs to
SITECUSTOMIZE = os.path.join(HERE, "pythonpath")  # this directory holds nothing else

_environment: dict[str, str] = {}  # of this process at its start
_tracker: Tracker | None = None
_armed = False


def install() -> None:
    """Install the cheap hooks, in every Python process of the program."""
    from . import import_fallback, leftovers, legacy_keras, stack_dump  # noqa: PLC0415

    global _environment  # noqa: PLW0603  # one process
    if legacy_keras.apply(os.environ):
        sys.stderr.write(legacy_keras.APPLIED + "\n")
    _environment = dict(os.environ)  # after legacy_keras.apply: a fork begins like that, too
    import_fallback.install(PACKAGE)
    atexit.register(_finish)  # before any handler of the program, and so called behind them
    if path := os.environ.get(PROGRESS):
        leftovers.install(path)
        try:
            stack_dump.register_handler(path)
        except OSError:
            return  # the progress page of a process that outlived its round is gone


def _finish() -> None:
    """At the end of the process: wait for our threads in TensorFlow."""
    if (release := sys.modules.get(f"{__package__}.iterator_release")) is not None:
        release.finish()


def arm_before_tensorflow() -> None:
    """Install the training hooks just before TensorFlow or Keras is imported."""
    sys.meta_path.insert(0, _TensorFlowImportWatcher())


def arm() -> None:
    """Install the training hooks: Keras progress, `fit` of Keras 3 for gangs, the leader's connections, GPUs, the
    release of iterators, checkpoints that nobody restores, the own time of a gang's members."""
    global _armed  # noqa: PLW0603  # one process
    if not _armed:
        _armed = True
        try:
            _arm()
        except Exception as error:
            sys.stderr.write(f"tftraining: cannot report progress: {error!r}\n")


def _arm() -> None:
    from . import (  # noqa: PLC0415
        cache_hook,
        checkpoint_hook,
        gpu_hook,
        iterator_release,
        keras_hook,
        leader_hook,
        main_thread,
        own_time,
        peers,
        private_files,
    )
    from .keras3 import patches  # noqa: PLC0415

    iterator_release.install()
    if page := _environment.get(PROGRESS):
        cache_hook.install(page)
        main_thread.install(page)
    own = tracker()
    tf_config = _environment.get("TF_CONFIG", "")
    if own is not None and peers.names_trainer(tf_config) and not peers.names_parameter_server(tf_config):
        own_time.install(own.own_time)
    private = private_files.PrivateFiles(_environment)
    private.install()
    keras_hook.install(own, _environment.get(FINISHED, ""), _environment, private.look_at)
    patches.install(_environment)
    if own is not None:
        own.peers = peers.Peers(_environment.get("TF_CONFIG", ""))
        leader_hook.install(own.record_connecting, peers=own.peers)
        gpu_hook.install(own)
        checkpoint_hook.install(lambda: own.reports)


def tracker() -> Tracker | None:
    """The tracker of this process; None if the launcher has set no progress page."""
    global _tracker  # noqa: PLW0603  # one process, one tracker
    if _tracker is None and (path := os.environ.get(PROGRESS)):
        from .tracker import Tracker  # noqa: PLC0415

        _tracker = Tracker(path)
    return _tracker


def python_path(users: str) -> str:
    """The PYTHONPATH that loads these hooks in a Python process and its children; `users` is the user's value."""
    return os.pathsep.join(filter(None, [SITECUSTOMIZE, users]))


class _TensorFlowImportWatcher:
    """A meta path finder that finds no module; it only observes imports."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in TENSORFLOW:
            arm()
