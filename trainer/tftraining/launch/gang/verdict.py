"""The job's result: charges incidents to the restart budget, and decides when the job has failed or succeeded, and
whether a restart is in place or in new pods.

Pure. The result never changes once set. The incident that ends the job causes no restart, so the counts omit it.
"""

from __future__ import annotations

from dataclasses import replace

from tftraining.launch.failure import backoff, restart_budget, restart_rules, same_failure
from tftraining.launch.failure.incident import PLANNED, Incident
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import FAILED, SUCCEEDED, Result
from tftraining.launch.failure.same_member import NO_ROW
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.peer import Peer
from tftraining.launch.roles import role_of


class Verdict:
    """Keeps the ledger, the last failure and the result (None while the job runs)."""

    def __init__(self, membership: Membership, ledger: Ledger) -> None:
        self._membership = membership
        self.ledger = ledger
        self.last_failure: Incident | None = None
        self.result: Result | None = None

    def count_restart(self) -> None:
        """Count a restart in place, by launchers that kept running."""
        self.ledger = replace(self.ledger, in_place=self.ledger.in_place + 1)

    def decide(self, incident: Incident, progressed: bool, has_stepped: bool) -> Incident | None:
        """Charge an incident by the rules; return it as charged, None if the job has failed.

        `progressed`: since the last incident; `has_stepped`: the job has ever made a step.
        """
        restart = restart_rules.Decision(restart_rules.RESTART)
        decision = self._apply_rules(incident, has_stepped) if incident.charged else restart
        self.last_failure = incident if incident.charged else self.last_failure
        explained = decision.explain(incident.message)
        if not decision.effect.charged:
            incident = replace(incident, charged=False, message=explained)
        ledger, moves = self._update_ledger(incident, progressed, decision)
        if decision.effect.ends_job:
            self.fail_job(decision.reason(incident.reason), explained, incident)
        elif incident.charged and (problem := self._why_no_restart(ledger, incident)) is not None:
            self.fail_job(*problem, incident)
        if self.result is not None:
            return None
        self.ledger = ledger
        return replace(incident, moves=moves)

    def _update_ledger(
        self, incident: Incident, progressed: bool, decision: restart_rules.Decision
    ) -> tuple[Ledger, str]:
        """The ledger after the incident, and why its member leaves its node; "" if it stays. A failure that a rule
        decides does not count as a repeated one."""
        budget_reset = self._membership.policy.budget_reset
        ledger = restart_budget.with_progress(self.ledger, budget_reset) if progressed else self.ledger
        ledger = restart_budget.account(ledger, incident.reason, charged=incident.charged)
        ledger = replace(ledger, violations=ledger.violations + bool(incident.violation))
        if incident.back_to is not None:
            ledger = replace(ledger, went_back_to=incident.back_to[1], went_back_from=incident.back_from)
        if not incident.charged or decision.rule:
            return ledger, incident.moves
        if incident.same:
            ledger = replace(ledger, same=ledger.same.with_failure(incident.same, incident.time))
            if ledger.same.count > 1:
                return ledger, ""
        limit = 0 if self._membership.job.local else self._membership.policy.same_member_limit
        peer = self._membership.gang.get(incident.member)
        spoilt = peer is not None and peer.is_spoilt
        return restart_budget.charge_member(ledger, incident.member, incident.exit, limit, incident.others_well, spoilt)

    def note_failure_beside(self) -> None:
        """Another member has failed of its own in the round that has just ended: no single member is to blame."""
        self.ledger = replace(self.ledger, same_member=NO_ROW)

    def _why_no_restart(self, ledger: Ledger, incident: Incident) -> tuple[str, str] | None:
        policy, repeated_at = self._membership.policy, incident.time if ledger.same != self.ledger.same else None
        allowed, limit = policy.max_restarts, policy.same_failure_limit
        spread = 0.0 if self._membership.job.local else same_failure.SPREAD
        return restart_budget.why_no_restart(ledger, incident.message, repeated_at, allowed, limit, spread)

    def wait_after(self, incident: Incident) -> float:
        """The seconds from an incident to the restart. On one machine no wait helps a program that is at fault."""
        limit, repeats = self._membership.policy.same_failure_limit, bool(incident.same)
        if incident.reason in PLANNED or (repeats and limit and self._membership.job.local):
            return 0.0
        in_a_row, same = self.ledger.without_progress, self.ledger.same
        return backoff.wait(in_a_row, same, limit, incident.time if repeats else None)

    def takes_new_pods(self, incident: Incident, has_stepped: bool) -> bool:
        """Whether a member's program no longer starts in its container. That member leaves for a new pod, and so do
        those that have made no step in theirs: a start that another one has ended may have spoilt them, and replaced
        one by one they would spoil each other's pods for ever. A failure that is counted for the job is not the fault
        of the container."""
        counts = bool(incident.same) and self._membership.policy.same_failure_limit > 0
        repeats = counts and not has_stepped
        return not repeats and any(peer.is_spoilt for peer in self._membership.members)

    def decide_evaluator(self, incident: Incident, has_stepped: bool) -> None:
        """Decide about an evaluator's failure. It is never charged; only a rule can fail the job for it."""
        decision = self._apply_rules(incident, has_stepped)
        if decision.rule and decision.effect.ends_job:
            self.last_failure = incident
            self.fail_job(decision.reason(incident.reason), decision.explain(incident.message), incident)

    def check_success_policy(self, peer: Peer) -> None:
        """A program has exited with 0: the job succeeds if spec.successPolicy is now met."""
        chief = self._membership.chief
        if self._membership.policy.all_workers:
            finished, is_met = "every chief and worker", all(each.has_succeeded for each in self._membership.trainers)
        else:
            finished, is_met = chief, peer.name == chief
        if is_met and self.result is None:
            self.result = Result(SUCCEEDED, SUCCEEDED, f"{finished} has succeeded", chief, None)

    def _apply_rules(self, incident: Incident, has_stepped: bool) -> restart_rules.Decision:
        failure = restart_rules.Failure.of(role_of(incident.member), incident.reason, incident.exit)
        return restart_rules.decide(self._membership.policy.rules, failure, has_stepped)

    def fail_job(self, reason: str, message: str, incident: Incident | None = None) -> None:
        """Fail the job, because of the incident if there is one."""
        member, program_exit = (incident.member, incident.exit) if incident is not None else (None, None)
        self.result = Result(FAILED, reason, message, member, program_exit)
