"""What to try after a failure, by the reason in the status (docs/status.md). Pure.

Each text names the field or the command; what the message says already is left out. JOB stands for the job's name.
"""

from tftraining_client.cluster.models import Job

FALLBACK = "read the log; `kubectl describe` of the pod has the kubelet's messages"
WAIT = "wait: the gang resumes from its last backup, free of charge"
PROGRAM = "correct the program"
MEMORY = "raise resources.limits.memory of the container in spec.template, or reduce the batch size"
AGAIN = "then `tftj delete JOB` and `tftj submit -f FILE`: it resumes from its backup"
CHANGE = "the template can be changed between `tftj suspend JOB` and `tftj resume JOB`"

# Ends that say nothing of the failures before: those of the last failure tell more.
AFTER_FAILURES = ("MaxRestartsExceeded", "SameFailure", "FailedByRule")
# By the last part of the name of an exception.
OF_EXCEPTIONS = {
    **dict.fromkeys(("ResourceExhaustedError", "MemoryError"), MEMORY),
    **dict.fromkeys(
        ("FileNotFoundError", "NotFoundError"),
        "give the file to every pod: in the image, in spec.storage (TFTRAINING_DIR), or in a volume of spec.template",
    ),
    "PermissionError": "give the user the right: securityContext.runAsUser or fsGroup in spec.template",
    "DataLossError": "make the damaged file anew, or leave it out of the data set",
}
ENDED = "read the log of the member that has ended (`tftj logs JOB`): the others wait for it"
ADVICE = {
    "MaxRestartsExceeded": PROGRAM,
    "SameFailure": PROGRAM,
    "FailedByRule": "correct the program, or the rule of spec.restartPolicy.rules that the message names",
    "StartDeadlineExceeded": "raise spec.runPolicy.startDeadlineSeconds if the start needs longer",
    "DeadlineExceeded": "raise spec.runPolicy.activeDeadlineSeconds",
    "InvalidSpec": "correct the field that the message names; an old definition of the resource accepts wrong specs: "
    "`tftj doctor` compares it",
    "InvalidPodTemplate": "correct the field of spec.template that the message names",
    "NoPython": "use an image with Python 3.9 or later in spec.template, or spec.restartPolicy.mode: Recreate",
    "NotFound": "correct the command of the container in spec.template, or use an image that contains the program",
    "SyntaxError": "correct the program; `python -m py_compile FILE` finds the place without a cluster",
    "ImportError": "install the module in the image of spec.template; `tftj run FILE` finds a missing module without a "
    "cluster",
    "Keras3Fit": "install keras 3.10 to 3.15, with spec.launcher.keras: Auto, or tf_keras with `import tf_keras as "
    "keras`; a backup of tf_keras needs tf_keras, or another directory to start over",
    "Error": PROGRAM,
    "Killed": "find the sender of the SIGKILL: the node's log, or a sidecar",
    "OOMKilled": MEMORY,
    "Stalled": "read the stacks of all programs in `tftj logs JOB`: they show where each member waits",
    "NoStep": "read the stacks of all programs in `tftj logs JOB`; spec.runPolicy.stallTimeoutSeconds restarts a "
    "training that stands still",
    "TrainsAlone": "build the strategy from the TF_CONFIG of the environment, which the program must not remove; or "
    "set spec.replicaSpecs.worker.replicas: 1",
    "InitContainerFailed": "read the log of the init container: `kubectl logs POD -c CONTAINER`",
    "PodsNotReady": "correct the image, claim or resources.requests in spec.template that the message names",
    "CreationRefused": "change the quota, webhook, policy or name that the message names; `tftj doctor` checks rights",
    "WaitingForQuota": "wait, raise the quota that the message names, or reduce the job: it starts when all of it fits",
    "StorageInUse": "wait for the other job, or give this one another spec.storage.directory",
    "ChangeRefused": "change the webhook or policy that the message names; `tftj doctor` checks the operator's rights",
    "Stopping": "wait until the earlier pods are gone; if one stays, look at its node and its finalizers",
    "PodsStarting": "wait: no cause of a delay is known yet",
    "CreatingPods": "wait: the operator is about to create the pods",
    "NodeNotReady": "check the node: after spec.runPolicy.nodeLostSeconds its pods are created elsewhere",
    "Resized": WAIT,
    "Grown": WAIT,
    "SpecChanged": WAIT,
    "RestartRequested": WAIT,
    "MemberLost": "wait: the gang resumes from its last backup; if it recurs, check the node and the network",
    "Terminated": WAIT,
    "ResumedTrainingDiffers": "wait: the training resumes from its storage, free of charge; report the message",
    "PodDeleted": WAIT,
    "UncleanContainer": "wait: the pod is made anew; a command that cannot run twice in a container recurs",
    "NodeLost": "repair or remove the node; the pod is created on another one",
    "KeyLost": "do not delete the job's Secret; the gang resumes in new pods",
    "Starting": "wait: the pods exist and do not train yet",
    "FewerWorkers": "the message says why workers are missing; the others train on",
    "Suspended": "resume the job: `tftj resume JOB`",
    "SpecUnreadable": "run an operator of the version that wrote the job, or correct the part in the message",
    "StatusUnreadable": "run an operator of the version that wrote the job, or correct the part in the message",
    "ChildUnreadable": "report the message; to go on, delete the object that it names",
}
NO_OPERATOR = "no operator has seen the job: `tftj doctor` checks the operator"


def advice(phase: str, reason: str, cause: str = "", exception: str = "") -> str:
    """What to try; "" if there is nothing to do. `cause` and `exception` are those of the last failure."""
    if phase == "Pending":
        return NO_OPERATOR
    if phase in ("Running", "Succeeded") and reason not in ADVICE:
        return ""
    text = _of_the_failure(reason, cause, exception) or ADVICE.get(reason, FALLBACK)
    if phase == "Failed" and text != FALLBACK:
        return f"{text}; {AGAIN}"
    return f"{text}; {CHANGE}" if "spec.template" in text else text


def _of_the_failure(reason: str, cause: str, exception: str) -> str:
    """The advice for the last failure; "" if it knows no more than that of the reason."""
    if reason not in (*AFTER_FAILURES, "Error"):
        return ""
    kind = cause if reason in AFTER_FAILURES and cause in ADVICE else "Error"
    named = OF_EXCEPTIONS.get(exception.partition(":")[0].rpartition(".")[2], "")
    return named or (ADVICE[kind] if kind != "Error" else "")


def advice_for(job: Job) -> str:
    """What to try with this job."""
    failure, ended = job.status.failure, "exited with code" in (job.status.message or "")
    counts = job.status.replicas.values()
    if job.status.reason == "PodsStarting" and (ended or any(each.succeeded or each.failed for each in counts)):
        return ENDED.replace("JOB", job.name)
    told = (failure.reason or "", failure.exception or "") if failure is not None else ()
    return advice(job.phase, job.status.reason or "", *told).replace("JOB", job.name)
