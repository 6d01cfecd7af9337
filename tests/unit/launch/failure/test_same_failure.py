"""The same failure again and again ends the job; what a restart can mend never does. Frames in, a clock of our own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulated_gang.members import send_heartbeats, send_ready
from tests.support.simulated_gang.simulation import exited, heartbeat, hello
from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.config.spec_updates import apply_update
from tftraining.launch.failure.first_step import place_of
from tftraining.launch.failure.restart_budget import Ledger, account, merge
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.failure.result import Result
from tftraining.launch.failure.same_failure import SameFailure, counts_as_same_failure, counts_before_first_step
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import JobContext
from tftraining.launch.http.pages import gang_status
from tftraining.launch.progress import Snapshot

BOOM = "ValueError: boom"
WALL = 1_772_366_400.0
STEPS = {"step": 140, "epoch": 3, "epochs": 12, "first_step": 100, "updated": WALL}
MADE = {**STEPS, "first_step_time": 1.0}


class Fit:
    """A gang of two whose worker-1 fails again and again; `now` is the time of both clocks."""

    def __init__(
        self, limit: int = 3, ledger: Ledger | None = None, now: float = 0.0, local: bool = False, **policy: Any
    ) -> None:
        self.now = now
        self.local = local
        self.policy = Policy(**{"max_restarts": 1000, "same_failure_limit": limit, **policy})
        self.chief = self._new(ledger or Ledger())
        self._join()

    def _new(self, ledger: Ledger) -> Coordinator:
        gang = Gang(("worker-0", "worker-1"), "worker-0")
        job = JobContext("uid", 1, gang, self.policy, local=self.local)
        return Coordinator(job, ledger, lambda: WALL + self.now, self.now)

    def _join(self, **fields: Any) -> None:
        for name in self.chief.membership.gang:
            assert self.chief.handle_hello(hello(name, self.now, **fields), self.now) == ""
        assert self.chief.rounds.running

    def fails(
        self, exception: str = BOOM, after: float = 40.0, member: str = "worker-1", told: dict[str, Any] | None = None
    ) -> bool:
        """The round trains for so long, then the program of the member ends; whether the job has."""
        progress, ended = MADE if told is None else told, {"kind": "", "signal": None, "lines": [exception]}
        self._pass(after, progress)
        number = self.chief.membership.gang[member].round
        frame = {**exited(number, 1, **progress), "exit": {**ended, "code": 1, "exception": exception}}
        return self._end(member, frame)

    def is_killed(self, code: int | None = None, number: int | None = 9) -> bool:
        """The same for a program that is killed."""
        self._pass(40.0, MADE)
        return self._end("worker-1", exited(self.chief.membership.gang["worker-1"].round, code, number, **MADE))

    def gets_a_new_chief(self) -> None:
        """The chief's launcher dies and is recreated: what it knew is with the other one."""
        known = self.chief.verdict.ledger.to_json()
        self.chief = self._new(Ledger())
        number = 1000 + int(self.now)
        frame = hello(
            "worker-1", self.now, ledger=known, known=number, round=number, witness=number, farewell=number, step=140
        )
        assert self.chief.handle_hello(frame, self.now) == ""
        assert self.chief.handle_hello(hello("worker-0", self.now, incarnation="new"), self.now) == ""
        assert self.chief.rounds.running

    @property
    def verdict(self) -> Result:
        assert self.chief.verdict.result is not None
        return self.chief.verdict.result

    def _pass(self, seconds: float, progress: dict[str, Any]) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            send_heartbeats(self.chief, self.now)
            for name, peer in self.chief.membership.gang.items():
                self.chief.handle_frame(name, heartbeat(peer.round, self.now, **progress), self.now)
            self.chief.tick(self.now)

    def _end(self, member: str, frame: dict[str, Any]) -> bool:
        self.chief.handle_frame(member, frame, self.now)
        if self.chief.verdict.result is not None:
            return True
        send_ready(self.chief, self.now)
        for _ in range(200):
            if self.chief.rounds.running:
                return False
            self.now += 1.0
            send_heartbeats(self.chief, self.now)
            self.chief.tick(self.now)
        raise AssertionError("it never starts again")


