"""Label selectors that name a TFJob's pods, in affinities and topology spread constraints. Pure."""

from typing import Any

from tftraining_client.tfjob.notes import Json, Notes, items, mapping, strings

JOB, ROLE, INDEX = "tftraining.dev/job-name", "tftraining.dev/role", "tftraining.dev/index"
# The labels of all versions of the TFJob operator.
_LABELS = {
    **dict.fromkeys(("training.kubeflow.org/job-name", "tf-job-name", "tf_job_name", "job-name", "tf_job_key"), JOB),
    **dict.fromkeys(("training.kubeflow.org/replica-type", "tf-replica-type", "replica-type"), ROLE),
    **dict.fromkeys(("training.kubeflow.org/replica-index", "tf-replica-index", "replica-index"), INDEX),
}
# True for each pod of a TFJob.
_OPERATOR = ("training.kubeflow.org/operator-name", "group_name", "group-name")


def renamed_selectors(spec: Json, renamed: tuple[str, str], notes: Notes) -> Json:
    """The pod spec with selectors for the new job's pods. `renamed` are the names of the TFJob and of the new job."""
    return {
        name: _renamed(value, renamed, notes) if name in ("affinity", "topologySpreadConstraints") else value
        for name, value in spec.items()
    }


def _renamed(value: Any, names: tuple[str, str], notes: Notes) -> Any:
    if isinstance(value, list):
        return [_renamed(each, names, notes) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _selector(each, names, notes)
        if key == "labelSelector" and isinstance(each, dict)
        else _renamed(each, names, notes)
        for key, each in value.items()
    }


def _selector(selector: Json, names: tuple[str, str], notes: Notes) -> Json:
    old = mapping(selector.get("matchLabels"), "labelSelector.matchLabels")
    conditions = items(selector.get("matchExpressions"), "labelSelector.matchExpressions")
    labels = {_label(key, notes): _value(key, value, names) for key, value in old.items() if key not in _OPERATOR}
    expressions = [_expression(each, names, notes) for each in conditions if each.get("key") not in _OPERATOR]
    if len(labels) + len(expressions) < len(old) + len(conditions):
        notes.add("labelSelector for the TFJob operator", f"is one for {JOB}, which all new pods have")
        expressions.append({"key": JOB, "operator": "Exists"})
    return {name: value for name, value in (("matchLabels", labels), ("matchExpressions", expressions)) if value}


def _expression(expression: Json, names: tuple[str, str], notes: Notes) -> Json:
    key = expression.get("key")
    values = [_value(key, value, names) for value in strings(expression.get("values"), "matchExpressions[].values")]
    return {**expression, "key": _label(key, notes), **({"values": values} if values else {})}


def _label(key: Any, notes: Notes) -> str:
    new = _LABELS.get(str(key))
    if new is not None:
        notes.add(f"labelSelector {key}", f"is {new}, the label of the new pods")
    return new or str(key)


def _value(key: Any, value: Any, names: tuple[str, str]) -> Any:
    label = _LABELS.get(str(key))
    if label == JOB and value == names[0]:
        return names[1]
    if label == ROLE:
        return {"master": "chief"}.get(str(value).lower(), str(value).lower())
    return value
