"""The job's verdict: charges incidents to the restart budget, and decides when the job has failed or succeeded.

Pure. The verdict never changes once set. The incident that ends the job causes no restart, so the counts omit it.
"""

from __future__ import annotations

from dataclasses import replace

from tftraining.launch.config.settings import role_of
from tftraining.launch.failure import ledger as ledgers
from tftraining.launch.failure import restart_rules, same_failure
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.result import FAILED, SUCCEEDED, Verdict
from tftraining.launch.gang.membership import Roster, some
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.quorum import ASKED_FOR


class Judge:
    """Keeps the ledger, the last failure and the verdict (None while the job runs)."""

    def __init__(self, roster: Roster, ledger: Ledger) -> None:
        self._roster = roster
        self.ledger = ledger
        self.failure: Incident | None = None
        self.verdict: Verdict | None = None

    def count_restart(self) -> None:
        """Count a restart in place, by launchers that kept running."""
        self.ledger = replace(self.ledger, in_place=self.ledger.in_place + 1)

    def judge(self, incident: Incident, progressed: bool, proven: bool) -> Incident | None:
        """Charge an incident by the rules; return it as judged, None if the job has failed.

        `progressed`: since the last incident; `proven`: the job has ever made a step.
        """
        policy = self._roster.policy
        decision = self._decide(incident, proven) if incident.charged else restart_rules.Decision(restart_rules.RESTART)
        self.failure = incident if incident.charged else self.failure
        if decision.action == restart_rules.IGNORE:
            incident = replace(incident, charged=False, message=f"{incident.message}; {decision.rule}")
        ledger = self._account(incident, progressed, decision)
        if decision.action == restart_rules.FAIL_JOB and decision.rule:
            self._fail(restart_rules.REASON, f"{incident.message}; {decision.rule}", incident)
        elif decision.action == restart_rules.FAIL_JOB:
            self._fail(incident.reason, incident.message, incident)
        elif ledger.same != self.ledger.same and ledger.same.too_often(policy.same_failure_limit, incident.time):
            self._fail(same_failure.REASON, f"{incident.message}; {ledger.same.describe()}", incident)
        elif incident.charged and ledger.used > policy.max_restarts:
            budget = f"no restarts left: spec.restartPolicy.maxRestarts is {policy.max_restarts}"
            self._fail("MaxRestartsExceeded", f"{incident.message}; {budget}", incident)
        if self.verdict is not None:
            return None
        self.ledger = ledger
        return incident

    def _account(self, incident: Incident, progressed: bool, decision: restart_rules.Decision) -> Ledger:
        """The ledger after the incident. A failure that a rule decides does not count as a repeated one."""
        account = {"charged": incident.charged, "refill": self._roster.policy.refill}
        failed = incident.reason not in ASKED_FOR
        ledger = ledgers.account(self.ledger, progressed=progressed, failed=failed, **account)
        if not incident.charged or not incident.same or decision.rule:
            return ledger
        return replace(ledger, same=ledger.same.then(incident.same, incident.time))

    def judge_evaluator(self, incident: Incident, proven: bool) -> None:
        """Judge an evaluator's failure. It is never charged; only a rule can fail the job for it."""
        decision = self._decide(incident, proven)
        if decision.rule and decision.action == restart_rules.FAIL_JOB:
            self.failure = incident
            self._fail(restart_rules.REASON, f"{incident.message}; {decision.rule}", incident)

    def give_up(self, missing: list[str]) -> None:
        """Fail the job: these members did not connect within the start deadline."""
        limit = f"{self._roster.policy.start_deadline:g} s (spec.runPolicy.startDeadlineSeconds)"
        self._fail("StartDeadlineExceeded", f"{some(missing)} did not connect within {limit}")

    def finished(self, peer: Peer) -> None:
        """A program has exited with 0: the job succeeds if spec.successPolicy is now met."""
        chief = self._roster.chief
        if self._roster.policy.all_workers:
            who = "every chief and worker" if all(each.finished for each in self._roster.trainers) else ""
        else:
            who = chief if peer.name == chief else ""
        if who and self.verdict is None:
            self.verdict = Verdict(SUCCEEDED, SUCCEEDED, f"{who} has succeeded", chief, None)

    def _decide(self, incident: Incident, proven: bool) -> restart_rules.Decision:
        failure = restart_rules.Failure.of(role_of(incident.member), incident.reason, incident.exit)
        return restart_rules.decide(self._roster.policy.rules, failure, proven)

    def _fail(self, reason: str, message: str, incident: Incident | None = None) -> None:
        member, ended = (incident.member, incident.exit) if incident is not None else (None, None)
        self.verdict = Verdict(FAILED, reason, message, member, ended)