def test_the_third_time_in_a_row_is_the_end_and_says_what_it_is() -> None:
    fit = Fit()
    assert [fit.fails(), fit.fails(), fit.fails()] == [False, False, True]
    assert (fit.verdict.verdict, fit.verdict.reason, fit.verdict.member) == ("Failed", "SameFailure", "worker-1")
    words = "worker-1: ValueError: boom; the same failure 3 times in a row reaches spec.restartPolicy.sameFailureLimit"
    assert fit.verdict.message == words
    assert fit.chief.verdict.ledger.process_failures == 2, "the failure that ends the job is no restart"


def test_it_ends_the_job_before_a_budget_that_is_used_up_by_the_same_failure() -> None:
    fit = Fit(max_restarts=2)
    assert [fit.fails(), fit.fails(), fit.fails()] == [False, False, True]
    assert fit.verdict.reason == "SameFailure"


@pytest.mark.parametrize(("limit", "number"), [(2, 3), (5, 5)])
def test_the_limit_is_as_the_spec_says(limit: int, number: int) -> None:
    fit = Fit(limit)
    assert [fit.fails(after=30.0) for _ in range(number)] == [False] * (number - 1) + [True]


def test_a_limit_of_0_is_none() -> None:
    fit = Fit(0)
    assert not any(fit.fails() for _ in range(20))


def test_what_passes_within_a_minute_gets_its_time() -> None:
    fit = Fit()
    began = None
    while not fit.fails(after=2.0):
        began = fit.now if began is None else began
        assert fit.now < 300
    assert began is not None
    # The first failure was before its restart.
    assert 60 <= fit.now - began + 1 < 100


@pytest.mark.parametrize(
    "told",
    [
        {**MADE, "step": 141},
        {**MADE, "epoch": 4},
        {"exception": "ValueError: bang"},
        {"exception": "TypeError: boom"},
    ],
)
def test_another_step_or_exception_is_another_failure(told: dict[str, Any]) -> None:
    fit = Fit()
    other = told if "exception" in told else {"told": told}
    for _ in range(4):
        assert not fit.fails()
        assert not fit.fails()
        assert not fit.fails(**other)


def test_another_member_is_no_difference() -> None:
    fit = Fit()
    assert [fit.fails(member=f"worker-{index}") for index in (0, 1, 0)] == [False, False, True]


def test_an_address_is_no_difference() -> None:
    fit = Fit()
    texts = [f"ValueError: <object at 0x7f{number}a>" for number in range(3)]
    assert [fit.fails(text) for text in texts] == [False, False, True]
    assert texts[2] in fit.verdict.message


@pytest.mark.parametrize(
    "name",
    [
        "OSError",
        "ConnectionError",
        "ConnectionResetError",
        "BrokenPipeError",
        "TimeoutError",
        "FileNotFoundError",
        "PermissionError",
        "socket.gaierror",
        "urllib.error.URLError",
        "ssl.SSLCertVerificationError",
        "http.client.RemoteDisconnected",
        "requests.exceptions.RetryError",
        "tensorflow.python.framework.errors_impl.UnavailableError",
        "tensorflow.python.framework.errors_impl.AbortedError",
        "tensorflow.python.framework.errors_impl.DeadlineExceededError",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError",
    ],
)
def test_what_tells_of_the_surroundings_never_ends_the_job(name: str) -> None:
    assert not counts_as_same_failure(f"{name}: x") and not counts_as_same_failure(name)
    fit = Fit()
    assert not any(fit.fails(f"{name}: x") for _ in range(10))


@pytest.mark.parametrize("name", ["ValueError", "my.OSErrors", "tensorflow.errors.InvalidArgumentError", "MemoryError"])
def test_all_else_does(name: str) -> None:
    assert counts_as_same_failure(f"{name}: OSError: x") and counts_as_same_failure(name)


def test_signals_and_other_exit_codes_do_not_count_and_end_no_row() -> None:
    fit = Fit()
    assert not any(fit.is_killed() for _ in range(5))
    assert not any(fit.is_killed(3, None) for _ in range(5))
    results = [fit.fails(), fit.is_killed(), fit.fails(), fit.fails("OSError: x"), fit.fails()]
    assert results == [False, False, False, False, True]


def test_before_the_first_step_of_a_restart_it_does_not_count() -> None:
    """The program is known to start: what it lacks now may come back."""
    fit = Fit()
    assert not fit.fails(told=MADE)
    told = {**STEPS, "epoch": None}
    assert not any(fit.fails("KeyError: 'x'", told={k: v for k, v in told.items() if v}) for _ in range(10))
    assert not any(fit.fails("KeyError: 'x'", told={}, after=2) for _ in range(10))


