"""What becomes of the job: which incident is charged, when the budget is used up, and when it has succeeded.

Pure. There is one verdict, and it never changes; what ends the job is no restart, so the counts stay as they are then.
"""

from __future__ import annotations

from dataclasses import replace

from tftraining.launch import ledger as ledgers
from tftraining.launch import rules, same_failure
from tftraining.launch.elastic import ASKED_FOR
from tftraining.launch.incident import Incident
from tftraining.launch.ledger import Ledger
from tftraining.launch.peer import Peer
from tftraining.launch.roster import Roster, some
from tftraining.launch.settings import role_of
from tftraining.launch.verdict import FAILED, SUCCEEDED, Verdict


class Judge:
    """Keeps the ledger, the last failure and the verdict, None as long as the job goes on."""

    def __init__(self, roster: Roster, ledger: Ledger) -> None:
        self._roster = roster
        self.ledger = ledger
        self.failure: Incident | None = None
        self.verdict: Verdict | None = None

    def count_restart(self) -> None:
        """Launchers have restarted programs in place."""
        self.ledger = replace(self.ledger, in_place=self.ledger.in_place + 1)

    def judge(self, incident: Incident, progressed: bool, proven: bool) -> Incident | None:
        """Charge an incident, as the rules say; the incident as it was judged, None if the job has failed by it.

        `progressed` since the last one; `proven` is whether the job ever got as far as a step.
        """
        policy = self._roster.policy
        decision = self._decide(incident, proven) if incident.charged else rules.Decision(rules.RESTART)
        self.failure = incident if incident.charged else self.failure
        if decision.action == rules.IGNORE:
            incident = replace(incident, charged=False, message=f"{incident.message}; {decision.rule}")
        ledger = self._account(incident, progressed, decision)
        if decision.action == rules.FAIL_JOB and decision.rule:
            self._fail(rules.REASON, f"{incident.message}; {decision.rule}", incident)
        elif decision.action == rules.FAIL_JOB:
            self._fail(incident.reason, incident.message, incident)
        elif ledger.same != self.ledger.same and ledger.same.too_often(policy.same_failure_limit, incident.time):
            self._fail(same_failure.REASON, f"{incident.message}; {ledger.same.describe()}", incident)
        elif incident.charged and ledger.used > policy.max_restarts:
            budget = f"all {policy.max_restarts} restarts (spec.restartPolicy.maxRestarts) are used up"
            self._fail("MaxRestartsExceeded", f"{incident.message}; {budget}", incident)
        if self.verdict is not None:
            return None
        self.ledger = ledger
        return incident

    def _account(self, incident: Incident, progressed: bool, decision: rules.Decision) -> Ledger:
        """The ledger after the incident. What a rule decides about is no matter of how often it came."""
        account = {"charged": incident.charged, "refill": self._roster.policy.refill}
        failed = incident.reason not in ASKED_FOR
        ledger = ledgers.account(self.ledger, progressed=progressed, failed=failed, **account)
        if not incident.charged or not incident.same or decision.rule:
            return ledger
        return replace(ledger, same=ledger.same.then(incident.same, incident.time))

    def judge_evaluator(self, incident: Incident, proven: bool) -> None:
        """The failure of an evaluator. It is never charged; only a rule can make it the job's."""
        decision = self._decide(incident, proven)
        if decision.rule and decision.action == rules.FAIL_JOB:
            self.failure = incident
            self._fail(rules.REASON, f"{incident.message}; {decision.rule}", incident)

    def give_up(self, missing: list[str]) -> None:
        """Nothing has started within the start deadline, for want of these members."""
        limit = f"{self._roster.policy.start_deadline:g} s (spec.runPolicy.startDeadlineSeconds)"
        self._fail("StartDeadlineExceeded", f"{some(missing)} did not join within {limit}")

    def finished(self, peer: Peer) -> None:
        """A program has done its work: perhaps the job has succeeded by that (spec.successPolicy)."""
        chief = self._roster.chief
        if self._roster.policy.all_workers:
            who = "every chief and worker" if all(each.finished for each in self._roster.trainers) else ""
        else:
            who = chief if peer.name == chief else ""
        if who and self.verdict is None:
            self.verdict = Verdict(SUCCEEDED, SUCCEEDED, f"{who} has finished", chief, None)

    def _decide(self, incident: Incident, proven: bool) -> rules.Decision:
        failure = rules.Failure.of(role_of(incident.member), incident.reason, incident.exit)
        return rules.decide(self._roster.policy.rules, failure, proven)

    def _fail(self, reason: str, message: str, incident: Incident | None = None) -> None:
        member, ended = (incident.member, incident.exit) if incident is not None else (None, None)
        self.verdict = Verdict(FAILED, reason, message, member, ended)
