"""The condition NoGPU, and its event: a container asks for GPUs, and TensorFlow in it sees none and trains on the CPU.

The launchers find it out. The job goes on: it is no failure, but nobody should pay for GPUs that are not used. The
condition remembers that the event was told; a job that never lacked a GPU does not have it.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.report import Report
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.starting import some
from tftraining_operator.plan.types import Note, Plan

NO_GPU = "NoGPU"
OVER = ("Training", "no replica is known to lack the GPUs that it asks for")


def why_no_gpu(said: Report | None) -> str:
    """Who trains without the GPUs that it asks for, to be added to how all do; "" for none."""
    return f"; {_who_lacks(said.no_gpu)} (NoGPU)" if said is not None and said.no_gpu else ""


def warn_of_no_gpu(step: Plan, said: Report | None, now: datetime) -> Plan:
    """The step, with the condition and, once, the event where the launchers say that GPUs are not seen."""
    known = step.status.is_true(NO_GPU)
    if said is None or step.status.terminal or not (said.no_gpu or (known and said.phase == "Training")):
        return step
    if not said.no_gpu:
        return msgspec.structs.replace(step, status=with_condition(step.status, NO_GPU, "False", OVER, now))
    message = f"{_who_lacks(said.no_gpu)}: the image has to bring NVIDIA's CUDA libraries"
    status = with_condition(step.status, NO_GPU, "True", (NO_GPU, message), now)
    notes = () if known else (Note("Warning", NO_GPU, message),)
    return msgspec.structs.replace(step, status=status, notes=(*step.notes, *notes))


def _who_lacks(members: tuple[str, ...]) -> str:
    ask, see = ("asks", "it") if len(members) == 1 else ("ask", "them")
    return f"{some(list(members))} {ask} for GPUs, and TensorFlow sees none in {see}"
