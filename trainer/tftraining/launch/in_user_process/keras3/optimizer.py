"""The optimizers of Keras 3: gradients are clipped, and found finite, after their sum over the workers (cause 5)."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from ..surface import Part
from .gang import has_several_workers

MODULE = "keras.src.backend.tensorflow.optimizer"
CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
PARTS = (
    Part(MODULE, "TFOptimizer._all_reduce_sum_gradients", "self grads_and_vars", "all_reduce"),
    Part(MODULE, "TFOptimizer._backend_update_step", "self grads trainable_variables learning_rate"),
    Part(MODULE, "TFOptimizer._backend_update_step", uses="_all_reduce_sum_gradients"),
    Part(MODULE, "TFOptimizer.apply_gradients", "self grads_and_vars", "apply"),
    Part("keras.src.optimizers.base_optimizer", "BaseOptimizer._clip_gradients", uses=" ".join(CLIPS)),
    Part("keras.src.optimizers.loss_scale_optimizer", "LossScaleOptimizer", uses="inner_optimizer check_finite"),
)


def patch(module: Any) -> None:
    """Extend `apply_gradients`: where a worker alone would decide about its gradients, they are summed before."""
    cls = module.TFOptimizer
    reduce, apply = cls._all_reduce_sum_gradients, cls.apply_gradients
    summed = threading.local()  # `present` while gradients are applied that are sums already

    @functools.wraps(reduce)
    def _all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> Any:
        return list(grads_and_vars) if getattr(summed, "present", False) else reduce(self, grads_and_vars)

    @functools.wraps(apply)
    def apply_gradients(self: Any, grads_and_vars: Any) -> Any:
        context = sys.modules["tensorflow"].distribute.get_replica_context()
        if context is None or not has_several_workers(context.strategy) or not _decides(self):
            return apply(self, grads_and_vars)
        pairs = list(grads_and_vars)
        sums = reduce(self, [(gradient, getattr(variable, "value", variable)) for gradient, variable in pairs])
        summed.present = True
        try:
            return apply(self, [(each, pair[1]) for (each, _), pair in zip(sums, pairs)])
        finally:
            summed.present = False

    cls._all_reduce_sum_gradients, cls.apply_gradients = _all_reduce_sum_gradients, apply_gradients


def _decides(optimizer: Any) -> bool:
    """Whether it clips gradients or looks whether they are finite: with mixed precision a worker that alone found an
    overflow would leave the others waiting in the sum."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner is not None or any(getattr(optimizer, name, None) for name in CLIPS)
