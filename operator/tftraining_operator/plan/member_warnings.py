"""The conditions NoGPU and TrainsAlone and their events, for members that the launchers name.

NoGPU: a container requests GPUs, but TensorFlow sees none and trains on the CPU. TrainsAlone: a member of a gang makes
steps without the others, each with a model of its own, over the same files. The job goes on, because that is no
failure, but nobody should pay for it unaware. A condition remembers that its event was published; a job without such
members does not have it.
"""

from collections.abc import Callable
from typing import NamedTuple

from tftraining.launch.failure_and_restart_messages import summarize_names
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event


class Warned(NamedTuple):
    """A condition, the members that have it, what they do (one, several), the advice, and what ends it."""

    condition: str
    members: Callable[[Report], tuple[str, ...]]
    words: tuple[str, str]
    advice: str
    over: str

    def text(self, report: Report) -> str:
        """The members and what they do, in words."""
        members = self.members(report)
        return f"{summarize_names(members)} {self.words[len(members) > 1]}"


WARNINGS = (
    Warned(
        "NoGPU",
        lambda report: report.no_gpu,
        ("requests GPUs, but TensorFlow sees none", "request GPUs, but TensorFlow sees none"),
        "install NVIDIA's CUDA libraries in the image",
        "no replica reports missing GPUs",
    ),
    Warned(
        "TrainsAlone",
        lambda report: report.trains_alone,
        ("trains without the other members", "train without the other members, each a model of its own"),
        "build the strategy from the TF_CONFIG of the environment, for example "
        "tf.distribute.MultiWorkerMirroredStrategy()",
        "no member reports that it trains alone",
    ),
)


def why_members(report: Report | None) -> str:
    """The members with a warning, as an addition to the message of a gang that trains."""
    found = [each for each in WARNINGS if report is not None and each.members(report)]
    return "".join(f"; {each.text(report)} ({each.condition})" for each in found if report is not None)


def warn_of_members(context: Context, draft: Draft) -> Draft:
    """The draft with each condition and, once, its event where the launchers report such members."""
    for each in WARNINGS:
        draft = _warn(each, context, draft)
    return draft


def _warn(warned: Warned, context: Context, draft: Draft) -> Draft:
    report, kind, known = draft.report, warned.condition, draft.status.is_true(warned.condition)
    if report is None or not (warned.members(report) or (known and report.phase == "Training")):
        return draft
    if not warned.members(report):
        return draft.with_fields(
            status=with_condition(draft.status, kind, "False", ("Training", warned.over), context.now)
        )
    message = f"{warned.text(report)}: {warned.advice}"
    draft = draft.with_fields(status=with_condition(draft.status, kind, "True", (kind, message), context.now))
    return draft if known else draft.with_events(Event("Warning", kind, message))
