"""What holds for every plan, whatever was observed. Checked at each pass of each simulated job."""

import json
from datetime import datetime, timedelta

import msgspec

from tftraining.launch.failure.same_failure import SPREAD, counts_as_same_failure
from tftraining.launch.roles import GANG_ROLES
from tftraining_api.model.indexes import unpack
from tftraining_api.model.job import Job
from tftraining_api.model.names import LABEL_ATTEMPT, LABEL_INDEX, LABEL_ROLE
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.clean_pods import is_evaluator
from tftraining_operator.plan.context import Context
from tftraining_operator.plan.incident import needs_replacement
from tftraining_operator.plan.node_loss import mark_lost_nodes
from tftraining_operator.plan.step import Step
from tftraining_operator.plan.unreadable import unreadable

AT_REST = ("Suspended", "Succeeded", "Failed")


def hold_invariants(job: Job, observed: Observed, step: Step, now: datetime) -> None:
    """Fail if the plan breaks an invariant of the planner."""
    if job.ours and unreadable(job, observed):
        _is_left_alone(job, step)
        return
    if job.spec is not None:
        _force_only_for_the_lost(observed, step, job.spec.run_policy.node_lost_seconds, now)
        observed = mark_lost_nodes(Context(job, job.status, observed, now, "")).observed
    _one_pod_a_name(observed, step)
    _one_attempt_at_a_time(observed, step)
    _end_is_the_end(job, step, now)
    _suspended_means_no_pods(job, observed, step)
    _deleted_only_when_done(job, step)
    _health_follows_from_the_phase(job, step)
    _within_budget(job, observed, step)
    _the_same_failure_is_one(job, step)
    _only_own_pods_go(job, observed, step)
    _pauses_are_kept(job, observed, step, now)
    _counted_as_what_it_is(job, observed, step, now)
    _a_quiet_minute_refills(job, observed, step)
    _processes_are_counted_by_launchers(job, observed, step)
    _launchers_are_told_what_the_spec_says(job, step)
    _a_size_that_launchers_can_change_takes_no_new_pods(job, observed, step)
    _what_has_finished_stays_finished(job, step)
    _surplus_goes_when_the_launchers_know(job, observed, step)
    _keys_are_never_mixed(job, observed, step)
    assert not step.events or step.status != job.status, "an event without a change would be repeated for ever"


def _one_pod_a_name(observed: Observed, step: Step) -> None:
    wanted = [pod["metadata"]["name"] for pod in step.create_pods]
    assert len(wanted) == len(set(wanted))
    assert not set(wanted) & {pod.name for pod in observed.pods}
    alive = {(pod.replica.role, str(pod.replica.index)) for pod in observed.replicas if pod.replica and not pod.ended}
    labels = [pod["metadata"]["labels"] for pod in step.create_pods]
    places = [(each[LABEL_ROLE], each.get(LABEL_INDEX, "")) for each in labels]
    assert len(places) == len(set(places)) and not alive & set(places), "never two live pods of one index"


def _one_attempt_at_a_time(observed: Observed, step: Step) -> None:
    for pod in step.create_pods:
        labels = pod["metadata"]["labels"]
        if labels[LABEL_ROLE] != "cleanup":
            assert labels[LABEL_ATTEMPT] == str(step.status.attempt)
            assert all(other.attempt == step.status.attempt or is_evaluator(other) for other in observed.replicas)
        else:
            assert all(other.ended for other in observed.replicas)


def _end_is_the_end(job: Job, step: Step, now: datetime) -> None:
    assert step.status.attempt >= job.status.attempt
    if job.status.terminal:
        assert step.status.phase == job.status.phase
        ended = job.status.completion_time
        assert step.status.completion_time == ended or (ended is not None and ended > now), "written by a clock ahead"
        assert all(pod["metadata"]["labels"][LABEL_ROLE] == "cleanup" for pod in step.create_pods)
    assert not (step.status.is_true("Succeeded") and step.status.is_true("Failed"))
    for phase in ("Succeeded", "Failed"):
        assert step.status.is_true(phase) == (step.status.phase == phase)