def test_before_any_step_of_the_job_it_counts_within_100_s_over_a_minute() -> None:
    fit = Fit()
    assert not fit.fails("KeyError: 'x'", told={}, after=4.4, member="worker-0")
    began, number = fit.now, 1
    while not fit.fails("KeyError: 'x'", told={}, after=4.4, member=f"worker-{number % 2}"):
        number += 1
    assert fit.now - began >= 60 and fit.now < 80, "the wait never reaches beyond the failure that decides"
    assert fit.verdict.reason == "SameFailure"


@pytest.mark.parametrize("after", [0.1, 3.0])
def test_on_one_machine_it_counts_without_a_wait(after: float) -> None:
    fit = Fit(local=True, now=0.1)
    assert [fit.fails("KeyError: 'x'", told={}, after=after) for _ in range(3)] == [False, False, True]
    assert fit.now < 10


def test_what_does_not_count_waits_on_one_machine_too() -> None:
    fit = Fit(local=True)
    assert not any(fit.fails("OSError: x", told={}, after=1.0) for _ in range(6))
    assert fit.now > 12


def test_a_callback_that_raises_at_the_begin_of_the_same_epoch_counts_without_a_step() -> None:
    fit = Fit()
    assert [fit.fails(), fit.fails(told=STEPS), fit.fails(told=STEPS)] == [False, False, True]


@pytest.mark.parametrize(
    "name",
    [
        "tensorflow.python.framework.errors_impl.NotFoundError",
        "tensorflow.python.framework.errors_impl.DataLossError",
        "tensorflow.python.framework.errors_impl.UnknownError",
        "tensorflow.python.framework.errors_impl.AlreadyExistsError",
        "zipfile.BadZipFile",
        "urllib3.exceptions.MaxRetryError",
        "EOFError",
        "Exception: URL fetch failure on https://example.com",
    ],
)
def test_what_tells_of_files_and_peers_counts_only_after_a_step(name: str) -> None:
    fit = Fit()
    assert not any(fit.fails(f"{name}: x", told={}, after=4.0) for _ in range(10))


@pytest.mark.parametrize("name", ["KeyError", "AttributeError", "Exception", "tensorflow.errors.InvalidArgumentError"])
def test_all_else_counts_before_a_step_too(name: str) -> None:
    assert counts_before_first_step(f"{name}: NotFoundError: x") and counts_before_first_step(name)


def test_a_program_that_reports_nothing_counts_by_the_time_it_runs() -> None:
    """Its step is not known. After ten minutes it has come further than before."""
    long = Fit()
    assert not any(long.fails(told={}, after=700.0) for _ in range(4))
    fit = Fit()
    assert [fit.fails(told={}), fit.fails(told={}), fit.fails(told={})] == [False, False, True]


@pytest.mark.parametrize(
    ("ran", "job_stepped", "counted"),
    [(29.9, True, False), (30.0, True, True), (29.9, False, True), (600.0, False, True), (600.1, False, False)],
)
def test_how_long_a_program_that_reports_nothing_runs_before_a_failure_that_counts(
    ran: float, job_stepped: bool, counted: bool
) -> None:
    assert (place_of(Snapshot(), False, ran, job_stepped) is not None) == counted


@pytest.mark.parametrize(("seconds", "enough"), [(59.9, False), (60.0, True)])
def test_the_first_of_the_row_is_a_minute_ago(seconds: float, enough: bool) -> None:
    assert SameFailure("a", 3, 1000).too_often(3, 1000 + seconds) == enough


@pytest.mark.parametrize("action", ["Restart", "Ignore"])
def test_a_rule_that_holds_decides_before(action: str) -> None:
    fit = Fit(rules=(Rule(action, exit_codes=frozenset({1})),))
    assert not any(fit.fails() for _ in range(10))


def test_a_rule_that_does_not_hold_changes_nothing() -> None:
    fit = Fit(rules=(Rule("Ignore", exit_codes=frozenset({2})),))
    assert [fit.fails(), fit.fails(), fit.fails()] == [False, False, True]


def test_a_new_launcher_of_the_chief_knows_how_often_it_was() -> None:
    fit = Fit()
    assert not fit.fails()
    fit.gets_a_new_chief()
    assert not fit.fails()
    fit.gets_a_new_chief()
    assert fit.fails()
    assert fit.verdict.reason == "SameFailure"


