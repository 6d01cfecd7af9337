"""What to try after a failure, by the reason in the status (docs/status.md). Pure.

Each text names the field or the command. What the message says already is left out, and so is advice that names
neither. JOB stands for the job's name, FILE for the file that it was submitted from.
"""

import re

from tftraining_api.model.status import (
    INPUT_NOT_REPRODUCIBLE,
    REPLICAS_DIFFER,
    RESUMED_TRAINING_DIFFERS,
    SLOW_MEMBER,
    Condition,
)
from tftraining_client.cluster.models import Job

FALLBACK = "`tftj logs JOB` has the program's words, `kubectl describe pod` those of the kubelet"
WAIT = "wait: the gang resumes from its last backup, free of charge"
AGAIN = "`tftj submit --replace -f FILE`"
TRACEBACK = "`tftj logs JOB` has the traceback; the gang restarts by itself"
STACKS = "read the stacks of all programs in `tftj logs JOB`: they show where each member waits"
MEMORY = "raise resources.limits.memory of the container in spec.template, or reduce the batch size"
UNIT = "reduce the batch size: the GPU's memory is full, and no field of the job enlarges it"
DISK = "enlarge the volume: resources.requests.storage of its claim, or sizeLimit of an emptyDir in spec.template"
OTHER_MODEL = "if the file is the backup of another model, begin anew: `tftj submit --replace --fresh -f FILE`"
NO_BATCH = "give every replica a batch: the input has fewer than spec.replicaSpecs.worker.replicas, or no file"
GIVE_FILE = (
    "give the file to every pod: in the image, in spec.storage (`tftj cp SOURCE JOB:PATH`, below TFTRAINING_DIR), or "
    "in a volume of spec.template"
)
SCOPE = "build the model, the optimizer and the metrics within `with strategy.scope():`"

