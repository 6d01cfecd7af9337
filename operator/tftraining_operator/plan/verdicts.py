"""The end of a job as its launchers tell it, and the one that keeps them from starting: no Python in the image.

The launchers end together, each with the verdict and the last words of the member that is blamed: any of them will do.
"""

import msgspec

from tftraining_operator.build.launcher import python_of
from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.names import CONTAINER, pod_name
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.report import Verdict
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.model.status import Failure, Status
from tftraining_operator.plan.gang import Gang
from tftraining_operator.plan.reported import merged, with_told
from tftraining_operator.plan.restart import log_tail
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.starting import held_up


def succeeded(gang: Gang) -> bool:
    """Whether a launcher has left the verdict that the chief's program has done its work."""
    return any(verdict.verdict == "Succeeded" for _, verdict in _verdicts(gang))


def failed(gang: Gang) -> Pod | None:
    """A pod with the verdict that the job has failed: that of the member that is blamed, if it is there."""
    found = [(pod, verdict) for pod, verdict in _verdicts(gang) if verdict.verdict == "Failed"]
    own = (pod for pod, verdict in found if pod.label == verdict.member)
    return next(own, found[0][0] if found else None)


def failure(job: Job, pod: Pod, scene: Scene) -> tuple[Status, Problem]:
    """The status with what the verdict in the pod tells of the failure, and why the job has failed."""
    verdict = (pod.exit.verdict if pod.exit else None) or Verdict("Failed")
    reason = verdict.reason or "Error"
    told = job.status.failure
    if verdict.member is not None:
        told = Failure(
            pod=pod_name(job.key.name, verdict.member),
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            reason=reason,
            exception=verdict.exception or None,
            log_tail=log_tail(pod),
        )
    status = msgspec.structs.replace(job.status, restarts=merged(job.status.restarts, verdict.ledger), failure=told)
    message = verdict.message or f"{verdict.member or pod.label} has failed"
    return status, Problem(reason, f"{message}{_held_up(scene)}" if reason == "StartDeadlineExceeded" else message)


def last_progress(gang: Gang, status: Status) -> Status:
    """The status with the progress that the launchers left with their verdicts: the chief's, if it has ended yet."""
    found = sorted(_verdicts(gang), key=lambda each: each[0] is not gang.chief)
    last = next((verdict.progress for _, verdict in found if verdict.progress is not None), None)
    return status if last is None else with_told(status, last)


def without_python(spec: JobSpec, gang: Gang) -> Problem | None:
    """The launcher cannot start: the interpreter that was put in front of the user's command is not in the image."""
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
                f"{pod.label}: the image has no {python} to run the launcher with: use an image with Python 3.9 or "
                "newer, or set spec.restartPolicy.mode: Recreate, which needs none"
            )
            return Problem("NoPython", message)
    return None


def _held_up(scene: Scene) -> str:
    """What keeps a pod from starting, or from being made: the launchers know only who is missing."""
    if scene.gang.missing and scene.seen.refusal is not None:
        return f"; {scene.seen.refusal.child}: {scene.seen.refusal.message}"
    found = ((pod.label, held_up(pod, scene.now)) for pod in scene.gang.pods if not pod.ready)
    return next((f"; {label}: {why}" for label, why in found if why), "")


def _verdicts(gang: Gang) -> list[tuple[Pod, Verdict]]:
    ended = ((pod, pod.exit) for pod in (*gang.pods, *gang.evaluators, *gang.leaving) if pod.exit is not None)
    return [(pod, end.verdict) for pod, end in ended if end.verdict is not None]


def _python(spec: JobSpec, pod: Pod) -> str:
    template = spec.template_of(pod.replica.role) if pod.replica else {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return next((python_of(each) for each in containers if each.get("name") == CONTAINER), "python3")
