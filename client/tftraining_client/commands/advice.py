"""What to try after a failure, by the reason in the status (docs/status.md). Pure."""

FALLBACK = "read the log; `kubectl describe` of the pod has the kubelet's messages"
WAIT = "wait: the gang resumes from its last backup, free of charge"
LOG = "read the log above and correct the program; then create the job again: it resumes from its backup"

ADVICE = {
    "MaxRestartsExceeded": LOG,
    "SameFailure": LOG,
    "FailedByRule": "correct the program, or the rule of spec.restartPolicy.rules that the message names",
    "StartDeadlineExceeded": "remove the cause in the message, or raise spec.runPolicy.startDeadlineSeconds; then "
    "create the job again",
    "DeadlineExceeded": "raise spec.runPolicy.activeDeadlineSeconds; then create the job again: it resumes from "
    "its backup",
    "InvalidSpec": "correct the spec as the message says; an old definition of the resource accepts wrong specs: "
    "`tftj doctor` compares it",
    "InvalidPodTemplate": "correct the pod template as the message says",
    "NoPython": "use an image with Python 3.9 or later, or spec.restartPolicy.mode: Recreate",
    "NotFound": "correct the command of the container, or use an image that contains the program",
    "SyntaxError": "correct the program; `python -m py_compile FILE` finds the place without a cluster",
    "ImportError": "install the module in the image; `tftj run` finds a missing module without a cluster",
    "Keras3Fit": "install keras 3.10 to 3.15, with spec.launcher.keras: Auto, or tf_keras with `import tf_keras as "
    "keras`; a backup of tf_keras needs tf_keras, or another directory to start over",
    "Error": LOG,
    "Killed": "find the sender of the SIGKILL: the node's log, or a sidecar",
    "OOMKilled": "raise resources.limits.memory of the container, or reduce the batch size",
    "Stalled": "read the stacks of all programs in `tftj logs`: they show where each member waits",
    "NoStep": "read the stacks of all programs in `tftj logs`; spec.runPolicy.stallTimeoutSeconds restarts a training "
    "that stands still",
    "InitContainerFailed": "read the log of the init container: `kubectl logs POD -c CONTAINER`",
    "PodsNotReady": "remove the cause in the message: an image, a claim, a quota, or a request that no node fulfils",
    "CreationRefused": "remove the cause in the message: a quota, a webhook, a policy, or a name that is taken",
    "WaitingForQuota": "wait, raise the quota that the message names, or reduce the job: it starts when all of it fits",
    "StorageInUse": "wait for the other job, or give this one another spec.storage.directory",
    "ChangeRefused": "remove the cause in the message: a webhook, a policy, or a right that the operator lacks",
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


def advice(phase: str, reason: str) -> str:
    """What to try; "" if there is nothing to do."""
    if phase == "Pending":
        return NO_OPERATOR
    if phase in ("Running", "Succeeded") and reason not in ADVICE:
        return ""
    return ADVICE.get(reason, FALLBACK)
