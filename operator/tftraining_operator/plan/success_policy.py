"""How a job comes to its end: by spec.successPolicy, or by the result that its launchers leave in their pods.

Launchers go by spec.successPolicy themselves. They end together, each with the result and the last log lines of the
member that the failure is attributed to, so the result of any pod will do.
"""

import msgspec

from tftraining.launch.failure.restart_budget import START_DEADLINE
from tftraining_api.manifests.interpreter import python_of
from tftraining_api.model.job import Problem
from tftraining_api.model.names import CONTAINER
from tftraining_api.model.spec import JobSpec
from tftraining_api.model.status import Status
from tftraining_operator.model.launcher_report import ReportedProgress, ReportedResult
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.end import fail, succeed
from tftraining_operator.plan.gang import SortedPods, count, finished
from tftraining_operator.plan.incident import log_tail
from tftraining_operator.plan.launcher_report import merged, present_pod, with_reported
from tftraining_operator.plan.messages import why_not_started, with_failure
from tftraining_operator.plan.refused_writes import in_words


def check_success(context: Context, draft: Draft) -> Draft:
    """End the job when the replicas that spec.successPolicy names have finished."""
    if not has_succeeded(context.spec, draft.gang):
        return draft
    gang, last = draft.gang, _last_progress(draft.gang)
    status = draft.status if last is None else with_reported(draft.status, last)
    status = msgspec.structs.replace(status, replicas=count(gang, status.replicas), ready=gang.ready)
    return succeed(context, draft.with_fields(status=status), _why(context.spec, gang, last))


def has_succeeded(spec: JobSpec, gang: SortedPods) -> bool:
    """Whether the replicas that have to finish have finished."""
    if spec.success_policy == "AllWorkers" and not spec.in_place:
        done = {*gang.completed, *(pod.replica for pod in gang.pods if finished(pod))}
        return done.issuperset(spec.trainers)
    chief_done = gang.chief is not None and finished(gang.chief)
    return chief_done or (spec.in_place and any(each.verdict == "Succeeded" for _, each in _results(gang)))


def check_launcher_result(context: Context, draft: Draft) -> Draft:
    """Fail the job when its launchers say so, or cannot start because the image has no Python."""
    if (problem := _without_python(context.spec, draft.gang)) is not None:
        return fail(context, draft, problem)
    if (pod := _failed(draft.gang)) is not None:
        status, problem = _failure(context, draft, pod)
        return fail(context, draft.with_fields(status=status), problem)
    return draft


def _why(spec: JobSpec, gang: SortedPods, last: ReportedProgress | None) -> Problem:
    if spec.success_policy == "AllWorkers":
        return Problem("AllWorkersSucceeded", "every chief and worker has succeeded" + _early(last))
    return Problem("ChiefSucceeded", f"{gang.wanted[0]} (the chief) has succeeded" + _early(last))


def _early(last: ReportedProgress | None) -> str:
    """A clause for a program that has ended the training in an earlier epoch than its last one; "" for no such."""
    if last is None or not last.epoch or not last.epochs or last.epoch >= last.epochs:
        return ""
    return f"; the program ended the training early, in epoch {last.epoch} of {last.epochs}"


def _failed(gang: SortedPods) -> Pod | None:
    """A pod whose launcher says that the job has failed: the pod of the member at fault, if that is there."""
    found = [(pod, result) for pod, result in _results(gang) if result.verdict == "Failed"]
    own = (pod for pod, result in found if pod.label == result.member)
    return next(own, found[0][0] if found else None)


def _failure(context: Context, draft: Draft, pod: Pod) -> tuple[Status, Problem]:
    """The status with the failure that the result in the pod describes, and why the job has failed."""
    result = (pod.exit.result if pod.exit else None) or ReportedResult("Failed")
    reason = result.reason or "Error"
    restarts = merged(draft.status.restarts, result.ledger)
    status = msgspec.structs.replace(draft.status, restarts=restarts)
    if result.member is not None:
        name = present_pod(context.job.key.name, result.member, status)
        status = with_failure(status, name, result, reason, log_tail(pod))
    message = result.message or f"{result.member or pod.label} has failed"
    if reason == START_DEADLINE:
        message += _why_missing(context, draft.gang)
    return status, Problem(reason, message)


def _last_progress(gang: SortedPods) -> ReportedProgress | None:
    """The progress that the launchers left with their result: the chief's, if its pod has ended."""
    found = sorted(_results(gang), key=lambda each: each[0] is not gang.chief)
    return next((result.progress for _, result in found if result.progress is not None), None)


def _without_python(spec: JobSpec, gang: SortedPods) -> Problem | None:
    """The launcher cannot start: the image lacks the interpreter that the operator puts in front of the command."""
    for pod in (*gang.pods, *gang.evaluators):
        if not pod.waiting and pod.exit is None:
            continue
        own = pod.waiting if pod.waiting.startswith(f"container {CONTAINER}: ") else ""
        words = pod.exit.message if pod.exit and pod.exit.reason != "Error" else own
        if "executable file" not in words and "no such file or directory" not in words:
            continue
        python = _python(spec, pod)
        if any(f"{quote}{python}{quote}" in words for quote in "\"'`"):
            message = (
                f"{pod.label}: the image has no {python}, and the launcher needs Python 3.9 or newer: use an image "
                "with Python, or set spec.restartPolicy.mode: Recreate, which uses no launcher"
            )
            return Problem("NoPython", message)
    return None


def _why_missing(context: Context, gang: SortedPods) -> str:
    """What keeps a pod from starting, or from being created: the launchers know only which member is missing."""
    refusal = context.observed.refusal
    if gang.missing and refusal is not None:
        return f"; {in_words(refusal)}"
    found = ((pod.label, why_not_started(pod, context.now)) for pod in gang.pods if not pod.ready)
    return next((f"; {label}: {why}" for label, why in found if why), "")


def _results(gang: SortedPods) -> list[tuple[Pod, ReportedResult]]:
    ended = ((pod, pod.exit) for pod in (*gang.pods, *gang.evaluators, *gang.given_up) if pod.exit is not None)
    return [(pod, end.result) for pod, end in ended if end.result is not None]


def _python(spec: JobSpec, pod: Pod) -> str:
    template = spec.template_of(pod.replica.role) if pod.replica else {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return next((python_of(each) for each in containers if each.get("name") == CONTAINER), "python3")