def test_where_nobody_is_left_the_operator_tells_it() -> None:
    before = Fit()
    assert [before.fails(), before.fails()] == [False, False]
    told = Ledger.from_json({**before.chief.verdict.ledger.to_json(), "incidents": 0})
    assert Fit(ledger=told, now=before.now).fails()


def test_a_launcher_of_an_older_version_does_not_make_it_forgotten() -> None:
    known = Ledger(incidents=4, in_place=4, same=SameFailure("a", 2, 5))
    passed_on = replace(known, same=SameFailure())
    assert merge(known, passed_on).same == merge(passed_on, known).same == known.same
    later = account(passed_on, "Error", charged=True)
    assert merge(known, later).same == SameFailure()


def test_a_clock_that_is_put_back_neither_ends_the_job_nor_keeps_it_for_ever() -> None:
    ahead = SameFailure("a", 2, int(WALL) + 10**8)
    again = ahead.with_failure("a", WALL)
    assert (again.count, again.since, again.too_often(3, WALL)) == (3, int(WALL), False)
    assert again.with_failure("a", WALL + 60).too_often(3, WALL + 60)


def test_the_limit_may_change_while_the_job_runs() -> None:
    fit = Fit(0)
    assert not any(fit.fails() for _ in range(5))
    fit.chief.apply_spec_update(fit.chief.membership.job.gang, replace(fit.policy, same_failure_limit=3), fit.now)
    assert fit.fails()


def test_orders_tell_it_and_those_of_an_older_operator_do_not() -> None:
    gang = Gang(("worker-0", "worker-1"), "worker-0")

    class Told:
        policy = Policy(same_failure_limit=4)

        def __init__(self) -> None:
            self.gang = gang

    assert apply_update(Told(), {"workers": 2, "sameFailureLimit": 0})[1].same_failure_limit == 0  # type: ignore[arg-type]
    assert apply_update(Told(), {"workers": 2})[1].same_failure_limit == 4  # type: ignore[arg-type]


def test_a_worker_that_restarts_alone_is_no_exception() -> None:
    fit = Fit(scope="Pod")
    assert [fit.fails(), fit.fails(), fit.fails()] == [False, False, True]
    assert fit.verdict.reason == "SameFailure"


def test_the_message_names_the_exception_until_the_gang_trains_again_and_after() -> None:
    fit = Fit()
    fit._pass(5.0, MADE)
    frame = exited(fit.chief.membership.gang["worker-1"].round, 1, None, **MADE)
    frame["exit"]["exception"] = BOOM
    fit.chief.handle_frame("worker-1", frame, fit.now)
    told = gang_status(fit.chief, fit.now)
    assert (told["phase"], told["message"].partition(";")[0]) == ("Restarting", "worker-1: ValueError: boom")
    assert (told["lastRestart"]["exception"], told["failure"]["exception"]) == (BOOM, BOOM)
    send_ready(fit.chief, fit.now)
    told = gang_status(fit.chief, fit.now)
    assert (told["phase"], told["message"].partition(";")[0]) == ("Starting", "worker-1: ValueError: boom")
    fit._pass(5.0, MADE)
    told = gang_status(fit.chief, fit.now)
    assert (told["phase"], told["message"].partition(";")[0]) == ("Training", "worker-1: ValueError: boom")


def test_until_an_epoch_is_told_again_the_last_one_that_is_known_stays() -> None:
    """fit restores the steps before it begins an epoch, and tells metrics at the end of one."""
    fit = Fit()
    assert not fit.fails(told={**MADE, "metrics": {"loss": 0.5}})
    restored = {"step": 100, "epochs": 12, "first_step": 100, "updated": WALL}
    for _ in range(2):
        fit._pass(1.0, restored)
        told = gang_status(fit.chief, fit.now)["progress"]
        assert (told["epoch"], told["epochs"], told["step"], told["metrics"]) == (3, 12, 100, {"loss": 0.5})
        assert not fit.fails(told=restored)
    fit._pass(1.0, {**restored, "epoch": 2})
    assert gang_status(fit.chief, fit.now)["progress"]["epoch"] == 2, "what the program says is what counts"


def test_a_wait_is_no_longer_than_until_the_next_failure_may_end_the_job() -> None:
    row = SameFailure("key", 2, 100)
    waits = {at: row.shortened(32.0, at) for at in (110.0, 150.0, 159.5, 160.5)}
    assert waits == {110.0: 32.0, 150.0: 10.0, 159.5: 0.5, 160.5: 32.0}
    assert SameFailure().shortened(32.0, 50.0) == 32.0
