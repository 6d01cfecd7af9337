"""The policies of a TFJob: restarts, deadlines, scheduling and success. Pure."""

from collections.abc import Sequence

from tftraining_client.errors import UserError
from tftraining_client.tfjob.notes import Json, Notes, mapping, whole
from tftraining_client.tfjob.replicas import Replicas

# Before v1 of the training operator these fields were those of the spec.
RUN_POLICY = (
    *("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy"),
    *("suspend", "managedBy"),
)
SPEC = ("tfReplicaSpecs", "runPolicy", "successPolicy", "enableDynamicWorker", *RUN_POLICY)
OURS, THEIRS = "tftraining.dev/operator", "kubeflow.org/training-operator"
LARGEST = 2**31 - 1
DEFAULT_MAX_RESTARTS = 10
VOLCANO, COSCHEDULING = "scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"
POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


def run_policy_of(spec: Json, notes: Notes) -> Json:
    """The run policy, wherever this version of TFJob has its fields."""
    policy = {name: spec[name] for name in RUN_POLICY if spec.get(name) is not None}
    policy |= mapping(spec.get("runPolicy"), "spec.runPolicy")
    for name in sorted({*spec} - {*SPEC}):
        notes.add(f"spec.{name}", "has no counterpart, and is left out")
    for name in sorted({*policy} - {*RUN_POLICY}):
        notes.add(f"spec.runPolicy.{name}", "has no counterpart, and is left out")
    return policy


def restart_policy(roles: Sequence[Replicas], policy: Json, notes: Notes) -> Json:
    """spec.restartPolicy of the job."""
    limit = whole(policy.get("backoffLimit"), "spec.runPolicy.backoffLimit")
    gang = [each for each in roles if each.role != "evaluator"]
    for each in roles:
        if each.restart_policy not in POLICIES:
            raise UserError(f"{each.where}.restartPolicy: {each.restart_policy} is none of {', '.join(POLICIES)}")
    _tell_evaluator(roles, notes)
    kinds = {each.restart_policy for each in gang}
    if kinds == {"Never"}:
        notes.add(
            "restartPolicy: Never",
            "is spec.restartPolicy.maxRestarts: 0; raise it, and a failed program restarts from its backup. Lost and "
            "evicted pods are recreated in any case",
        )
        return {"maxRestarts": 0}
    result: Json = {}
    if limit is not None:
        notes.add(
            "spec.runPolicy.backoffLimit",
            "is spec.restartPolicy.maxRestarts: an incident of the gang is one charge, and progress refills the budget",
        )
        result["maxRestarts"] = min(limit, LARGEST)
    else:
        notes.add(
            "spec.runPolicy.backoffLimit",
            f"is unset, no limit for a TFJob; here it is spec.restartPolicy.maxRestarts: {DEFAULT_MAX_RESTARTS}",
        )
    rules = [rule for each in gang for rule in _rules(each, len(kinds) == 1, notes)]
    distinct = [rule for number, rule in enumerate(rules) if rule not in rules[:number]]
    return result | ({"rules": distinct} if distinct else {})


def _rules(role: Replicas, alike: bool, notes: Notes) -> list[Json]:
    """The rules that make one role's policy. `alike`: all roles have the same."""
    whose = {} if alike else {"role": role.role}
    if role.restart_policy == "ExitCode":
        notes.add(
            "restartPolicy: ExitCode",
            "is a rule that fails the job after codes 1 to 127; keep only the codes that no restart can help. "
            "A TFJob ignores backoffLimit under this policy",
        )
        return [{"onExitCodes": list(range(1, 128)), **whose, "action": "FailJob"}]
    if role.restart_policy == "Never":
        notes.add(f"{role.where}.restartPolicy", "Never is a rule that fails the job")
        return [{**whose, "action": "FailJob"}]
    notes.add(
        f"restartPolicy: {role.restart_policy}",
        "is the default: the whole gang restarts in its pods from the backup"
        + ("; a program that exited with 0 never runs again" if role.restart_policy == "Always" else ""),
    )
    return []


def _tell_evaluator(roles: Sequence[Replicas], notes: Notes) -> None:
    for each in roles:
        if each.role == "evaluator":
            notes.add(
                each.where, "is not part of the gang: it restarts alone, free of charge, and ends with the training"
            )