# Ends that say nothing of the failures before: those of the last failure tell more.
AFTER_FAILURES = ("MaxRestartsExceeded", "SameFailure", "FailedByRule")
# By the exception, as it stands in the status; the first that is found.
OF_EXCEPTIONS = {
    r"No space left on device|Disk quota exceeded": DISK,
    r"^ResourceExhaustedError: .*GPU": UNIT,
    r"^(ResourceExhausted|Memory)Error\b": MEMORY,
    r"not found in checkpoint|Cannot assign value to variable|objects could not be loaded": OTHER_MODEL,
    r"^FileNotFoundError\b|No such file|any matching files|[Ff]ile (or directory )?(not )?found\b": GIVE_FILE,
    r"^PermissionError\b|[Pp]ermission denied": "give the user the right: securityContext.runAsUser or fsGroup in "
    "spec.template",
    r"^DataLossError\b": "make the damaged file anew, or leave it out of the data set",
    r"^StopIteration\b|\(Empty logs\)": NO_BATCH,
    r"the distribution strategy scope of|, in _distributed_tf_update_step\)": SCOPE,
    r"configured at program startup|cannot be modified after initialization": "do it at the beginning: create the "
    "strategy and set options before anything else of TensorFlow",
    r"^ValueError: (None values not supported|Target data is missing)": "give `fit` its targets: y, or (x, y) batches",
    r"unsupported operations when trying to compile": "compile the model or the function with `jit_compile=False`",
    r"^KeyError: 'val_": "give `fit` its validation_data, or let the callback do without it",
}
RIGHT = "a right that the operator lacks comes with its chart: upgrade it"
ENDED = "read the log of the member that has ended (`tftj logs JOB`): the others wait for it"
ADVICE = {
    "FailedByRule": "change the rule of spec.restartPolicy.rules that the message names, or the program",
    "StartDeadlineExceeded": "raise spec.runPolicy.startDeadlineSeconds if the start needs longer",
    "DeadlineExceeded": "raise spec.runPolicy.activeDeadlineSeconds",
    "InvalidSpec": "correct the field that the message names; an old definition of the resource accepts wrong specs: "
    "`tftj doctor` compares it",
    "InvalidPodTemplate": "correct the field of spec.template that the message names",
    "NoPython": "use an image with Python 3.9 or later in spec.template, or spec.restartPolicy.mode: Recreate",
    "NotFound": "correct the command of the container in spec.template, or use an image that contains the program",
    "SyntaxError": "`python -m py_compile PROGRAM` finds the place without a cluster",
    "ImportError": "install the module in the image of spec.template; `tftj run FILE` finds a missing module without a "
    "cluster",
    "Keras3Fit": "install keras 3.10 to 3.15, with spec.launcher.keras: Auto, or tf_keras with `import tf_keras as "
    "keras`; a backup of tf_keras needs tf_keras, or another directory (spec.storage.directory) to start over",
    "Error": TRACEBACK,
    "Killed": "find the sender of the SIGKILL: `journalctl -k` on the node has those of the kernel; or a sidecar",
    "OOMKilled": MEMORY,
    "Stalled": STACKS,
    "NoStep": f"{STACKS}; spec.runPolicy.stallTimeoutSeconds restarts a training that stands still",
    "SlowStart": "`tftj logs JOB` shows what the named members do; with another value than 600 "
    "spec.runPolicy.startDeadlineSeconds fails such a job",
    "NoGPU": "use an image with NVIDIA's CUDA libraries in spec.template (requirements/trainer-gpu.txt); `nvidia-smi` "
    "on the node shows its driver",
    "TrainsAlone": "build the strategy from the TF_CONFIG of the environment, which the program must not remove; or "
    "set spec.replicaSpecs.worker.replicas: 1",
    "InputNotReproducible": "make the input reproducible (docs/memory-backups.md), or set "
    "spec.launcher.memoryBackup.exactness: Required",
    REPLICAS_DIFFER: "test the node of the named member (`kubectl get pod -o wide`), and go back to a checkpoint of "
    "before (docs/memory-backups.md); a program whose workers differ by design needs nothing",
    SLOW_MEMBER: "look for other pods and limits of the CPU on the named node (`kubectl describe node`); if the member "
    "waits for its input, at the storage that it reads from",
    "InitContainerFailed": "read the log of the init container: `tftj logs JOB --container CONTAINER`",
    "Evicted": "raise resources.requests of the container in spec.template for the resource that the message names",
    **dict.fromkeys(
        ("StartError", "ContainerCannotRun", "RunContainerError"),
        "correct the command of the container in spec.template",
    ),
    "PodsNotReady": "correct the image, claim or resources.requests in spec.template that the message names",
    "CreationRefused": f"change the quota, webhook, policy or name that the message names; {RIGHT}",
    "WaitingForQuota": "raise the quota that the message names, or reduce the job (`tftj scale JOB --replicas N`): it "
    "starts when all of it fits",
    "StorageInUse": "wait for the other job, or give this one another spec.storage.directory",
    "ChangeRefused": f"change the webhook or policy that the message names; {RIGHT}",
    "LegacyKeras": "upgrade the definition of the resource, which `tftj doctor` compares, and submit the job again",
    "Forbidden": "give the operator the right that the message names: its chart of the same version has all of them",
    "InternalError": "report the fault with the operator's log (`kubectl logs`); a gang that runs trains on",
    "Stopping": "wait until the earlier pods are gone; `kubectl get pod -o yaml` shows the node and the finalizers of "
    "one that stays",
    "PodsStarting": "wait: no cause of a delay is known yet",
    "CreatingPods": "wait: the operator is about to create the pods",
    "NodeNotReady": "`kubectl describe node`: after spec.runPolicy.nodeLostSeconds its pods are created elsewhere",
    "Resized": WAIT,
    "Grown": WAIT,
    "SpecChanged": WAIT,
    "RestartRequested": WAIT,
    "MemberLost": "wait: the gang resumes from its last backup; if it recurs, `kubectl describe node`",
    "Terminated": WAIT,
    "ResumedTrainingDiffers": "wait: the training resumes from its storage, free of charge; report the message",
    "PodDeleted": WAIT,
    "UncleanContainer": "wait: the pod is made anew; a command that cannot run twice in a container recurs",
    "NodeSuspected": "wait: the pod is made anew, on another node if one has room; check the node",
    "NodeLost": "repair or remove the node (`kubectl delete node`); the pod is created on another one",
    "NodeCondition": "wait: the pod is made anew, on another node if one has room; repair the node",
    "KeyLost": "do not delete the job's Secret; the gang resumes in new pods",
    "Starting": "wait: the pods exist and do not train yet",
    "FewerWorkers": "`tftj status JOB` shows the missing workers; the others train on",
    "Suspended": "resume the job: `tftj resume JOB`",
    "SpecUnreadable": "run an operator of the version that wrote the job, or correct the part in the message",
    "StatusUnreadable": "run an operator of the version that wrote the job, or correct the part in the message",
    "ChildUnreadable": "report the message; to go on, `kubectl delete` the object that it names",
}
OF_A_POD = "raise activeDeadlineSeconds in spec.template, or leave it out"  # DeadlineExceeded of a pod, not of the job
NO_OPERATOR = "no operator has seen the job: `tftj doctor` checks the operator"
NOT_WHILE_IT_RUNS = ("spec.template", "spec.storage", "spec.launcher")
# Conditions that keep the operator from going on, whatever the reason of a job in these phases says of the next step.
STANDS_STILL, BEGUN = ("ChangeRefused", "ReconcileError", "Unreadable"), ("Running", "Restarting", "Suspended")
WARNINGS = (
    *("NoProgress", "NoGPU", "TrainsAlone", "StorageShared", "LegacyKeras"),
    *(INPUT_NOT_REPRODUCIBLE, REPLICAS_DIFFER, RESUMED_TRAINING_DIFFERS, SLOW_MEMBER, *STANDS_STILL),
)