def _suspended_means_no_pods(job: Job, observed: Observed, step: Step) -> None:
    assert step.status.is_true("Suspended") == (step.status.phase == "Suspended") or job.deleting
    if step.status.phase != "Suspended":
        return
    assert job.spec is not None and job.spec.run_policy.suspend
    assert all(pod["metadata"]["labels"][LABEL_ROLE] == "cleanup" for pod in step.create_pods)
    deleted = {each.uid for each in step.delete_pods}
    assert all(
        pod.terminating or pod.uid in deleted or f"DELETE pod/{pod.name}" in step.held_writes
        for pod in observed.replicas
    )


def _deleted_only_when_done(job: Job, step: Step) -> None:
    if step.delete_job:
        cleaned = step.status.condition("Cleaned")
        assert step == Step(status=job.status, delete_job=True)
        assert step.status.terminal and cleaned is not None and cleaned.status != "Unknown"


def _health_follows_from_the_phase(job: Job, step: Step) -> None:
    """What kstatus reads: Ready is False only where it is waited for or has failed, Stalled is there only then."""
    if step.delete_job or job.deleting or not job.ours:
        return
    status, ready = step.status, step.status.condition("Ready")
    may_be = {"Running": ("True", None), "Suspended": (None,), "Succeeded": (None,)}.get(status.phase, ("False",))
    assert (ready.status if ready else None) in may_be
    assert (status.condition("Stalled") is not None) == status.is_true("Stalled") == (status.phase == "Failed")
    assert status.observed_generation == job.generation


def _is_left_alone(job: Job, step: Step) -> None:
    """Nothing but the condition that says so may be written."""
    rest = msgspec.structs.replace(step, status=job.status, patch_condition=None, events=())
    assert rest == Step(status=job.status)
    assert (step.patch_condition is None) == (step.status == job.status) == (step.events == ())


def _within_budget(job: Job, observed: Observed, step: Step) -> None:
    if job.spec is None:
        return
    old, new = job.status.restarts, step.status.restarts
    charged = new.pod_failures - old.pod_failures if job.spec.in_place else new.counted - old.counted
    # A status that is older than what the launchers say learns from them of more.
    reported_pod_failures = (
        max(0, observed.launcher_report.report.ledger.pod_failures - old.pod_failures)
        if observed.launcher_report and job.spec.in_place
        else 0
    )
    if charged:
        assert new.budget_used <= job.spec.restart_policy.max_restarts
    alone = job.spec.in_place or job.spec.restart_scope == "Pod"
    assert 0 <= charged <= reported_pod_failures + (1 if alone else step.status.attempt - job.status.attempt)
    assert all(
        getattr(new, count) >= getattr(old, count) for count in ("counted", "in_place", "disruptions", "recreated")
    )


def _the_same_failure_is_one(job: Job, step: Step) -> None:
    """It ends the job only when so many were in a row, over a minute; and a row grows by one at a time."""
    old, new, spec = job.status.restarts.same_failure, step.status.restarts.same_failure, job.spec
    if spec is None or spec.in_place or job.status.terminal:
        return
    if step.status.reason == "SameFailure":
        assert old is not None and old == new
        assert 0 < spec.restart_policy.same_failure_limit <= old.count + 1
        assert step.status.completion_time is not None
        assert step.status.completion_time - old.since >= timedelta(seconds=SPREAD)
    elif new is not None and new != old:
        assert new.count == (old.count + 1 if old is not None and old.key == new.key else 1)
        assert step.status.restarts.counted == job.status.restarts.counted + 1


def _only_own_pods_go(job: Job, observed: Observed, step: Step) -> None:
    deleted = {each.uid for each in step.delete_pods}
    # Of an earlier job's pods only those that somebody has asked to go, and whose node is lost.
    assert deleted <= {pod.uid for pod in observed.pods} | {pod.uid for pod in observed.earlier if pod.node_lost}
    if job.spec is not None and job.spec.in_place and step.status.phase not in AT_REST:
        members = [pod for pod in observed.replicas if pod.replica in job.spec.gang and pod.uid in deleted]
        present = [pod for pod in members if pod.attempt == step.status.attempt]
        given_up = job.status.replaced.values()
        trained = [pod for pod in present if not needs_replacement(pod) and pod.uid not in given_up]
        assert len(trained) <= step.departs, "a pod that trains is left alone by the loss of another"


