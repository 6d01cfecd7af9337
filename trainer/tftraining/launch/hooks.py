"""What the launcher puts into every Python of the program: into the command itself, and into those that it starts.

The command may be a wrapper, so nobody knows which of them is going to train; most of the others load data or install
packages. So a Python gets only what costs next to nothing, and the rest when it imports TensorFlow or Keras. This must
import next to nothing itself, never fail, and disturb nobody.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing costs more than all of this
if TYPE_CHECKING:
    from typing import Any

    from .tracker import Tracker

PROGRESS, FINISHED = "TFTRAINING_PROGRESS", "TFTRAINING_FINISHED_FITS"
TENSORFLOW = frozenset({"keras", "tensorflow", "tf_keras"})
LAUNCH = os.path.dirname(os.path.abspath(__file__))
INJECT = os.path.join(LAUNCH, "inject")

_environment: dict[str, str] = {}  # as this Python was started with it
_tracker: Tracker | None = None
_armed = False


def install() -> None:
    """What every Python of the program gets."""
    from . import legacy, offer, stacks  # noqa: PLC0415

    global _environment  # noqa: PLW0603  # one process
    if legacy.apply(os.environ):
        sys.stderr.write(legacy.APPLIED + "\n")
    _environment = dict(os.environ)  # in a fork of the warm interpreter the request has been granted before
    offer.install(os.path.dirname(LAUNCH))
    if path := os.environ.get(PROGRESS):
        try:
            stacks.answer(path)
        except OSError:
            return  # a process that has outlived its round has no page any more


def arm_before_tensorflow() -> None:
    """Have the rest installed as soon as TensorFlow or Keras is to be imported."""
    sys.meta_path.insert(0, _BeforeTensorFlow())


def arm() -> None:
    """Install the rest: what follows a training."""
    global _armed  # noqa: PLW0603  # one process
    if not _armed:
        _armed = True
        try:
            _arm()
        except Exception as error:
            sys.stderr.write(f"tftraining: no progress will be reported: {error!r}\n")


def _arm() -> None:
    from . import gpu_hook, keras_hook, leader_hook  # noqa: PLC0415

    own = tracker()
    keras_hook.install(own, _environment.get(FINISHED, ""), _environment)
    if own is not None:
        leader_hook.install(own.connects)
        gpu_hook.install(own)


def tracker() -> Tracker | None:
    """The one of this process, None where the launcher has no page."""
    global _tracker  # noqa: PLW0603  # one process, one tracker
    if _tracker is None and (path := os.environ.get(PROGRESS)):
        from .tracker import Tracker  # noqa: PLC0415

        _tracker = Tracker(path)
    return _tracker


def python_path(users: str) -> str:
    """The PYTHONPATH with which a Python, and every one that it starts, comes here; `users` is the program's own."""
    return os.pathsep.join(filter(None, [INJECT, users]))


class _BeforeTensorFlow:
    """A finder that finds nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in TENSORFLOW:
            arm()
