"""The replicas of a TFJob by role, in any of the letter cases that its operator accepts. Pure."""

from dataclasses import dataclass

from tftraining_client.errors import UserError
from tftraining_client.tfjob.notes import Json, Notes, leave_out, mapping, whole

ROLES = ("chief", "worker", "ps", "evaluator")
_NAMES = {"master": "chief", "eval": "evaluator", "parameterserver": "ps"} | {role: role for role in ROLES}
AT_MOST_ONE = ("chief", "evaluator")
FIELDS = ("replicas", "restartPolicy", "template")


@dataclass(frozen=True)
class Defaults:
    """What the TFJob operator of one API version does where a field is unset."""

    restart_policy: str = "Never"
    clean_pod_policy: str = "None"
    backoff_limit: int | None = None


DEFAULTS = {
    "v1alpha2": Defaults(restart_policy="Always", clean_pod_policy="Running"),
    "v1beta1": Defaults(clean_pod_policy="Running"),
    "v1beta2": Defaults(clean_pod_policy="Running", backoff_limit=6),
}


@dataclass(frozen=True)
class Replicas:
    """The replicas of one role. `where` is their field in the TFJob; `policy_field` names the policy in notes."""

    role: str
    where: str
    count: int
    restart_policy: str
    policy_field: str
    template: Json


def read_replicas(spec: Json, defaults: Defaults, notes: Notes) -> list[Replicas]:
    """The roles that have replicas, in the order of ROLES; UserError if none has, or if a role occurs twice."""
    field = "spec.tfReplicaSpecs"
    if isinstance(spec.get("replicaSpecs"), list):
        raise UserError("the TFJob is of version v1alpha1: write spec.replicaSpecs as spec.tfReplicaSpecs first")
    found: dict[str, Replicas] = {}
    for name, value in mapping(spec.get("tfReplicaSpecs"), field).items():
        where = f"{field}.{name}"
        role = _NAMES.get(str(name).lower())
        if role is None:
            raise UserError(f"{where} is no role of a TFJob: use Chief, Worker, PS or Evaluator")
        if role in found:
            raise UserError(f"{where} and {found[role].where} are the same role, {role}: remove one")
        if str(name).lower() == "master":
            notes.add(where, "becomes spec.replicaSpecs.chief: the task in TF_CONFIG is named chief")
        found[role] = _replicas(role, where, mapping(value, where), defaults, notes)
    there = [found[role] for role in ROLES if role in found and found[role].count > 0]
    if not {"chief", "worker"} & {each.role for each in there}:
        raise UserError(f"{field} has neither a worker nor a chief")
    return there


def _replicas(role: str, where: str, value: Json, defaults: Defaults, notes: Notes) -> Replicas:
    count = whole(value.get("replicas"), f"{where}.replicas")
    count = 1 if count is None else count
    if count == 0:
        notes.add(where, "has no replicas, and is left out")
    elif count > 1 and role in AT_MOST_ONE:
        notes.add(f"{where}.replicas", f"is 1 instead of {count}: TensorFlow allows one {role}")
        count = 1
    leave_out(value, where, FIELDS, notes)
    policy = str(value.get("restartPolicy") or defaults.restart_policy)
    field = f"restartPolicy{'' if value.get('restartPolicy') else ', unset'}: {policy}"
    return Replicas(role, where, count, policy, field, mapping(value.get("template"), f"{where}.template"))
