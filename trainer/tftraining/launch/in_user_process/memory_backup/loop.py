"""Backups in memory of a custom training loop: what `tftraining.MemoryBackup` does beside a launcher.

All members make the same calls at the same steps, and copier.py makes the copies. The program restores its
position in the input itself. It must never fail a training: after an error there are no more copies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from .. import call_site
from . import member_sums
from .checkpoint_state import CheckpointState
from .copier import Copier, describe
from .copy_file import VARIABLE
from .member_sums import sums_over, totals_over
from .program_digest import program_digest
from .settings import CopySettings


class Loop:
    """The copies of one custom loop of this process. `caller`: the frame that began it, which identifies the loop."""

    def __init__(self, checkpoint: Any, caller: FrameType | None, settings: CopySettings) -> None:
        self._step = 0
        self._began = False
        self._settings = settings
        state, why = _state_of(checkpoint)
        why = why or member_sums.SURFACE.missing()
        strategy = None if state is None else state.strategy
        workers = int(getattr(getattr(strategy, "extended", None), "_num_workers", 1))
        if getattr(strategy, "_should_use_with_coordinator", False):
            workers = 1  # the coordinator alone runs the loop
        self._copier = Copier(settings, workers, sums_over(strategy, workers), totals_over(strategy, workers), _log)
        if state is not None and not why:
            found = call_site.identity(caller, state.signature(), program_digest())
            why = "" if found else call_site.objection(caller) or "another MemoryBackup looks the same"
        if why or state is None:
            self._copier.why_not = why
        else:
            self._copier.use(state, found)

    @property
    def enabled(self) -> bool:
        """Whether this loop makes copies, after `restore`: equal for all members, which call `step` alike."""
        return self._copier.agreed

    def restore(self, step: int) -> int:
        """Restore the newest copy that all members hold, unless `step` is newer; the step of the variables after it.

        All members call it once, and hold the same step.
        """
        self._copier.agree()
        found = self._copier.find() if self._copier.agreed else None
        if self._copier.agreed:
            newer = found is not None and (found.step > step or self._settings.doubts(step))
            taken = self._copier.choose(found, newer)
            if taken is not None and found is not None:
                self._copier.take(found)
                step = found.step
                _log(f"resumed from memory at step {step}, in {self._copier.restored_in:.2f} s")
        if found is not None:
            found.close()
        self._step = step
        if self._copier.agreed:
            self._copier.begin(step)
        else:
            _log(f"no backups in memory: {self._copier.why_not}")
        return step

    def step(self, step: int) -> None:
        """Note that so many steps are complete, and copy the variables if a copy is due."""
        before, self._step = self._step, step
        if not self._copier.agreed:
            return
        first, self._began = not self._began, True
        if first:
            # Nothing to wait for: the loop asks for copies, and its first step has needed all that it needs.
            self._copier.schedule.end_wait()
        # Not all members need to be asked, and what is due is a collective.
        asked, due = self._copier.asked(before, step), self._copier.due(before, step)
        if due:
            self._copier.copy(step, {})
        if asked and self._copier.agreed:
            self._copier.answer(step, {})
        elif first and not due:  # not before: the first step has traced the function
            self._copier.measure_from(step)

    def done(self) -> None:
        """The training is complete: its copies are of no use any more."""
        if self._copier.agreed:
            self._copier.end("")


def begin(checkpoint: Any, caller: FrameType | None, environment: Mapping[str, str]) -> Loop:
    """The copies of the loop that begins in the frame `caller`; ValueError or KeyError for invalid settings."""
    return Loop(checkpoint, caller, CopySettings(environment[VARIABLE], environment))


def _state_of(checkpoint: Any) -> tuple[CheckpointState | None, str]:
    """The state, or why there is none."""
    try:
        return CheckpointState(checkpoint), ""
    except Exception as error:  # also what TensorFlow raises for an object that tracks nothing
        return None, describe(error)


def _log(text: str) -> None:
    sys.stderr.write(f"tftraining: {text}\n")
