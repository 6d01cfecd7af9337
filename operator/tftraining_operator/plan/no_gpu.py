"""The condition NoGPU and its event: a container requests GPUs, but TensorFlow sees none and trains on the CPU.

The launchers report it. The job goes on, because that is no failure, but nobody should pay for GPUs that are not used.
The condition remembers that the event was published; a job that never lacked a GPU does not have the condition.
"""

from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.readiness import first_three
from tftraining_operator.plan.step import Event

NO_GPU = "NoGPU"
OVER = ("Training", "no replica reports missing GPUs")


def why_no_gpu(report: Report | None) -> str:
    """The members without the GPUs that they request, as an addition to the message of a gang that trains."""
    return f"; {_who_lacks(report.no_gpu)} (NoGPU)" if report is not None and report.no_gpu else ""


def warn_of_no_gpu(context: Context, draft: Draft) -> Draft:
    """The draft with the condition and, once, the event where the launchers report members without GPUs."""
    report, known = draft.report, draft.status.is_true(NO_GPU)
    if report is None or not (report.no_gpu or (known and report.phase == "Training")):
        return draft
    if not report.no_gpu:
        return draft.but(status=with_condition(draft.status, NO_GPU, "False", OVER, context.now))
    message = f"{_who_lacks(report.no_gpu)}: install NVIDIA's CUDA libraries in the image"
    draft = draft.but(status=with_condition(draft.status, NO_GPU, "True", (NO_GPU, message), context.now))
    return draft if known else draft.with_events(Event("Warning", NO_GPU, message))


def _who_lacks(members: tuple[str, ...]) -> str:
    request = "requests" if len(members) == 1 else "request"
    return f"{first_three(list(members))} {request} GPUs, but TensorFlow sees none"
