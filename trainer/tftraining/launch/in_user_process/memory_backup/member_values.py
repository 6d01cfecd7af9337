"""The values that each member of a gang has of its own: a copy has those of all, so that each gets its own back.

Keras 3 averages moving statistics over the members at the end of an epoch only, and tf_keras only in what it reads and
saves. A copy must not change them. So the members exchange them by a sum of arrays in which each has filled its own
rows, one for each replica: it is exact, since all the others are zero. Must never import TensorFlow or NumPy: the
program has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .member_sums import members_of


class MemberValues:
    """The values of `variables`, which are small numbers, in all replicas. One member alone keeps none."""

    def __init__(self, variables: Sequence[Any], strategy: Any) -> None:
        several = members_of(strategy) > 1
        self._variables = variables
        self._local = strategy.experimental_local_results
        self.replicas = int(strategy.num_replicas_in_sync)
        self.members = members_of(strategy)
        own = self.replicas // self.members
        self.member = int(strategy.extended._id_in_cluster) if several else 0
        self._first = own * self.member
        self._width = sum(each.shape.num_elements() for each in self._variables)
        self.size = 8 * self.replicas * self._width if several else 0

    def rows(self) -> list[Any]:
        """One array, with the values of this member in its own rows; none if there is nothing to keep."""
        if not self.size:
            return []
        numpy = sys.modules["numpy"]
        found = numpy.zeros((self.replicas, self._width), "float64")
        for row, parts in enumerate(zip(*map(self._local, self._variables))):
            found[self._first + row] = numpy.concatenate([part.numpy().astype("float64").ravel() for part in parts])
        return [found]

    def copy_to(self, buffer: Any, start: int, rows: Any) -> None:
        """Copy the rows of all members into the buffer."""
        self._view(buffer, start, self.replicas)[...] = rows

    def restore_from(self, buffer: Any, start: int, replicas: int) -> None:
        """Restore the values of this member; their mean, where so many `replicas` have made the copy."""
        view = self._view(buffer, start, replicas)
        for row, parts in enumerate(zip(*map(self._local, self._variables))):
            values = view[self._first + row] if replicas == self.replicas else view.mean(0)
            begin = 0
            for part in parts:
                count = part.shape.num_elements()
                kind, shape = part.dtype.as_numpy_dtype, part.shape.as_list()
                value = values[begin : begin + count].astype(kind).reshape(shape)
                sys.modules["tensorflow"].raw_ops.AssignVariableOp(resource=part.handle, value=value)
                begin += count

    def _view(self, buffer: Any, start: int, replicas: int) -> Any:
        return sys.modules["numpy"].frombuffer(buffer, "float64", replicas * self._width, start).reshape(replicas, -1)