def _force_only_for_the_lost(observed: Observed, step: Step, patience: int, now: datetime) -> None:
    """Grace 0 is for pods whose node is gone, out of service, or has not been ready for as long as the job says."""
    forced = {each.uid for each in step.delete_pods if each.grace == 0}
    for pod in (*observed.replicas, *observed.earlier) if observed.nodes is not None else ():
        node = observed.nodes.named.get(pod.node) if pod.uid in forced and observed.nodes else None
        since = node and node.unready_since
        if node is not None and not node.gone and not node.out_of_service:
            assert since and since + timedelta(seconds=patience) <= now


def _pauses_are_kept(job: Job, observed: Observed, step: Step, now: datetime) -> None:
    """0, 1, 2, 4 … 60 s: not before that, and no longer; after the same exception until it is a minute old."""
    last, blows = step.status.last_restart, step.status.restarts.without_progress
    if last is None or job.spec is None or step.status.phase not in ("Starting", "Running", "Restarting"):
        return
    pause = timedelta(seconds=0 if blows < 2 else min(60, 2 ** min(blows - 2, 10)))
    told, limit = last.exception, job.spec.restart_policy.same_failure_limit
    row = step.status.restarts.same_failure if told and limit and counts_as_same_failure(told) else None
    if row is not None and (left := row.since + timedelta(seconds=60) - last.time) > timedelta():
        pause = min(pause, left)
    if any(pod["metadata"]["labels"][LABEL_ROLE] in GANG_ROLES for pod in step.create_pods):
        assert now >= last.time + pause or last.time > now, "a time in the future delays nothing"
    elif _only_the_pause_delays(job, observed, step):
        assert now < last.time + pause and step.requeue_at is not None and step.requeue_at <= last.time + pause


def _only_the_pause_delays(job: Job, observed: Observed, step: Step) -> bool:
    """Whether a pod of the gang is missing, and nothing but the pause after a restart keeps it from being created."""
    there, new = {pod.label for pod in observed.replicas}, step.status
    missing = job.spec is not None and any(str(each) not in there for each in job.spec.gang)
    finished = any(each.completed_indexes for each in new.replicas.values())
    others = observed.refusal or observed.leftovers or observed.storage.held or observed.quota or finished
    stale = any(
        pod.replica is None or (pod.replica.role in GANG_ROLES and pod.attempt != new.attempt) for pod in observed.pods
    )
    return missing and not others and not stale and new.keras == job.status.keras


def _counted_as_what_it_is(job: Job, observed: Observed, step: Step, now: datetime) -> None:
    old, new = job.status, step.status
    evaluator_replaced = any(note.reason == "EvaluatorReplaced" for note in step.events)
    resumed = old.phase == "Suspended" and new.phase != "Suspended" and not new.terminal
    if resumed:
        assert new.start_time == now.replace(microsecond=0)
        assert new.attempt == old.attempt + bool(old.replicas)
    elif observed.quota is not None and observed.quota.gives_back:
        assert new.restarts == old.restarts
    elif new.attempt > max([old.attempt, *(pod.attempt for pod in observed.replicas)]) > 0 and old.phase != "Suspended":
        assert new.restarts.recreated - old.restarts.recreated == 1 + evaluator_replaced
    progress, spec = new.progress, job.spec
    charged = new.restarts.pod_failures > old.restarts.pod_failures
    if spec is not None and charged and progress is not None and progress.epoch is not None:
        refilled = progress.epoch > (old.restarts.epoch or 0) and spec.restart_policy.budget_reset == "OnProgress"
        assert not refilled or new.restarts.budget_used <= max(1, new.restarts.counted - old.restarts.counted)
    assert new.restarts.disruptions <= old.restarts.disruptions + 1 + evaluator_replaced
    for role, counts in old.replicas.items():
        assert new.replicas[role].highest >= counts.highest


def _a_quiet_minute_refills(job: Job, observed: Observed, step: Step) -> None:
    """Where no program tells of epochs, and no launcher counts."""
    ready, ended = (
        job.status.condition("Ready"),
        [pod.exit.finished_at for pod in observed.pods if pod.failed and pod.exit],
    )
    if job.spec is None or job.spec.in_place or ready is None or ready.status != "True":
        return
    long = all(at is not None and at >= ready.last_transition_time + timedelta(seconds=60) for at in ended)
    if step.status.restarts.counted > job.status.restarts.counted and long and job.status.progress is None:
        assert step.status.restarts.budget_used == 1 or job.spec.restart_policy.budget_reset == "Never"