def run_policy(policy: Json, gang_size: int, schedulers: set[str], gang_scheduler: str | None, notes: Notes) -> Json:
    """spec.runPolicy of the job. `gang_size` counts the pods of a PodGroup, `schedulers` are those of the templates."""
    result: Json = {}
    for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        value = whole(policy.get(name), f"spec.runPolicy.{name}")
        if value is not None:
            result[name] = min(value, LARGEST)
    if "activeDeadlineSeconds" in result:
        notes.add("spec.runPolicy.activeDeadlineSeconds", "is enforced here, and its clock restarts with a resumed job")
    if policy.get("suspend") is not None:
        result["suspend"] = policy["suspend"]
    if clean := _clean_pod_policy(policy.get("cleanPodPolicy"), notes):
        result["cleanPodPolicy"] = clean
    if (manager := policy.get("managedBy")) not in (None, THEIRS):
        result["managedBy"] = manager
    if scheduling := _scheduling(policy.get("schedulingPolicy"), gang_size, schedulers, gang_scheduler, notes):
        result["scheduling"] = scheduling
    return result


def _clean_pod_policy(value: object, notes: Notes) -> str:
    found = str(value or "")
    if not found:
        notes.add(
            "spec.runPolicy.cleanPodPolicy",
            "is unset: here pods that still run are deleted at the end, a TFJob keeps them (None)",
        )
        return ""
    for known in ("Running", "All", "None"):
        if found.lower() == known.lower():
            return known
    raise UserError(f"spec.runPolicy.cleanPodPolicy: {found} is none of Running, All, None")


def _scheduling(value: object, gang_size: int, schedulers: set[str], gang_scheduler: str | None, notes: Notes) -> Json:
    where = "spec.runPolicy.schedulingPolicy"
    policy = mapping(value, where)
    result: Json = {"priorityClassName": policy["priorityClass"]} if policy.get("priorityClass") else {}
    if policy.get("minResources"):
        notes.add(f"{where}.minResources", "has no counterpart, and is left out: the group counts pods")
    asked = {name: policy[name] for name in ("minAvailable", "queue", "scheduleTimeoutSeconds") if policy.get(name)}
    if not asked and gang_scheduler is None and not schedulers & {"volcano", "scheduler-plugins-scheduler"}:
        return result
    kind = _group_kind(asked, schedulers, gang_scheduler, notes)
    group: Json = {"apiVersion": kind}
    if (least := whole(asked.get("minAvailable"), f"{where}.minAvailable")) is not None:
        group["minAvailable"] = min(least, gang_size)
        if least > gang_size:
            notes.add(f"{where}.minAvailable", f"is {gang_size} instead of {least}: an evaluator is in no group")
    for theirs, ours, having in (
        ("queue", "queue", VOLCANO),
        ("scheduleTimeoutSeconds", "timeoutSeconds", COSCHEDULING),
    ):
        if theirs in asked and kind == having:
            group[ours] = asked[theirs]
        elif theirs in asked:
            notes.add(f"{where}.{theirs}", f"is left out: a PodGroup of {kind} has none")
    return {**result, "podGroup": group}


def _group_kind(asked: Json, schedulers: set[str], gang_scheduler: str | None, notes: Notes) -> str:
    """The PodGroup's API: a flag of the TFJob operator has it, so the job only hints at it."""
    chosen = {"volcano": VOLCANO, "coscheduling": COSCHEDULING}.get(gang_scheduler or "")
    if chosen is None:
        timed = "scheduleTimeoutSeconds" in asked and "queue" not in asked
        chosen = COSCHEDULING if "scheduler-plugins-scheduler" in schedulers or timed else VOLCANO
        notes.add(
            "spec.runPolicy.schedulingPolicy",
            f"is a PodGroup of {chosen}: a TFJob does not name its gang scheduler; --gang-scheduler chooses it",
        )
    return chosen


def success_policy(spec: Json, notes: Notes) -> Json:
    """spec.successPolicy of the job, as a part of the spec."""
    if spec.get("enableDynamicWorker"):
        notes.add(
            "spec.enableDynamicWorker",
            "has no counterpart: a changed number of workers restarts the gang once, free of charge",
        )
    policy = str(spec.get("successPolicy") or "")
    if policy == "AllWorkers":
        return {"successPolicy": policy}
    if policy not in ("", "Default"):
        notes.add("spec.successPolicy", f"{policy} is Chief: the chief's exit code decides, otherwise worker 0's")
    return {}
