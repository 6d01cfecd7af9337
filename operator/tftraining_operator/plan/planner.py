"""The stages of a pass, in their order. The package's docstring explains the algorithm."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec

from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.job import Job
from tftraining_api.model.names import selector
from tftraining_api.model.status import INPUT_NOT_REPRODUCIBLE, OOM_KILLED, CodeStatus, Status
from tftraining_operator.model.conditions import without_condition
from tftraining_operator.model.kstatus import with_ready_and_stalled
from tftraining_operator.model.observed import Observed
from tftraining_operator.model.times import is_ahead
from tftraining_operator.plan.assemble import assemble
from tftraining_operator.plan.auxiliary_objects import plan_auxiliary_objects, split_missing_secret
from tftraining_operator.plan.avoided_nodes import tell_of_use
from tftraining_operator.plan.clean_pods import clean_pods
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.deadlines import admitted_since, check_deadlines
from tftraining_operator.plan.end import reject_spec
from tftraining_operator.plan.evaluator import replace_evaluator
from tftraining_operator.plan.gang import accepted_templates, answered_request, attempt_of
from tftraining_operator.plan.goodput import with_goodput
from tftraining_operator.plan.interrupted_deletions import finish_deletions
from tftraining_operator.plan.keras import decide_keras
from tftraining_operator.plan.kueue_pods import fail_held_pods
from tftraining_operator.plan.launcher_report import merge_report
from tftraining_operator.plan.member_warnings import WARNINGS, warn_of_members
from tftraining_operator.plan.memory_backup import (
    announce_backups,
    turn_off_after_oom,
    turn_off_after_violation,
    warn_of_input,
    warn_of_replicas,
)
from tftraining_operator.plan.node_conditions import leave_node
from tftraining_operator.plan.node_loss import check_lost_pods, mark_lost_nodes
from tftraining_operator.plan.refused_writes import (
    CHANGE_REFUSED,
    hold_refused_writes,
    reject_pod_template,
)
from tftraining_operator.plan.restart import restart_what_failed
from tftraining_operator.plan.resumption import announce_earlier_run
from tftraining_operator.plan.slow_member import warn_of_slow_member
from tftraining_operator.plan.spec_updates import update_launchers
from tftraining_operator.plan.step import Step
from tftraining_operator.plan.storage_warning import STORAGE_SHARED, warn_of_shared_storage
from tftraining_operator.plan.success_policy import check_launcher_result, check_success
from tftraining_operator.plan.suspend import resume, stay_suspended, suspend
from tftraining_operator.plan.ttl_after_finished import expire
from tftraining_operator.plan.unreadable import UNREADABLE, leave_alone, unreadable
from tftraining_operator.plan.workertemp_cleanup import remember_storage, remove_workertemp


def _always(_: Context, __: Draft) -> bool:
    return True


class Stage(NamedTuple):
    """One decision, and the condition under which the planner asks for it."""

    run: Callable[[Context, Draft], Draft]
    when: Callable[[Context, Draft], bool] = _always


def _is_active(_: Context, draft: Draft) -> bool:
    return not draft.status.terminal


def _has_ended(_: Context, draft: Draft) -> bool:
    return draft.status.terminal


def _invalid(context: Context, _: Draft) -> bool:
    return context.job.spec is None


def _refused(context: Context, _: Draft) -> bool:
    return context.observed.refusal is not None


def _suspended(context: Context, _: Draft) -> bool:
    return context.status.phase == "Suspended"


def _to_suspend(context: Context, _: Draft) -> bool:
    return context.run_policy.suspend


def _with_launchers(context: Context, _: Draft) -> bool:
    return context.spec.in_place


def _with_storage(context: Context, _: Draft) -> bool:
    return context.spec.storage is not None


def _without_keras(context: Context, _: Draft) -> bool:
    return context.spec.in_place and context.job.status.keras is None


def _with_report(_: Context, draft: Draft) -> bool:
    return draft.report is not None


def _with_backup(_: Context, draft: Draft) -> bool:
    return draft.report is not None and draft.report.backup is not None


def _with_first_report(_: Context, draft: Draft) -> bool:
    return draft.report is not None and draft.status.phase == "Running"


def _with_unknown_input(_: Context, draft: Draft) -> bool:
    known = draft.status.is_true(INPUT_NOT_REPRODUCIBLE)
    return draft.report is not None and (known or draft.report.input_not_reproducible)


def _with_shared_storage(context: Context, draft: Draft) -> bool:
    return bool(context.observed.storage.shared) or draft.status.is_true(STORAGE_SHARED)


def _with_violation(_: Context, draft: Draft) -> bool:
    return draft.report is not None and bool(draft.report.violation)


def _after_oom_kill(context: Context, draft: Draft) -> bool:
    last = draft.status.last_restart
    ends = [last.reason if last else "", *(pod.exit.reason for pod in draft.gang.pods if pod.exit)]
    return context.spec.in_place and OOM_KILLED in ends


def _with_node_conditions(context: Context, _: Draft) -> bool:
    nodes = context.observed.nodes
    return nodes is not None and any(node.conditions for node in nodes.named.values())


def _with_avoided_nodes(_: Context, draft: Draft) -> bool:
    return bool(draft.status.avoided_nodes)


def _with_evaluator(_: Context, draft: Draft) -> bool:
    return bool(draft.gang.wanted_evaluators)


def _writes_auxiliary_objects(context: Context, draft: Draft) -> bool:
    changes = draft.status.phase == "Suspended" or draft.gang.surplus
    return context.job.spec is not None and bool(draft.step.create_pods or draft.step.delete_service or changes)


def _with_warned_members(_: Context, draft: Draft) -> bool:
    report, status = draft.report, draft.status
    return report is not None and any(each.members(report) or status.is_true(each.condition) for each in WARNINGS)


def _with_refused_writes(context: Context, draft: Draft) -> bool:
    return bool(context.observed.refused_changes) or draft.status.condition(CHANGE_REFUSED) is not None


def _with_interrupted_deletions(context: Context, _: Draft) -> bool:
    return any(pod.unremoved_since is not None for pod in context.observed.pods)


def _queued(context: Context, _: Draft) -> bool:
    return any(pod.queued for pod in (*context.observed.pods, *context.observed.earlier))


# For a job that has not ended. A stage that ends or suspends the job makes the draft final: later stages do not run.
ACTIVE = (
    Stage(reject_spec, _invalid),
    Stage(reject_pod_template, _refused),
    Stage(stay_suspended, _suspended),
    Stage(resume, _suspended),
    Stage(merge_report, _with_report),
    Stage(turn_off_after_violation, _with_violation),
    Stage(check_success),
    Stage(check_launcher_result, _with_launchers),
    Stage(turn_off_after_oom, _after_oom_kill),
    Stage(leave_node, _with_node_conditions),
    Stage(restart_what_failed),
    Stage(decide_keras, _without_keras),
    Stage(assemble),
    Stage(tell_of_use, _with_avoided_nodes),
    Stage(announce_backups, _with_backup),
    Stage(warn_of_shared_storage, _with_shared_storage),
    Stage(warn_of_input, _with_unknown_input),
    Stage(warn_of_replicas, _with_backup),
    Stage(announce_earlier_run, _with_first_report),
    Stage(warn_of_members, _with_warned_members),
    Stage(warn_of_slow_member, _with_report),
    Stage(update_launchers, _with_launchers),
    Stage(replace_evaluator, _with_evaluator),
    Stage(remember_storage, _with_storage),
    Stage(suspend, _to_suspend),
    Stage(check_deadlines),
)
# For a job that has succeeded or failed, from the pass on that ends the job.
ENDED = (Stage(clean_pods), Stage(remove_workertemp), Stage(expire))
# For every job, after the stages above.
ALWAYS = (
    Stage(plan_auxiliary_objects, _writes_auxiliary_objects),
    Stage(fail_held_pods, _queued),
    Stage(finish_deletions, _with_interrupted_deletions),
    Stage(hold_refused_writes, _with_refused_writes),
    Stage(check_lost_pods),
)


def plan(
    job: Job, observed: Observed, now: datetime, image: str, operator_selector: OperatorSelector | None = None
) -> Step:
    """The next step. `image` is the operator's own image, which helper pods run and the launcher is copied from;
    NetworkPolicies are created if `operator_selector` says which pods may ask the launchers."""
    if job.deleting or not job.ours:
        return Step(status=job.status)
    if (job.unreadable or job.problem or observed.unreadable) and (problem := unreadable(job, observed)) is not None:
        return leave_alone(job, problem, now)
    context = _context(job, observed, now, image, operator_selector)
    draft = Draft.of(context, context.status)
    for stages, concerns in ((ACTIVE, _is_active), (ENDED, _has_ended), (ALWAYS, _always)):
        if not concerns(context, draft):
            continue
        draft = msgspec.structs.replace(draft, final=False)
        for stage in stages:
            if not draft.final and stage.when(context, draft):
                draft = stage.run(context, draft)
    if draft.step.delete_job:
        return draft.step
    status = with_goodput(job, with_ready_and_stalled(draft.status, now), draft.report, now)
    return draft.with_fields(status=status).with_requeue(context.node_check_at).step


def _context(
    job: Job, observed: Observed, now: datetime, image: str, operator_selector: OperatorSelector | None
) -> Context:
    context = Context(job, _begun(job, observed, now), observed, now, image, operator_selector)
    if observed.suspect_pods:
        context = mark_lost_nodes(context)
    return split_missing_secret(context) if observed.refusal is not None else context


def _within_life(job: Job, status: Status, now: datetime) -> Status:
    """The status without times in the future, which an operator whose clock was ahead has written: each becomes the
    present, so no wait exceeds its bound by more than the time until this pass. Nodes' clocks too write the time of a
    restart: see restart_policy.restart_due. A time before the creation of the job becomes that of the creation:
    otherwise a deadline would be over at once."""
    present = now.replace(microsecond=0)
    created = min(job.created, present)
    names = ("start_time", "completion_time", "admitted_time")
    times = {name: time for name in names if (time := getattr(status, name)) is not None}
    wrong = {name: present for name, time in times.items() if is_ahead(time, now)}
    wrong |= {name: created for name, time in times.items() if is_ahead(created, time)}
    conditions = status.conditions
    if any(is_ahead(each.last_transition_time, now) for each in conditions):
        conditions = tuple(
            msgspec.structs.replace(each, last_transition_time=min(each.last_transition_time, present))
            for each in conditions
        )
    if not wrong and conditions is status.conditions:
        return status
    return msgspec.structs.replace(status, conditions=conditions, **wrong)


def _begun(job: Job, observed: Observed, now: datetime) -> Status:
    """The status that the stages start from: without the parts that each pass derives again."""
    status = _within_life(job, without_condition(job.status, UNREADABLE), now)
    status = msgspec.structs.replace(status, observed_generation=job.generation)
    if status.terminal:
        return status
    status = msgspec.structs.replace(status, attempt=attempt_of(status, observed))
    answered = answered_request(status, observed)
    return msgspec.structs.replace(
        status,
        restarts=msgspec.structs.replace(status.restarts, restarted_at=answered),
        selector=selector(job.key.name),
        admitted_time=admitted_since(status, observed, now),
        accepted_templates=accepted_templates(job, observed),
        code=CodeStatus(job.spec.code.identity) if job.spec and job.spec.code else None,
    )
