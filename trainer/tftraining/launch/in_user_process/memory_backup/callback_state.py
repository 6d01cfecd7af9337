"""The state that the callbacks of a `fit` keep in Python: which of it is saved with a copy, and what begins anew.

Keras' own callbacks by the attributes below; one of the program by its methods `get_state` and `set_state`. State is
data (JSON, and the arrays of EarlyStopping), never pickle. A callback that cannot be saved is named, once. Must never
import Keras, nor fail a training.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..keras3.files import Unwritten
from ..surface import Part, Surface, names_used

# The attributes of Keras' callbacks that change while `fit` runs. docs/memory-backups.md has the table.
FIELDS: dict[str, tuple[str, ...]] = {
    "BackupAndRestore": ("_batches_count",),
    "CSVLogger": (),  # its file: see _Csv
    "Callback": (),
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_epoch"),
    "History": ("history", "epoch"),
    "LambdaCallback": (),
    "LearningRateScheduler": (),  # the rate is a variable
    "ModelCheckpoint": ("best", "epochs_since_last_save", "_batches_seen_since_last_saving", "_last_batch_seen"),
    "ProgbarLogger": (),
    "ReduceLROnPlateau": ("wait", "cooldown_counter", "best"),
    "TensorBoard": ("_global_train_batch", "_previous_epoch_iterations", "_train_accumulated_time"),
    "TerminateOnNaN": (),
}
# The same in Keras 3, where it differs.
FIELDS_3 = FIELDS | {
    "BackupAndRestore": ("_batches_seen_since_last_saving", "_last_batch_seen", "_current_epoch"),
    "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen", "_current_epoch"),
    "MonitorCallback": ("best",),
    "SwapEMAWeights": ("_ema_weights_in_model",),
}
_KERAS_3 = "keras.src.callbacks"
# Those that are read or set beside them.
_MORE = {
    "CSVLogger": ("append_header", "csv_file", "filename", "keys", "writer"),
    "EarlyStopping": ("best_weights", "restore_best_weights"),
    "TensorBoard": ("_writers",),
}
_LOST = "a callback of Keras begins anew at a restart"


def _surface(package: str, every: dict[str, tuple[str, ...]]) -> Surface:
    told = {name: " ".join((*fields, *_MORE.get(name, ()))) for name, fields in every.items()}
    return Surface(_LOST, tuple(Part(package, name, uses=uses) for name, uses in told.items() if uses))


SURFACE, KERAS_3 = _surface("{package}.callbacks", FIELDS), _surface(_KERAS_3, FIELDS_3)
_AT_END = frozenset({"BackupAndRestore", "CSVLogger", "History", "TensorBoard"})  # behind `fit` they have no state
_ALIGNMENT = 64
_FEW, _SMALL = 1000, 1 << 20  # values of a container, and bytes of an array, that are compared as a whole
_PLAIN = (bool, int, float, str, type(None))


class CallbackStates:
    """The states of the callbacks in a CallbackList. `tell` is called with the name of each that begins anew."""

    def __init__(self, callbacks: Any, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()
        library = type(callbacks).__module__.removesuffix(".callback_list")
        everyone = [*callbacks.callbacks, getattr(callbacks, "_history", None)]
        unique = {id(each): each for each in everyone if each is not None}
        self._states = [_State(each, library) for each in unique.values()]
        self._weights = [_Weights(each.callback) for each in self._states if each.keeps_weights()]
        self.size = sum(each.size for each in self._weights)

    def before_begin(self) -> None:
        """Call before the callbacks' own on_train_begin, which empties files."""
        for each in self._states:
            self._guarded(each, each.keep_file)

    def overrides_epoch_begin(self) -> bool:
        """Whether a callback of the program does something at the begin of an epoch."""
        return any(each.overrides("on_epoch_begin") for each in self._states)

    def states(self) -> list[Any]:
        """The state of each callback; None of one that begins anew."""
        return [self._guarded(each, each.state) for each in self._states]

    def without_history(self) -> list[Any]:
        """The same without that of History, which may grow beyond the room for it."""
        self._name("History")
        return [None if each.kind == "History" else self._guarded(each, each.state) for each in self._states]

    def restore(self, states: list[Any]) -> None:
        """Restore the states, behind the callbacks' own on_train_begin."""
        if len(states) != len(self._states):
            return self._name("the callbacks, which are others than before")
        for each, state in zip(self._states, states):
            if state is not None:
                self._guarded(each, lambda each=each, state=state: each.restore(state))  # type: ignore[misc]
        return None

    def end_states(self) -> list[Any]:
        """The state of each callback after `fit`; None for one that begins anew, and for one that has no state then."""
        return [None if each.kind in _AT_END else self._guarded(each, each.state) for each in self._states]

    def write_arrays(self, path: str) -> None:
        """Write the best weights to a file, if there are any. OSError."""
        found = {
            f"{place}-{number}": each
            for place, weights in enumerate(self.arrays())
            for number, each in enumerate(weights or ())
        }
        if found:
            with open(path, "wb") as file:
                sys.modules["numpy"].savez(file, **found)

    def restore_end(self, path: str, states: list[Any] | None) -> None:
        """Restore `end_states`, and the best weights in this file. Must never fail: a callback then begins anew."""
        try:
            self.restore(states if states is not None else [])
            if os.path.exists(path):
                with sys.modules["numpy"].load(path, allow_pickle=False) as stored:
                    counts = [
                        sum(name.startswith(f"{place}-") for name in stored) for place in range(len(self._weights))
                    ]
                    self.set_arrays(
                        [[stored[f"{place}-{each}"] for each in range(n)] or None for place, n in enumerate(counts)]
                    )
                self.restore_arrays()
        except Exception as error:
            sys.stderr.write(
                f"tftraining: the state of callbacks cannot be restored: {type(error).__name__}: {error}\n"
            )

    def views(self, buffer: Any, start: int) -> list[Any]:
        """An array for each value that EarlyStopping keeps, in this buffer from byte `start` on."""
        found = []
        for each in self._weights:
            found.append(each.views(buffer, start))
            start += each.size
        return found

    def copy_arrays(self, views: list[Any]) -> list[bool]:
        """Copy the best weights; which callbacks have some."""
        return [each.copy_to(view) for each, view in zip(self._weights, views)]

    def take_arrays(self, views: list[Any], present: list[bool]) -> None:
        """Read the best weights, for `restore`."""
        for each, view, has in zip(self._weights, views, present):
            each.take(view if has else None)

    def arrays(self) -> list[list[Any] | None]:
        """The best weights themselves."""
        return [each.callback.best_weights for each in self._weights]

    def set_arrays(self, arrays: list[list[Any] | None]) -> None:
        """Take the best weights from a file."""
        for each, weights in zip(self._weights, arrays):
            each.taken = weights

    def restore_arrays(self) -> None:
        """Give EarlyStopping the best weights that were read."""
        for each in self._weights:
            each.callback.best_weights = each.taken

    def _guarded(self, state: _State, action: Callable[[], Any]) -> Any:
        """The result of the action; a callback that raises, or changes in a way that is not saved, begins anew."""
        try:
            result = action()
            if not state.changes_unsaved():
                return result
        except Exception as error:
            sys.stderr.write(f"tftraining: {state.name}: {type(error).__name__}: {error}\n")
            result = None
        self._name(state.name)
        return result

    def _name(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._tell(name)


@contextmanager
def keeping_rows(callbacks: Any) -> Iterator[None]:
    """Let the callbacks of a `fit` that trains nothing begin: CSVLogger of Keras 3 would empty its file at once."""
    everyone = getattr(callbacks, "callbacks", ())
    loggers = [each for each in everyone if any(cls.__name__ == "CSVLogger" for cls in type(each).__mro__)]
    before = [(each, getattr(each, "append", None), getattr(each, "append_header", None)) for each in loggers]
    for each in loggers:
        each.append = True
    try:
        yield
    finally:
        for each, append, header in before:
            each.append, each.append_header = append, header


class _State:
    """The state of one callback. `library`: the module of Keras' own callbacks."""

    def __init__(self, callback: Any, library: str) -> None:
        self.callback = callback
        classes, fields = type(callback).__mro__, FIELDS_3 if library == _KERAS_3 else FIELDS
        of_library = [cls for cls in classes if f"{cls.__module__}.".startswith(f"{library}.")]
        known = [cls for cls in of_library if cls.__name__ in fields]
        self.kind = known[0].__name__ if known else "Callback"
        self.name = type(callback).__name__
        self._own = [cls for cls in classes[:-1] if cls not in of_library]
        self._known = known[0] if known else None
        self._fields = fields[self.kind]
        self._has_methods = callable(getattr(callback, "get_state", None)) and callable(
            getattr(callback, "set_state", None)
        )
        self._csv = _Csv(callback) if self.kind == "CSVLogger" else None
        surface = KERAS_3 if library == _KERAS_3 else SURFACE
        parts = (part for part in surface.parts if part.path == self.kind)
        self._unknown = next((part.missing(sys.modules, {"package": library.rpartition(".")[0]}) for part in parts), "")
        self._begin = self._unsaved()

    def overrides(self, method: str) -> bool:
        """Whether the program defines this method of the callback, or gives it to a LambdaCallback."""
        return any(method in vars(cls) for cls in self._own) or (
            self.kind == "LambdaCallback" and method in vars(self.callback)
        )

    def keeps_weights(self) -> bool:
        """Whether it keeps the best weights of the model."""
        return self.kind == "EarlyStopping" and bool(getattr(self.callback, "restore_best_weights", False))

    def keep_file(self) -> None:
        """Keep what the callback's own on_train_begin empties."""
        if self._csv is not None:
            self._csv.keep()

    def state(self) -> Any:
        """The state, as JSON types."""
        if self._unknown:
            raise LookupError(self._unknown)
        fields = {each: getattr(self.callback, each) for each in self._fields if hasattr(self.callback, each)}
        told: dict[str, Any] = {"kind": self.kind, "fields": fields}
        if self._csv is not None:
            told["file"] = self._csv.state()
        if self.kind == "TensorBoard":  # the events of steps that no restart repeats
            for writer in getattr(self.callback, "_writers", {}).values():
                writer.flush()
        if self._has_methods:
            told["own"] = self.callback.get_state()
        return json.loads(json.dumps(told, default=_data))

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if state["kind"] != self.kind:
            raise ValueError(f"the copy has the state of a {state['kind']}")
        for name, value in state["fields"].items():
            setattr(self.callback, name, value)
        if self._csv is not None:
            self._csv.restore(state["file"])
        if self._has_methods and "own" in state:
            self.callback.set_state(state["own"])

    def changes_unsaved(self) -> bool:
        """Whether the callback has changed in attributes that are not saved."""
        return not self._has_methods and bool(self._own) and self._unsaved() != self._begin

    def _unsaved(self) -> dict[str, Any]:
        """What the program's own class keeps, in a form that shows most changes."""
        if not self._own:
            return {}
        saved = {"model", "params", "validation_data", *names_used(self._known)}
        return {name: _shown(value) for name, value in vars(self.callback).items() if name not in saved}


class _Csv:
    """The file of a CSVLogger: rows are kept up to the copy. Where all members name one path, those of tf_keras write
    the same, and those of Keras 3 leave it to the chief."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self._kept = b""

    def keep(self) -> None:
        """Read the file, before Keras empties it."""
        files = sys.modules["tensorflow"].io.gfile
        if files.exists(self._callback.filename):
            with files.GFile(self._callback.filename, "rb") as file:
                self._kept = file.read()

    def state(self) -> dict[str, Any]:
        """The length of the file now, and its columns."""
        if isinstance(file := self._callback.csv_file, Unwritten):
            return {"size": file.size, "keys": self._callback.keys}
        file.flush()
        files, name = sys.modules["tensorflow"].io.gfile, self._callback.filename
        size = files.stat(name).length if files.exists(name) else 0  # it is made with its first row
        return {"size": size, "keys": self._callback.keys}

    def restore(self, state: dict[str, Any]) -> None:
        """Write the rows that the file had, and go on behind them."""
        if isinstance(self._callback.csv_file, Unwritten):
            self._callback.csv_file = Unwritten(state["size"])
        else:
            self._write_rows(state["size"])
        self._callback.keys, self._callback.writer = state["keys"], None
        self._callback.append_header = not state["size"]

    def _write_rows(self, size: int) -> None:
        if len(self._kept) < size:
            raise ValueError(f"{self._callback.filename} is shorter than it was")
        self._callback.csv_file.close()
        with sys.modules["tensorflow"].io.gfile.GFile(self._callback.filename, "wb") as file:
            file.write(self._kept[:size])
        self._callback.csv_file = self._open(size)

    def _open(self, size: int) -> Any:
        """The file, at this place: members that name one path write the same bytes there, and must not append."""
        if "://" in self._callback.filename:
            return sys.modules["tensorflow"].io.gfile.GFile(self._callback.filename, "a")
        file = open(self._callback.filename, "r+", newline="")  # noqa: SIM115  # Keras closes it
        file.seek(size)
        return file


class _Weights:
    """The best weights that EarlyStopping keeps: as many arrays as the model has weights."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self.taken: list[Any] | None = None
        numpy = sys.modules["numpy"]
        self._kinds = [
            (numpy.dtype(each.dtype if isinstance(each.dtype, str) else each.dtype.as_numpy_dtype), tuple(each.shape))
            for each in callback.model.weights
        ]
        self._sizes = [kind.itemsize * int(numpy.prod(shape, dtype="int64")) for kind, shape in self._kinds]
        self.size = sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in self._sizes)
        self._copied: dict[int, Any] = {}  # for each buffer, the weights that it has

    def views(self, buffer: Any, start: int) -> list[Any]:
        found = []
        for (kind, shape), size in zip(self._kinds, self._sizes):
            count = size // kind.itemsize
            found.append(sys.modules["numpy"].frombuffer(buffer, kind, count, start).reshape(shape))
            start += -(-size // _ALIGNMENT) * _ALIGNMENT
        return found

    def copy_to(self, views: list[Any]) -> bool:
        weights = self.callback.best_weights
        if weights is not None and self._copied.get(id(views)) is not weights:
            for view, value in zip(views, weights):
                sys.modules["numpy"].copyto(view, value, casting="no")
            self._copied[id(views)] = weights
        return weights is not None

    def take(self, views: list[Any] | None) -> None:
        self.taken = None if views is None else [each.copy() for each in views]


def _data(value: Any) -> Any:
    """Numbers and arrays of NumPy and TensorFlow as JSON types."""
    array = value.numpy() if hasattr(value, "numpy") else value
    if hasattr(array, "tolist"):
        return array.tolist()
    raise TypeError(f"a {type(value).__name__} is no data")


def _shown(value: Any) -> Any:
    """A value in a form that shows most changes; its identity where it cannot be looked into. Never raises."""
    try:
        return _looked_into(value)
    except Exception:  # a class, a lazy object of the program
        return id(value)


def _looked_into(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple, dict, set)) and len(value) <= _FEW:
        return repr(value)
    if hasattr(value, "shape"):
        array = value.numpy() if hasattr(value, "numpy") else value
        if getattr(array, "nbytes", _SMALL) < _SMALL:
            return array.tobytes()
    return (id(value), len(value)) if hasattr(value, "__len__") else id(value)
