"""The pods that NetworkPolicies admit, from the operator's environment.

A selector that the API server would refuse is refused here, at the operator's start: it would be in the NetworkPolicy
of every job, and so keep every job from starting.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from tftraining_api.manifests.network_policy import OperatorSelector

_PREFIX = r"(?:(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LabelName = Annotated[str, Meta(pattern=rf"\A{_PREFIX}{_NAME}\Z")]
LabelValue = Annotated[str, Meta(pattern=rf"\A(?:{_NAME})?\Z")]
Namespace = Annotated[str, Meta(pattern=r"\A[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")]


class _Expression(Struct, forbid_unknown_fields=True):
    key: LabelName
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[LabelValue, ...] | None = None

    def __post_init__(self) -> None:
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            raise ValueError(f"operator {self.operator} with {len(self.values or ())} values")


class _Selector(Struct, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[LabelName, LabelValue] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class _Peer(Struct, rename="camel", forbid_unknown_fields=True):
    namespace_selector: _Selector | UnsetType = UNSET
    pod_selector: _Selector | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.namespace_selector is UNSET and self.pod_selector is UNSET:
            raise ValueError("an empty object")


def operator_selector(text: str, metrics_from: str) -> OperatorSelector | None:
    """Parse NAMESPACE/LABEL=VALUE,…, the selector of the operator's pods; None if empty. ValueError if the API server
    would refuse a NetworkPolicy with one of both."""
    namespace, _, labels = text.partition("/")
    pairs = [each.partition("=") for each in labels.split(",")]
    peers = _peers(metrics_from)
    if not text:
        return None
    try:
        msgspec.convert(namespace, Namespace)
        selected = msgspec.convert({name: value for name, _, value in pairs if value}, dict[LabelName, LabelValue])
    except msgspec.ValidationError:
        selected = {}
    if len(selected) < len(pairs):
        raise ValueError(f"TFTRAINING_NETWORK_POLICY must be empty or NAMESPACE/LABEL=VALUE,…, not {text!r}")
    return OperatorSelector(namespace, selected, peers)


def _peers(text: str) -> tuple[dict[str, Any], ...]:
    """Parse the JSON list of the pods that scrape the launchers."""
    try:
        msgspec.json.decode(text or "[]", type=tuple[_Peer, ...])
    except msgspec.DecodeError as error:
        allowed = "a JSON list of objects with namespaceSelector, podSelector or both"
        fields = "each with matchLabels, matchExpressions or both"
        raise ValueError(
            f"TFTRAINING_METRICS_FROM must be empty or {allowed}, {fields}, not {text!r}: {error}"
        ) from None
    return msgspec.json.decode(text or "[]", type=tuple[dict[str, Any], ...])
