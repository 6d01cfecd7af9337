"""What a pod counts in a ResourceQuota, as Kubernetes' own evaluator counts it. Pure.

Amounts are in thousandths. Defaults of a LimitRange and the overhead of a RuntimeClass are not known here: the API
server's refusal of such a pod tells its real amounts (see cluster/quota_admission.py).
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tftraining_api.model.quantity import in_milli
from tftraining_api.model.spec import Manifest

Amounts = Mapping[str, int]
ONE = 1000
# A quota may name the requests of these without `requests.`.
PLAIN = ("cpu", "memory", "ephemeral-storage")


def usage_of(pod: Manifest) -> dict[str, int]:
    """The amounts of the pod, by the names that a quota may limit."""
    requests, limits = _total(pod["spec"], "requests"), _total(pod["spec"], "limits")
    used = {"pods": ONE, "count/pods": ONE}
    used |= {f"requests.{name}": amount for name, amount in requests.items()}
    used |= {name: amount for name, amount in requests.items() if name in PLAIN or name.startswith("hugepages-")}
    return used | {f"limits.{name}": amount for name, amount in limits.items()}


def selects(quota: Manifest, pod: Manifest) -> bool:
    """Whether the quota's scopes select the pod; not for a scope that is unknown here."""
    spec = quota.get("spec") or {}
    terms = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_matches(term, pod["spec"]) for term in terms)


def _matches(term: Manifest, spec: Manifest) -> bool:
    scope, values = term.get("scopeName"), term.get("values") or ()
    if scope == "PriorityClass":
        name = spec.get("priorityClassName") or ""
        answers = {"In": name in values, "NotIn": name not in values, "Exists": bool(name), "DoesNotExist": not name}
        return answers.get(str(term.get("operator")), False)
    ends, best = spec.get("activeDeadlineSeconds") is not None, not (_total(spec, "requests") or _total(spec, "limits"))
    return {"Terminating": ends, "NotTerminating": not ends, "BestEffort": best, "NotBestEffort": not best}.get(
        str(scope), False
    )


def _total(spec: Manifest, kind: str) -> Counter[str]:
    """The sum over the containers that run together, or the largest init container where that is more."""
    inits = spec.get("initContainers") or ()
    sidecars = [each for each in inits if each.get("restartPolicy") == "Always"]
    total: Counter[str] = Counter()
    for container in (*(spec.get("containers") or ()), *sidecars):
        total.update(_amounts(container, kind))
    for container in inits:
        total |= Counter(_amounts(container, kind))
    return total


def _amounts(container: Manifest, kind: str) -> dict[str, int]:
    resources = container.get("resources") or {}
    # A limit without a request is a request too.
    default: dict[str, Any] = (resources.get("limits") or {}) if kind == "requests" else {}
    asked = {**default, **(resources.get(kind) or {})}
    return {name: in_milli(amount) or 0 for name, amount in asked.items()}
