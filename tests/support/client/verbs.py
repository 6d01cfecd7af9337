"""Every command of `tftj` that asks a cluster, with the arguments that it needs for the job `digits`."""

from pathlib import Path

JOB = "digits"
# The commands about one job that exists.
OF_A_JOB = {
    "status": (),
    "logs": (),
    "wait": ("--timeout", "0.3s"),
    "suspend": (),
    "resume": (),
    "restart": (),
    "scale": ("--replicas", "3"),
    "delete": (),
    "explain": (),
    "plot": (),
    "cp": (),
    "ls": (),
    "tensorboard": ("--port", "0"),
    "top": (),
}
OTHERS = ("list", "submit", "convert", "doctor", "dashboard")
# They need a pod of their own, and so a kubelet.
WITH_POD = ("tensorboard", "cp", "ls")
CLUSTER_VERBS = (*OTHERS, *OF_A_JOB)
WITHOUT_CLUSTER = ("run", "init", "completion")


def words(verb: str, manifest: Path, job: str = JOB) -> list[str]:
    """The arguments of the command; `manifest` is the file of a job."""
    if verb == "submit":
        return [verb, "-f", str(manifest)]
    if verb == "convert":
        return [verb, "--from-cluster", job]
    if verb == "cp":
        return [verb, f"{job}:model.keras", "."]
    return [verb, job, *OF_A_JOB[verb]] if verb in OF_A_JOB else [verb]
