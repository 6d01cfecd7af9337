"""The state of a custom training loop: the variables of its tf.train.Checkpoint. Must never import TensorFlow."""

from __future__ import annotations

import struct
import sys
from typing import Any

from .member_sums import Totals
from .member_values import MemberValues
from .model_variables import averages, differing
from .replica_digest import apart
from .variable_values import ALIGNMENT, LAYERS, VariableValues, is_of, plain, variables_of, way_of_sums

_HEAD = struct.Struct("<QQ")  # whether the copy has sums over all members; the replicas whose own values it has


class CheckpointState(VariableValues):
    """The variables that `checkpoint` tracks, with the strategy that made one of them, if any did.

    Unsupported if the checkpoint has state that is no variable.
    """

    def __init__(self, checkpoint: Any) -> None:
        self._checkpoint = checkpoint
        # TensorFlow creates the counter of a tf.train.Checkpoint at the first save, perhaps before the first copy.
        getattr(checkpoint, "save_counter", None)
        variables = variables_of(checkpoint)
        found = (getattr(each, "distribute_strategy", None) for each in variables)
        self.strategy = next((each for each in found if each is not None), None)
        super().__init__(variables, self.strategy)
        self.size += ALIGNMENT
        self._apart: MemberValues | None = None
        if self.strategy is not None:
            self._apart = MemberValues(plain([*_differing(checkpoint), *averages(variables)]), self.strategy)
        self._behind = self.size  # the place of what each member has of its own: a gang of another size has other room
        self._totals: list[Any] | None = None
        self._members: Any = None

    def leave_averages(self) -> None:
        """Do not gather the averages of tf_keras."""
        if self.strategy is not None:
            self._apart = MemberValues(_differing(self._checkpoint), self.strategy)

    def complete(self) -> None:
        """Nothing of a checkpoint is created late."""
        self.size = self._behind + (0 if self._apart is None else self._apart.size)

    def draws_apart(self) -> bool:
        """The random numbers of a loop are not counted."""
        return False

    def gather_draws(self) -> None:
        """Nothing is drawn apart."""

    def gathers(self) -> bool:
        """Whether members have values of their own, which a copy of another member has only behind `gather`."""
        return self.has_sums or (self._apart is not None and self._apart.size > 0)

    def gather(self, totals: Totals) -> None:
        """Learn the sums of metrics over all members, and what each has of its own: a collective."""
        sums, apart = self.local_sums(), [] if self._apart is None else self._apart.rows()
        found = totals([*sums, *apart])
        self._totals, self._members = found[: len(sums)], found[len(sums)] if apart else None

    def views(self, buffer: Any, start: int) -> list[Any]:
        """The values in this buffer, its head, and where the members' own values are."""
        head = memoryview(buffer)[start : start + ALIGNMENT]
        return [*super().views(buffer, start + ALIGNMENT), head, (buffer, start + self._behind)]

    def copy_to(self, views: list[Any]) -> None:
        """Copy all values into the buffer."""
        *values, head, (buffer, place) = views
        totals, self._totals = self._totals, None
        members, self._members = self._members, None
        super().copy_to(values)
        self.set_totals(values, totals or ())
        replicas = 0
        if self._apart is not None and members is not None:
            self._apart.copy_to(buffer, place, members)
            replicas = self._apart.replicas
        _HEAD.pack_into(head, 0, totals is not None, replicas)

    def replicated(self, views: list[Any]) -> list[tuple[str, list[Any]]]:  # type: ignore[override]
        """The variables in these views that all replicas hold alike."""
        return super().replicated(views[:-2], apart(self._checkpoint)) if self.strategy is not None else []

    def restore_from(self, views: list[Any], own: bool, all_own: bool) -> None:  # type: ignore[override]
        """Restore all values."""
        *values, head, (buffer, place) = views
        has_totals, replicas = _HEAD.unpack_from(head)
        super().restore_from(values, way_of_sums(own, all_own, has_totals=bool(has_totals)))
        if self._apart is not None and replicas and not (own and replicas == self._apart.replicas):
            self._apart.restore_from(buffer, place, replicas)

    def grown(self) -> bool:
        """Whether the checkpoint tracks other variables than at the start."""
        return [id(each) for each in variables_of(self._checkpoint)] != [id(each) for each in self._variables]


def _differing(checkpoint: Any) -> list[Any]:
    """The variables of Keras 3 that members may have with other values."""
    tracked = sys.modules["tensorflow"].train.TrackableView(checkpoint).descendants()
    return differing(each for each in tracked if is_of(LAYERS, "Layer", each))
