"""The policies of a TFJob: restarts, deadlines, scheduling and success. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tftraining_client.errors import UserError
from tftraining_client.tfjob.notes import Json, Notes, leave_out, mapping, whole
from tftraining_client.tfjob.replicas import Defaults, Replicas

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
SCHEDULING = ("minAvailable", "minResources", "priorityClass", "queue", "scheduleTimeoutSeconds")
POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


@dataclass(frozen=True)
class Group:
    """The pods of a PodGroup: how many, the schedulers that their templates name, and the one that the user names."""

    size: int
    named: set[str]
    scheduler: str | None


def run_policy_of(spec: Json, notes: Notes) -> Json:
    """The run policy, wherever this version of TFJob has its fields."""
    policy = {name: spec[name] for name in RUN_POLICY if spec.get(name) is not None}
    policy |= mapping(spec.get("runPolicy"), "spec.runPolicy")
    leave_out(spec, "spec", SPEC, notes)
    leave_out(policy, "spec.runPolicy", RUN_POLICY, notes)
    return policy


def restart_policy(roles: Sequence[Replicas], policy: Json, defaults: Defaults, notes: Notes) -> Json:
    """spec.restartPolicy of the job."""
    gang = [each for each in roles if each.role != "evaluator"]
    for each in roles:
        if each.restart_policy not in POLICIES:
            raise UserError(f"{each.where}.restartPolicy: {each.restart_policy} is none of {', '.join(POLICIES)}")
    _tell_evaluator(roles, notes)
    kinds = {each.restart_policy for each in gang}
    if kinds == {"Never"}:
        notes.add(
            gang[0].policy_field,
            "is spec.restartPolicy.maxRestarts: 0; raise it, and a failed program restarts from its backup. Lost and "
            "evicted pods are recreated in any case",
        )
        return {"maxRestarts": 0}
    result = _budget(policy, kinds, defaults, notes)
    rules = [rule for each in gang for rule in _rules(each, len(kinds) == 1, notes)]
    distinct = [rule for number, rule in enumerate(rules) if rule not in rules[:number]]
    return result | ({"rules": distinct} if distinct else {})


def _budget(policy: Json, kinds: set[str], defaults: Defaults, notes: Notes) -> Json:
    """The largest number of restarts. A TFJob counts those of its roles with OnFailure and Always alone."""
    where, ours = "spec.runPolicy.backoffLimit", "spec.restartPolicy.maxRestarts"
    given = whole(policy.get("backoffLimit"), where)
    limit = defaults.backoff_limit if given is None else given
    if limit is None or not kinds & {"OnFailure", "Always"}:
        ignored = "is left out: a TFJob ignores it under restartPolicy: ExitCode"
        text = "is unset, no limit for a TFJob" if given is None else ignored
        notes.add(where, f"{text}; here {ours} is {DEFAULT_MAX_RESTARTS}")
        return {}
    unset = "" if given is not None else f"is unset, {limit} for a TFJob of this version, and "
    notes.add(where, f"{unset}is {ours}: an incident of the gang is one charge, and progress refills the budget")
    return {"maxRestarts": min(limit, LARGEST)}


def _rules(role: Replicas, alike: bool, notes: Notes) -> list[Json]:
    """The rules that make one role's policy. `alike`: all roles have the same."""
    whose = {} if alike else {"role": role.role}
    if role.restart_policy == "ExitCode":
        notes.add(
            role.policy_field,
            "is a rule that fails the job after codes 1 to 127; keep only the codes that no restart can help",
        )
        return [{"onExitCodes": list(range(1, 128)), **whose, "action": "FailJob"}]
    if role.restart_policy == "Never":
        notes.add(role.policy_field, f"of {role.where} is a rule that fails the job")
        return [{**whose, "action": "FailJob"}]
    notes.add(
        role.policy_field,
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


def run_policy(policy: Json, group: Group, defaults: Defaults, notes: Notes) -> Json:
    """spec.runPolicy of the job."""
    result: Json = {}
    for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        value = whole(policy.get(name), f"spec.runPolicy.{name}")
        if value is not None:
            result[name] = min(value, LARGEST)
    if "activeDeadlineSeconds" in result:
        notes.add("spec.runPolicy.activeDeadlineSeconds", "is enforced here, and its clock restarts with a resumed job")
    if policy.get("suspend") is not None:
        result["suspend"] = policy["suspend"]
    if clean := _clean_pod_policy(policy.get("cleanPodPolicy"), defaults, notes):
        result["cleanPodPolicy"] = clean
    if (manager := policy.get("managedBy")) not in (None, THEIRS):
        result["managedBy"] = manager
    elif manager:
        notes.add("spec.runPolicy.managedBy", f"{THEIRS} is left out: the default here is {OURS}")
    if scheduling := _scheduling(policy.get("schedulingPolicy"), group, notes):
        result["scheduling"] = scheduling
    return result


def _clean_pod_policy(value: object, defaults: Defaults, notes: Notes) -> str:
    found = str(value or "")
    if not found:
        if defaults.clean_pod_policy != "Running":
            notes.add(
                "spec.runPolicy.cleanPodPolicy",
                "is unset: here pods that still run are deleted at the end, a TFJob keeps them (None)",
            )
        return ""
    for known in ("Running", "All", "None"):
        if found.lower() == known.lower():
            return known
    raise UserError(f"spec.runPolicy.cleanPodPolicy: {found} is none of Running, All, None")


def _scheduling(value: object, gang: Group, notes: Notes) -> Json:
    where = "spec.runPolicy.schedulingPolicy"
    policy = mapping(value, where)
    leave_out(policy, where, SCHEDULING, notes)
    result: Json = {"priorityClassName": policy["priorityClass"]} if policy.get("priorityClass") else {}
    if policy.get("minResources"):
        notes.add(f"{where}.minResources", "has no counterpart, and is left out: the group counts pods")
    asked = {name: policy[name] for name in ("minAvailable", "queue", "scheduleTimeoutSeconds") if policy.get(name)}
    if not asked and gang.scheduler is None and not gang.named & {"volcano", "scheduler-plugins-scheduler"}:
        return result
    kind = _group_kind(asked, gang, notes)
    group: Json = {"apiVersion": kind}
    if (least := whole(asked.get("minAvailable"), f"{where}.minAvailable")) is not None:
        group["minAvailable"] = min(least, gang.size)
        if least > gang.size:
            notes.add(f"{where}.minAvailable", f"is {gang.size} instead of {least}: an evaluator is in no group")
    for theirs, ours, having in (
        ("queue", "queue", VOLCANO),
        ("scheduleTimeoutSeconds", "timeoutSeconds", COSCHEDULING),
    ):
        if theirs in asked and kind == having:
            group[ours] = asked[theirs]
        elif theirs in asked:
            notes.add(f"{where}.{theirs}", f"is left out: a PodGroup of {kind} has none")
    return {**result, "podGroup": group}


def _group_kind(asked: Json, gang: Group, notes: Notes) -> str:
    """The PodGroup's API: a flag of the TFJob operator has it, so the job only hints at it."""
    chosen = {"volcano": VOLCANO, "coscheduling": COSCHEDULING}.get(gang.scheduler or "")
    if chosen is None:
        timed = "scheduleTimeoutSeconds" in asked and "queue" not in asked
        chosen = COSCHEDULING if "scheduler-plugins-scheduler" in gang.named or timed else VOLCANO
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
