"""The state of a `fit`: its variables, and what its callbacks and random numbers keep beside them.

A copy has these parts, one behind the other: the variables of model and optimizer, which exist when `fit` begins; the
arrays of callbacks; a text (JSON); and the late variables, which the first step may create: those of metrics, and of a
second optimizer. Must never import TensorFlow: the program has imported it.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from typing import Any

from . import variable_count
from .callback_state import CallbackStates
from .member_sums import Totals
from .member_values import MemberValues
from .model_variables import all_of, averages, build_optimizer, differing, early, keras_metrics, metrics_of
from .random_numbers import SAMPLES, RandomNumbers
from .replica_digest import apart
from .variable_values import ALIGNMENT, Unsupported, VariableValues, plain, seeds_of, variables_of, way_of_sums

TEXT_BYTES = 1 << 17  # for the text, and more for each epoch of History
EPOCH_BYTES, MOST_EPOCHS = 256, 20_000
MOST_DRAWS = 100  # random operations of a step whose counts are gathered
COMPARED = 1 << 14  # elements of a variable that is no part of the state
METRICS = "the metrics of an epoch"
_LENGTH = struct.Struct("<I")


class FitState:
    """The state of `model` in a `fit` with these callbacks. Unsupported if it has state that is no variable."""

    def __init__(self, model: Any, callbacks: CallbackStates, random: RandomNumbers, epochs: int) -> None:
        self._model = model
        self._callbacks = callbacks
        self._random = random
        self._strategy = model.distribute_strategy
        build_optimizer(model)
        self._variables = early(model)
        variables_of(model)  # or the state that is no variable would be noticed only at the first copy
        self._values = VariableValues(self._variables, self._strategy)
        self._apart = MemberValues(plain([*_differing(model), *averages(self._variables)]), self._strategy)
        self._late: list[VariableValues] = []  # Keras' own metrics are the second part
        self._late_variables: list[Any] = []
        self._text_bytes = TEXT_BYTES + EPOCH_BYTES * min(epochs, MOST_EPOCHS)
        self._before_late = self._values.size + callbacks.size + _aligned(self._text_bytes)
        self.size = self._before_late
        self._totals: list[Any] | None = None
        self._members: Any = None  # the values that the members have of their own
        self._gathers_draws, self._draws = False, None  # how many random numbers each member has drawn
        self._others: list[tuple[Any, Any, bytes]] = []  # handle, type and value of variables that are no part of it
        self._created = 0  # the variables of this process when all of the model were known
        self._restored: tuple[list[Any], dict[str, Any], str, bool] | None = None

    def leave_averages(self) -> None:
        """Do not gather the averages of tf_keras."""
        self._apart = MemberValues(_differing(self._model), self._strategy)

    def signature(self) -> str:
        """A digest of the variables of model and optimizer."""
        return self._values.signature()

    def complete(self) -> None:
        """All late variables exist, as after the first step."""
        known, own = {id(each) for each in self._variables}, keras_metrics(self._model)
        late = [each for each in self._collect() if id(each) not in known]
        first = [each for each in late if id(each) not in own]
        # An evaluation creates some of Keras' own, which a restarted program may not have made yet: they come last.
        self._late_variables = [*first, *(each for each in late if id(each) in own)]
        self._late = [VariableValues(each, self._strategy) for each in (first, self._late_variables[len(first) :])]
        self.size = self._before_late + sum(each.size for each in self._late) + self._apart.size
        self._created = variable_count.created()

    def grown(self) -> bool:
        """Whether the model has other variables than after its first step, those of Keras' own metrics aside: an
        evaluation creates some, and resets them."""
        if any(_bytes_of(handle, kind) != value for handle, kind, value in self._others):
            raise Unsupported("the training changes a variable that the model does not track")
        if self._created == (created := variable_count.created()):
            return False
        self._created = created
        known = {id(each) for each in [*self._variables, *self._late_variables]}
        present = {id(each) for each in self._collect()}
        return bool(known - present or present - known - keras_metrics(self._model))

    def note_others(self, step: Any) -> None:
        """Note the values of variables that the `step`, a traced function, uses and that are no part of this state."""
        local = self._strategy.experimental_local_results
        parts = [*(part for each in self._collect() for part in local(each)), *self._random.variables()]
        known = {id(part.handle) for part in parts}
        for handle, _ in step.graph.captures:
            data = getattr(handle, "_handle_data", None)
            whole = hasattr(handle, "_numpy_internal")  # and no symbol of a function around this one
            if whole and data is not None and data.is_set and data.shape_and_type and id(handle) not in known:
                kind = data.shape_and_type[0].dtype
                self._others.append((handle, kind, _bytes_of(handle, kind)))

    def is_finite(self) -> bool:
        """Whether all values but those of metrics, which Keras resets, are finite numbers."""
        metrics = {id(each) for each in metrics_of(self._model)}
        plain = [each for each in [*self._variables, *self._late_variables] if id(each) not in metrics]
        return VariableValues(plain, self._strategy).is_finite()

    def draws_apart(self) -> bool:
        """Whether members may have drawn more random numbers than others."""
        return self._apart.members > 1 and self._random.depends_on_batch

    def gather_draws(self) -> None:
        """Gather how many random numbers each has drawn."""
        self._gathers_draws = True

    def gathers(self) -> bool:
        """Whether members have values of their own, the sums of Keras' own metrics aside. Those are not gathered,
        because a collective costs many times what a copy does: behind a new pod the sums of the epoch begin anew, and
        the user is told."""
        has_sums = any(part.has_sums for part in (self._values, *self._late[:1]))
        return self._apart.size > 0 or has_sums or self.draws_apart()

    def gather(self, totals: Totals) -> None:
        """Learn the sums over all members, and what each has of its own: a collective."""
        if not self.gathers():
            return
        sums, apart = [each for part in (self._values, *self._late) for each in part.local_sums()], self._apart.rows()
        found = totals([*sums, *apart, *self._own_draws()])
        self._totals, self._members = found[: len(sums)], found[len(sums)] if apart else None
        self._draws = found[-1] if self._gathers_draws else None

    def gather_for_storage(self, totals: Totals) -> None:
        """Learn what a backup in the storage needs of all members: a collective."""
        found = totals(self._own_draws())
        self._draws = found[0] if found else None

    def _own_draws(self) -> list[Any]:
        """One array with a row for each member, of which this one fills its own; none if nothing is gathered."""
        if not self._gathers_draws:
            return []
        rows = sys.modules["numpy"].zeros((self._apart.members, MOST_DRAWS + 1), "float64")
        drawn = self._random.draws()[:MOST_DRAWS]
        rows[self._apart.member, : len(drawn) + 1] = [len(drawn), *drawn]
        return [rows]

    def views(self, buffer: Any, start: int) -> list[Any]:
        """The parts of the copy in this buffer, from byte `start` on."""
        arrays = start + self._values.size
        text = arrays + self._callbacks.size
        end = late = start + self._before_late
        values = [self._values.views(buffer, start)]
        for part in self._late:
            values.append(part.views(buffer, late))
            late += part.size
        return [values, self._callbacks.views(buffer, arrays), memoryview(buffer)[text:end], buffer, end, late - end]

    def copy_to(self, views: list[Any]) -> None:
        """Copy all parts into the buffer."""
        values, arrays, text = views[:3]
        totals, self._totals = self._totals, None
        rest = iter(totals or ())
        for part, view in zip((self._values, *self._late), values):
            part.copy_to(view)
            if totals is not None:
                part.set_totals(view, rest)
        members, self._members = self._members, None
        told = {**self.beside_variables(), "arrays": self._callbacks.copy_arrays(arrays), "totals": totals is not None}
        if members is not None:
            self._apart.copy_to(views[3], views[4] + views[5], members)
            told["members"] = [self._apart.replicas, views[5]]
        data = json.dumps(told).encode()
        if _LENGTH.size + len(data) > self._text_bytes:
            told["callbacks"] = self._callbacks.without_history()
            data = json.dumps(told).encode()
        _LENGTH.pack_into(text, 0, len(data))
        text[_LENGTH.size : _LENGTH.size + len(data)] = data

    def replicated(self, views: list[Any]) -> list[tuple[str, list[Any]]]:
        """The variables in these views that all replicas hold alike."""
        own = apart(self._model) | {id(each) for each in [*metrics_of(self._model), *seeds_of(self._model)]}
        parts = zip((self._values, *self._late), views[0])
        return [each for part, view in parts for each in part.replicated(view, own)]

    def beside_variables(self) -> dict[str, Any]:
        """What a copy and a backup in the storage have beside the variables, as JSON types."""
        told = {"callbacks": self._callbacks.states(), "random": self._random.offsets()}
        if not self.draws_apart():
            return told
        rows, self._draws = self._draws, None
        if rows is None or len(set(rows[:, 0])) > 1 or len(self._random.draws()) > MOST_DRAWS:
            return {**told, "draws": []}
        return {**told, "draws": [[int(each) for each in row[1 : int(row[0]) + 1]] for row in rows]}

    def resume_random(self, told: Mapping[str, Any], own: bool) -> None:
        """Let the random numbers go on where this member's were: `told` may be those of another one."""
        offsets, draws = list(told.get("random") or []), told.get("draws")
        if not own and draws is not None:
            if len(draws) == self._apart.members:
                mine = draws[self._apart.member]
                offsets[: len(mine)] = [[key, SAMPLES * each] for (key, _), each in zip(offsets, mine)]
            else:
                self._random.begins_elsewhere()
        self._random.resume(offsets)

    def late(self) -> dict[str, Any]:
        """What the head of a copy says of its late variables: their signature, and whether not all are of metrics."""
        if not self._late_variables:
            return {"late": "", "lateFirst": "", "lateState": False}
        metrics = {id(each) for each in metrics_of(self._model)}
        more = any(id(each) not in metrics for each in self._late_variables)
        first, own = (each.signature() for each in self._late)
        return {"late": first + own, "lateFirst": first, "lateState": more}

    def has_late(self, head: Mapping[str, Any]) -> bool:
        """Whether the late variables of the copy with this head exist already."""
        self.complete()
        return bool(self.late()["late"] == head.get("late"))

    def _late_of(self, head: Mapping[str, Any]) -> int:
        """How many parts of the late variables of the copy with this head exist, of two."""
        return 2 if self.has_late(head) else int(self.late()["lateFirst"] == head.get("lateFirst"))

    def awaits_late(self, head: Mapping[str, Any]) -> bool:
        """Whether late variables of the copy with this head, beside metrics, do not exist yet."""
        return bool(head.get("lateState")) and not self._late_of(head)

    def restore_from(self, views: list[Any], own: bool, all_own: bool) -> None:
        """Restore the variables of model and optimizer; `restore_late` and `restored` are for the rest."""
        values, arrays, text = views[:3]
        told = json.loads(bytes(text[_LENGTH.size : _LENGTH.size + _LENGTH.unpack_from(text)[0]]))
        sums = way_of_sums(own, all_own, has_totals=told["totals"])
        self._values.restore_from(values[0], sums)
        self._restore_apart(views, told, own)
        self._callbacks.take_arrays(arrays, told["arrays"])
        self.resume_random(told, own)
        self._restored = (views, {**told, "own": own}, sums, not all_own and not told["totals"])

    def _restore_apart(self, views: list[Any], told: Mapping[str, Any], own: bool) -> None:
        """Restore the values that this member has of its own: the copy may be that of another one."""
        if told.get("members"):
            replicas, place = told["members"]
            if not own or replicas != self._apart.replicas:
                self._apart.restore_from(views[3], views[4] + place, replicas)

    def restored(self) -> dict[str, Any]:
        """What the restored copy has beside the variables; empty without one."""
        return self._restored[1] if self._restored is not None else {}

    def restore_late(self, head: Mapping[str, Any]) -> str:
        """Restore the late variables, which exist now, before callbacks begin an epoch. Returns what begins anew, ""
        if nothing does. LookupError if it is more than metrics."""
        if self._restored is None:
            return ""
        _, _, sums, lacks_sums = self._restored
        if self.awaits_late(head):
            raise LookupError("the first step has created other variables than in the training of the copy")
        parts = self._restore_parts(head, sums)
        anew = not parts or any(each.size for each in self._late[parts:])
        return METRICS if anew or (lacks_sums and self._has_sums()) else ""

    def _restore_parts(self, head: Mapping[str, Any], sums: str) -> int:
        """Restore the late variables that exist; how many parts of them."""
        assert self._restored is not None
        buffer, start = self._restored[0][3:5]
        parts = self._late_of(head)
        for part in self._late[:parts]:
            part.restore_from(part.views(buffer, start), sums)
            start += part.size
        return parts

    def restore_again(self, head: Mapping[str, Any], *, everything: bool) -> None:
        """Restore the small values once more, or `everything`, behind what callbacks do at the begin of an epoch."""
        if self._restored is not None:
            views, told, sums, _ = self._restored
            self._values.restore_from(views[0][0], sums, but_large=not everything)
            self._restore_apart(views, told, told["own"])
            self._restore_parts(head, sums)

    def _has_sums(self) -> bool:
        return any(each.local_sums() for each in (self._values, *self._late))

    def forget_restored(self) -> None:
        """Let go of the restored copy, which nobody uses any more."""
        self._restored = None

    def _collect(self) -> list[Any]:
        return all_of(self._model)


def _differing(model: Any) -> list[Any]:
    """The variables of Keras 3 that members may have with other values."""
    return [] if hasattr(model, "_train_counter") else differing(model._flatten_layers())


def _bytes_of(handle: Any, kind: Any) -> bytes:
    """The value of the variable with this handle, or many of its elements."""
    tensor = sys.modules["tensorflow"].raw_ops.ReadVariableOp(resource=handle, dtype=kind)
    flat = (tensor._numpy() if hasattr(tensor, "_numpy") else tensor.numpy()).reshape(-1)
    value: bytes = flat[:: 1 + flat.size // COMPARED].tobytes()
    return value


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
