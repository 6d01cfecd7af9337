"""What a `fit` of a gang does beside Keras: at its begin the members agree about files; before each evaluation and at
the end of each epoch they average the moving statistics. There all members call it; an `evaluate` may be one's alone.
"""

from __future__ import annotations

import functools
from typing import Any

from ..surface import Part
from . import files, statistics
from .gang import has_several_workers

MODULE = "keras.src.callbacks.callback_list"
PARTS = (
    Part(MODULE, "CallbackList", uses="callbacks"),
    Part(MODULE, "CallbackList.on_train_begin", "self logs"),
    Part(MODULE, "CallbackList.on_train_end", "self logs"),
    Part(MODULE, "CallbackList.on_test_begin", "self logs"),
    Part(MODULE, "CallbackList.on_epoch_end", "self epoch logs"),
)
_STRATEGY = "_tftraining_strategy"  # set on the CallbackList of a `fit` with several workers while it runs


def patch(module: Any) -> None:
    """Extend the CallbackList, before what else the hooks do there: copies in memory have the averages, too."""
    cls = module.CallbackList
    _patch_train(cls)
    begin_test, end_epoch = cls.on_test_begin, cls.on_epoch_end

    @functools.wraps(begin_test)
    def on_test_begin(self: Any, logs: Any = None) -> None:
        if hasattr(self, _STRATEGY):
            statistics.average(self.model)
        begin_test(self, logs)

    @functools.wraps(end_epoch)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        if hasattr(self, _STRATEGY):
            statistics.average(self.model)  # before a callback saves them
        end_epoch(self, epoch, logs)

    cls.on_test_begin, cls.on_epoch_end = on_test_begin, on_epoch_end


def _patch_train(cls: Any) -> None:
    begin, end = cls.on_train_begin, cls.on_train_end

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        strategy = getattr(self.model, "_distribute_strategy", None)
        if not has_several_workers(strategy):
            return begin(self, logs)  # type: ignore[no-any-return]
        setattr(self, _STRATEGY, strategy)
        may_resume = files.begin(self.callbacks, strategy)
        begin(self, logs)
        if may_resume:
            files.compare(self.model, strategy)
        return None

    @functools.wraps(end)
    def on_train_end(self: Any, logs: Any = None) -> None:
        end(self, logs)
        if hasattr(self, _STRATEGY):
            delattr(self, _STRATEGY)
            files.end(self.callbacks)

    cls.on_train_begin, cls.on_train_end = on_train_begin, on_train_end
