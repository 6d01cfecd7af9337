"""The objects beside the pods of a job, apart from its Service: the launchers' Secret, the NetworkPolicy, the PodGroup.

NetworkPolicy and PodGroup are created, or brought up to date, before any pod that they concern. So nobody watches them,
and a job that runs changes them only when its gang shrinks. They are deleted with the Service at the job's end; the
PodGroup also with the pods of a suspended job; the NetworkPolicy before pods on the host's network, which it would not
protect. The job owns them: objects that a crash of the operator leaves go with the job.

The Secret has the key by which launchers know each other. Launchers show the key to nobody, and the
operator may not read Secrets: nobody can create the same one again. So a pod that joins running launchers is created
only while their Secret exists. If somebody has deleted the Secret, the whole gang restarts with a new one, once a new
pod is needed.
"""

import msgspec

from tftraining_api.manifests.launcher import secret
from tftraining_api.manifests.network_policy import network_policy, on_host_network
from tftraining_api.manifests.pod_group import pod_group
from tftraining_api.model.names import CLEANUP, LABEL_ROLE, Replica
from tftraining_api.model.spec import Manifest
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.gang import SortedPods
from tftraining_operator.plan.incident import Incident
from tftraining_operator.plan.messages import why_not_started
from tftraining_operator.plan.refused_writes import CHANGE_REFUSED, KEY_GONE, asked_for_a_pod

KEY_LOST = "KeyLost"


def plan_auxiliary_objects(context: Context, draft: Draft) -> Draft:
    """The draft with the writes of NetworkPolicy and PodGroup.

    While a pod is refused they are not written again: they existed before the pod was asked for.
    """
    groups, policies = _pod_groups(context), _network_policies(context)
    unwanted = policies if on_host_network(context.spec) else ()
    if draft.step.delete_service:
        return draft.with_fields(delete_auxiliary_objects=policies + groups)
    if any(pod["metadata"]["labels"][LABEL_ROLE] != CLEANUP for pod in draft.step.create_pods):
        if asked_for_a_pod(context.observed.refusal):
            return draft
        wanted = tuple(each for each in policies if not unwanted) + groups
        return draft.with_fields(auxiliary_objects=wanted, delete_auxiliary_objects=unwanted)
    if _leaves_pod_group(context, draft):
        return draft.with_fields(delete_auxiliary_objects=groups)
    return draft.with_fields(auxiliary_objects=groups) if _shrinks_pod_group(context, draft) else draft


def split_missing_secret(context: Context) -> Context:
    """If a refusal says that the launchers' Secret is missing: the context without that refusal, but with the name of
    the Secret."""
    refusal = context.observed.refusal
    if refusal is None or refusal.message != KEY_GONE:
        return context
    observed = msgspec.structs.replace(context.observed, refusal=None)
    return msgspec.structs.replace(context, observed=observed, missing_secret=refusal.child)


def find_missing_secret(name: str, gang: SortedPods) -> Incident | None:
    """The incident of a deleted Secret of that name, if any, and if launchers with its key are there."""
    if not name or not _in_use(gang):
        return None
    message = f"{name}, the key of the launchers, was deleted: new launchers cannot join; recreating all pods"
    # The loss of the pod that revealed the missing Secret has been backed off already.
    return Incident(reason=KEY_LOST, message=message, charged=False, already_backed_off=True)


def with_secret(context: Context, draft: Draft, wanted: tuple[Replica, ...]) -> Draft:
    """The draft with the creation of the Secret for the pods of these replicas; where pods have its key already, with
    the check that the Secret exists.

    The Secret existed before a pod was refused; if it has been deleted since, that pod cannot start.
    """
    first = bool(wanted) and not asked_for_a_pod(context.observed.refusal)
    if _in_use(draft.gang):
        stuck = any(pod.preparing and why_not_started(pod, context.now) for pod in draft.gang.members.values())
        return draft.with_fields(verify_secret=secret(context.job)) if first or stuck else draft
    return draft.with_fields(create_secret=secret(context.job)) if first else draft


def _in_use(gang: SortedPods) -> bool:
    """Whether a pod may have the key already: a pod reads it as soon as it has a node."""
    return any((pod.node or pod.running) and not pod.ended for pod in gang.members.values())


def _leaves_pod_group(context: Context, draft: Draft) -> bool:
    """Whether a suspension deletes the PodGroup now: with the pods; once more in the pass that tells they are gone, as
    a crash may have come between; and again as long as that was refused. The condition, or the message of an earlier
    version, tells of a refusal before the operator was started."""
    if draft.status.phase != "Suspended":
        return False
    before = context.job.status.message or ""
    refused = context.job.status.condition(CHANGE_REFUSED)
    told = " ".join([before, refused.message if refused else "", *context.observed.refused_changes])
    are_gone = not context.observed.replicas and before != draft.status.message and bool(draft.status.replicas)
    return bool(draft.step.delete_pods) or are_gone or "DELETE podgroup/" in told


def _shrinks_pod_group(context: Context, draft: Draft) -> bool:
    """Whether pods leave a gang that trains on: a PodGroup that asks for as many as before would place no successor."""
    refusal = context.observed.refusal
    again = refusal is not None and refusal.child.startswith("podgroup/") and refusal.retry_at <= context.now
    return bool(draft.gang.surplus) and (bool(draft.step.delete_pods) or again) and draft.status.phase != "Suspended"


def _pod_groups(context: Context) -> tuple[Manifest, ...]:
    group = pod_group(context.job, context.spec)
    return () if group is None else (group,)


def _network_policies(context: Context) -> tuple[Manifest, ...]:
    selector = context.operator_selector
    return () if selector is None else (network_policy(context.job, selector),)