def _processes_are_counted_by_launchers(job: Job, observed: Observed, step: Step) -> None:
    """The operator counts pods only, and knows of no other failure than what the launchers have told it of."""
    if job.spec is None or not job.spec.in_place:
        return
    ledgers = [observed.launcher_report.report.ledger] if observed.launcher_report is not None else []
    ledgers += [
        pod.exit.result.ledger for pod in observed.replicas if pod.exit is not None and pod.exit.result is not None
    ]
    known = max(
        [job.status.restarts.counted - job.status.restarts.pod_failures, *(e.process_failures for e in ledgers)]
    )
    assert step.status.restarts.counted - step.status.restarts.pod_failures <= known


def _launchers_are_told_what_the_spec_says(job: Job, step: Step) -> None:
    for pod in step.create_pods if job.spec is not None and job.spec.in_place else ():
        for container in pod["spec"]["containers"] if pod["metadata"]["labels"][LABEL_ROLE] in GANG_ROLES else ():
            variables = {each["name"]: each.get("value") for each in container.get("env") or ()}
            if "TFTRAINING_LAUNCHER" not in variables:
                continue
            settings, spec = json.loads(variables["TFTRAINING_LAUNCHER"] or ""), job.spec
            assert spec is not None
            assert (settings["minReplicas"], settings["scope"]) == (spec.min_replicas, spec.restart_scope)
            assert (settings["maxRestarts"], settings["attempt"]) == (
                spec.restart_policy.max_restarts,
                step.status.attempt,
            )
            assert settings["sameFailureLimit"] == spec.restart_policy.same_failure_limit
            row = step.status.restarts.same_failure
            assert settings["ledger"].get("sameFailure", {}).get("count", 0) == (row.count if row else 0)


def _a_size_that_launchers_can_change_takes_no_new_pods(job: Job, observed: Observed, step: Step) -> None:
    last, report = step.status.last_restart, observed.launcher_report
    if step.status.attempt == job.status.attempt or last is None or last.reason != "Resized" or report is None:
        return
    if job.status.phase == "Suspended":
        return  # it takes new pods as it is resumed, and the last restart was before
    present = [pod for pod in observed.replicas if pod.attempt == job.status.attempt]
    chief = any(pod.uid == report.pod_uid for pod in present)
    assert not (chief and report.report.gang and all(pod.spec_updates and not pod.queued for pod in present))


def _what_has_finished_stays_finished(job: Job, step: Step) -> None:
    for pod in step.create_pods:
        labels = pod["metadata"]["labels"]
        counts = job.status.replicas.get(labels[LABEL_ROLE])
        if counts is not None and labels[LABEL_ATTEMPT] == str(job.status.attempt):
            index = int(labels[LABEL_INDEX])
            assert not unpack(counts.completed_indexes, [index]), "what has finished runs again"


def _surplus_goes_when_the_launchers_know(job: Job, observed: Observed, step: Step) -> None:
    spec, deleted = job.spec, {each.uid for each in step.delete_pods}
    present = [pod for pod in observed.replicas if pod.attempt == step.status.attempt == job.status.attempt]
    chief = next((pod for pod in present if spec is not None and pod.replica == spec.chief), None)
    if spec is None or not spec.in_place or step.status.phase in AT_REST or chief is None:
        return
    if not chief.running or chief.deleting or chief.uid in job.status.replaced.values() or observed.launcher_silent:
        return
    reported_gang = (
        observed.launcher_report.report.gang
        if observed.launcher_report is not None and observed.launcher_report.pod_uid == chief.uid
        else None
    )
    for pod in present:
        worker = pod.replica is not None and pod.replica.role == "worker"
        surplus = worker and pod.replica not in spec.gang and not pod.queued and pod.uid in deleted
        assert (
            not surplus
            or pod.uid in job.status.replaced.values()
            or (reported_gang and reported_gang.full <= len(spec.trainers))
        )


def _keys_are_never_mixed(job: Job, observed: Observed, step: Step) -> None:
    if step.create_secret is not None:
        given_up = step.status.replaced.values()
        present = [pod for pod in observed.replicas if pod.attempt == step.status.attempt and pod.uid not in given_up]
        assert job.spec is not None and not any(pod.running for pod in present if pod.replica in job.spec.gang)