def advice(phase: str, reason: str, cause: str = "", exception: str = "") -> str:
    """What to try; "" if there is nothing to do. `cause` and `exception` are those of the last failure."""
    if phase == "Pending":
        return NO_OPERATOR
    if phase in ("Running", "Succeeded") and reason not in ADVICE:
        return ""
    if reason in (*AFTER_FAILURES, "Error"):
        of_cause = _of_cause(cause) if reason in AFTER_FAILURES else ""
        return _of_exception(exception) or of_cause or ADVICE.get(reason, "")
    return _of_cause(reason) if phase == "Restarting" else ADVICE.get(reason, FALLBACK)


def _of_cause(reason: str) -> str:
    """The advice for the end of a pod or of its program; "" for a program's own failure."""
    if reason in ("", "Error"):
        return ""
    return OF_A_POD if reason == "DeadlineExceeded" else ADVICE.get(reason, FALLBACK)


def _of_exception(exception: str) -> str:
    return next((text for found, text in OF_EXCEPTIONS.items() if re.search(found, exception)), "")


def advice_for(job: Job) -> str:
    """What to try with this job, with the command that submits it again."""
    text = _of_the_job(job)
    if "`tftj submit" not in text and (job.failed or any(field in text for field in NOT_WHILE_IT_RUNS)):
        text = (
            f"{text}; then {AGAIN}{_resumes(job)}" if text else f"after a change of the program {AGAIN}{_resumes(job)}"
        )
    if (job.raw.get("metadata") or {}).get("generateName"):  # each submission is another job
        text = re.sub("`tftj submit --replace (--fresh )?", "`tftj submit ", text)
    return text.replace("-f FILE`", f"-f FILE{_code_option(job)}`").replace("JOB", job.name)


def _of_the_job(job: Job) -> str:
    status = job.status
    ended = "exited with code" in (status.message or "")
    counts = status.replicas.values()
    if status.reason == "PodsStarting" and (ended or any(each.succeeded or each.failed for each in counts)):
        return ENDED
    failure = status.failure
    told = (failure.reason or "", failure.exception or "") if failure is not None else ()
    text = advice(job.phase, status.reason or "", *told)
    if text == OTHER_MODEL and not _has_storage(job):  # each new job begins anew
        return ""
    of_warnings = [text for text in (ADVICE.get(each.reason, WAIT) for each in warnings(job)) if text[:5] != "wait:"]
    waits = job.phase in BEGUN and any(each.type in STANDS_STILL for each in warnings(job))
    idle = waits or text in ("", NO_OPERATOR) or text.startswith("wait")
    return of_warnings[-1] if of_warnings and idle else text


def warnings(job: Job) -> list[Condition]:
    """The conditions of the job that are a warning."""
    found = (job.status.condition(kind) for kind in WARNINGS)
    return [each for each in found if each is not None and each.status == "True"]


def _has_storage(job: Job) -> bool:
    return bool((job.raw.get("spec") or {}).get("storage"))


def _resumes(job: Job) -> str:
    """Where the next job begins, if this one has trained and has a storage."""
    return ", which resumes from the last backup" if _has_storage(job) and job.status.progress is not None else ""


def _code_option(job: Job) -> str:
    """The option of `tftj submit` that brings the program, if the job had one."""
    code = (job.raw.get("spec") or {}).get("code") or {}
    return " --git URL@SHA" if code.get("git") else " --code DIR" if code else ""
