"""The launchers of the simulated job, at the level of what they tell: /status, termination messages, readiness.

They do what the contract says of them, without time passing; how they do it is tested with the launcher itself. They
know only their pods' environment, as the real ones do.
"""

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Any

from tests.support.simulated_cluster.apiserver import DONE, ApiServer
from tests.support.simulated_cluster.kubelet import Kubelet
from tests.support.simulated_cluster.nodes import SimulatedNodes
from tftraining.launch.failure.same_failure import SameFailure
from tftraining_api.model.names import LABEL_ATTEMPT, LABEL_ROLE, member_of
from tftraining_api.model.spec import Manifest
from tftraining_operator.model.launcher_report import parse_report
from tftraining_operator.model.observed import LauncherReport

NEVER = {"inPlace": 0, "processFailures": 0, "podFailures": 0, "refilledAt": 0, "withoutProgress": 0}


# Restarts of the whole gang, whoever is named.
OF_ALL = ("Stalled", "Resized", "Grown")


@cache
def decoded(text: str) -> dict[str, Any]:
    """The JSON object in a variable of a pod; not to be changed."""
    found: dict[str, Any] = json.loads(text)
    return found


class SimulatedLaunchers:
    """All launchers of the present attempt. Members are called by their short names, such as worker-1."""

    def __init__(self, api: ApiServer, nodes: SimulatedNodes, kubelet: Kubelet) -> None:
        self._api = api
        self._nodes = nodes
        self._kubelet = kubelet
        self._job: str = api.job["metadata"]["name"]
        self.verdict_in: dict[str, str] = {}
        self.backup: tuple[int, int] = (0, 0)
        self.earlier_steps: int | None = 0
        self.made_before = 0
        self.in_memory: dict[str, Any] | None = None  # the newest backup in memory, and whether there are more to come
        self.begin("")

    def begin(self, attempt: str) -> None:
        """Launchers of a new attempt know only what they are told in their environment."""
        self.attempt = attempt
        self.phase = "Waiting"
        self.round = 0
        self.ledger = dict(NEVER)
        self.row = SameFailure()
        self.last: dict[str, Any] | None = None
        self.failure: dict[str, Any] | None = None
        self.progress: dict[str, Any] | None = None
        self.began = self.backup
        self.mark: int | None = None
        self.joined: dict[str, str] = {}
        self.alone: list[str] = []  # that train without the others
        self.no_gpu: list[str] = []  # in which TensorFlow sees none of the GPUs that they ask for
        self.slow: dict[str, Any] | None = None  # as /status has it
        self.ever: set[str] = set()
        self.orders: tuple[str, dict[str, Any]] = ("", {})  # as its chief's launcher knows them, by the pod's UID
        self.missed: set[str] = set()
        self.done: set[str] = set()  # those whose programs have ended with 0 in this round

    # --- what they do

    def tick(self) -> bool:
        """Whoever is lost is missed, and a gang that is complete starts; whether something happened.

        A kubelet may take long to show orders: they are read after all else, and before a round begins.
        """
        self._notice_attempt()
        return self._tick() or self._hear_orders()

    def _tick(self) -> bool:
        running = self.running
        members = self.members
        absent = [name for name, uid in self.joined.items() if running.get(name) != uid]
        done = [name for name in absent if name in self.done and name != members[0]] if members else []
        if self.phase == "Training" and self._tick_done(done):
            return True
        gone = [name for name in absent if name not in done]
        if self.phase == "Training" and gone and all(each in members and self._alone(each) for each in gone):
            return self._tick_alone(gone)
        if self.phase == "Training":
            return self._end_round(gone, members, running)
        if self._hear_orders():
            return True
        there = {name: running[name] for name in members if name in running}
        if not self._enough(there, members):
            return False
        self._start(there)
        if self._job_uid in self.verdict_in:
            self.end("Succeeded", "Succeeded", "done before", {"member": self.members[0]})
        return True

    def _end_round(self, gone: list[str], members: list[str], running: dict[str, str]) -> bool:
        """A round ends when somebody is lost, is not wanted any more, or all who were missing are there."""
        surplus, come = set(self.joined) - set(members), sorted(set(members) - set(self.joined))
        takes_all = [each for each in gone if not self._alone(each) and (each in members or not members)]
        if takes_all:
            self._stop(takes_all[0], "MemberLost", charged=False)
        elif surplus:
            self._stop(members[0], "Resized", charged=False)
        elif come and set(members) <= set(running):
            self._stop(come[0], "Grown" if come[0] in self.ever else "Resized", charged=False)
        return self.phase != "Training"

    def _enough(self, there: dict[str, str], members: list[str]) -> bool:
        missing = set(members) - set(there)
        if not there or not missing:
            return bool(there)
        least = self.settings()["minReplicas"]
        fit = least is not None and sum(name.startswith("worker") for name in there) >= least
        return bool(self.joined) and members[0] in there and (fit or not missing & self.ever)

    def _tick_done(self, gone: list[str]) -> bool:
        """Who has finished may be lost: nobody misses it, and its new launcher is told that it is done."""
        back = [name for name in gone if name in self.running]
        for name in back:
            self.joined[name] = self.running[name]
            self._kubelet.start(self._pod_of(name))
        return bool(back)

    def _tick_alone(self, gone: list[str]) -> bool:
        """A worker is missed, or back, while the others train on."""
        back, news = [name for name in gone if name in self.running], [name for name in gone if name not in self.missed]
        for name in news:
            self._stop(name, "MemberLost", charged=False)
        for name in back:
            self.joined[name] = self.running[name]
            self._last["downSeconds"] = 1.1
            self._kubelet.start(self._pod_of(name))
        self.missed = {*self.missed, *news} - set(back)
        return bool(back or news)

    def crash(self, member: str, code: int | None = None, signal: int | None = 9, exception: str = "") -> bool:
        """The program of a member ends; whether one ran. The gang waits then, or ends with the verdict Failed. By an
        exception it ends at the step that it has told."""
        if not self._trains(member):
            return False
        ended: dict[str, Any] = {"exitCode": code, "signal": None if code is not None else signal}
        ended["exception"] = exception
        before, row = dict(self.ledger), self._row_after(member, exception)
        self._stop(member, "Error" if code is not None else "Killed", True, **ended)
        self.failure = {"member": member, **ended, "reason": self._last["reason"], "logTail": "the last line"}
        if exception and row.too_often(self.settings()["sameFailureLimit"], self._api.now.timestamp()):
            self.ledger = before
            self.end("Failed", "SameFailure", f"{member}: {exception}; {row.describe()}", self.failure)
            return True
        if self._spent(member, before, self.failure):
            return True
        self.row = row
        if self._alone(member):
            self.ledger["inPlace"] += 1
            self._last["downSeconds"] = 1.1
        return True

    def stall(self, member: str) -> None:
        """The chief finds that a member makes no step: a matter of the whole gang."""
        before = dict(self.ledger)
        self._stop(member, "Stalled", True)
        self._spent(member, before, {"member": member})

    def _spent(self, member: str, before: dict[str, int], culprit: dict[str, Any]) -> bool:
        """Whether that was one failure too many: then it is no restart, and the job ends."""
        allowed = self.settings()["maxRestarts"]
        if self.ledger["processFailures"] + self.ledger["podFailures"] - self.ledger["refilledAt"] <= allowed:
            return False
        self.ledger = before
        self.end("Failed", "MaxRestartsExceeded", f"{member} failed; all {allowed} restarts are used up", culprit)
        return True

    def _row_after(self, member: str, exception: str) -> SameFailure:
        """The row after a failure that counts if it is by an exception."""
        key = sha256(f"{member} {exception} {(self.progress or {}).get('step')}".encode()).hexdigest()[:16]
        return self.row.with_failure(key, self._api.now.timestamp()) if exception else self.row

    def finish(self, *members: str) -> bool:
        """The programs of these members, otherwise the chief's, have done their work; whether they ran."""
        names = members or tuple(self.members[:1])
        if not names or not all(self._trains(each) for each in names):
            return False
        self.done |= set(names)
        needed = self.trainers if self.settings()["successPolicy"] == "AllWorkers" else self.members[:1]
        if not self.done.issuperset(needed):
            return True
        if self.settings()["directory"] is not None:
            self.verdict_in[self._job_uid] = "Succeeded"
        self.end("Succeeded", "Succeeded", "done", {"member": self.members[0]})
        return True

    def end(self, verdict: str, reason: str, words: str, culprit: dict[str, Any]) -> None:
        """All that are there leave with the verdict."""
        self.phase = verdict
        for member in self.running:
            head = {**culprit, "verdict": verdict, "reason": reason, "message": words, "ledger": self.whole_ledger}
            code = 0 if verdict == "Succeeded" else 1
            self._kubelet.exit(self._pod_of(member), code, message=f"tftraining/1 {json.dumps(head)}\nthe last line\n")

    def advance(self, epoch: int, step: int, epochs: int = 10, **metrics: float) -> None:
        """The training has come this far. Earlier `fit`s of the program have made `earlier_steps`, of which
        these made `made_before`; launchers of an older version do not tell (None)."""
        self.progress = {
            "epoch": epoch,
            "epochs": epochs,
            "step": step,
            "totalSteps": None if self.earlier_steps is None else self.earlier_steps + step,
            "stepsPerEpoch": 70,
            "firstEpoch": self.began[0],
            "firstStep": self.began[1],
            "firstTotalSteps": None if self.earlier_steps is None else self.earlier_steps + self.began[1],
            "madeBefore": self.made_before,
            "stepsPerSecond": 12.345,
            "metrics": metrics,
            "updatedTime": self._now(),
        }

    # --- what they say

    def last_report(self) -> LauncherReport | None:
        """What the chief's launcher answers, if it is there."""
        chief = self.members[0] if self.members else ""
        if chief not in self.running:
            return None
        self._notice_attempt()
        return LauncherReport(self.running[chief], parse_report(json.dumps(self.status()).encode()))

    def status(self) -> dict[str, Any]:
        """The chief's /status."""
        return {
            "version": 1,
            "job": {"name": self._job},
            "member": self.members[0],
            "round": self.round,
            "phase": self.phase,
            "reason": "",
            "message": "",
            "missing": [each for each in self.members if each not in self.running],
            "finished": sorted(self.done),
            "trainsAlone": self.alone,
            "noGpu": self.no_gpu,
            "slowMember": self.slow,
            "members": {each: {"state": "running", "silentSeconds": 0.1} for each in self.running},
            "gang": {"size": len(self.trainers), "full": len([each for each in self.members if "ps-" not in each])},
            "ledger": self.whole_ledger,
            "lastRestart": self.last,
            "failure": self.failure,
            "progress": self.progress,
            "backup": self.in_memory,
        }

    @property
    def whole_ledger(self) -> dict[str, Any]:
        """The counts, and the row if there is one."""
        return {**self.ledger, **({"sameFailure": self.row.to_json()} if self.row.count else {})}

    # --- what they know

    @property
    def pods(self) -> dict[str, Manifest]:
        """The training pods of the job by their short names."""
        return {member_of(self._job, name): pod for name, pod in self._training_pods()}

    @property
    def running(self) -> dict[str, str]:
        """The UIDs of those whose launchers run, and whom the chief's lets in."""
        alive = {name: pod for name, pod in self.pods.items() if pod["status"]["phase"] == "Running"}
        uids = {name: pod["metadata"]["uid"] for name, pod in alive.items()}
        chief, keys = self._chief(), self._kubelet.launcher_secrets
        key = keys.get(chief["metadata"]["uid"]) if chief else None
        return {name: uid for name, uid in uids.items() if key in (None, keys[uid])}

    @property
    def members(self) -> list[str]:
        """Who belongs to the gang, the chief first, as the orders in the chief's pod have it, otherwise TF_CONFIG."""
        if not self.pods:
            return []
        cluster = self._cluster()
        sizes = {role: len(cluster.get(role, ())) for role in ("chief", "worker", "ps")}
        sizes["worker"] = self._orders().get("workers", sizes["worker"])
        return [f"{role}-{index}" for role, count in sizes.items() for index in range(count)]

    @property
    def trainers(self) -> list[str]:
        """Those of the round that make steps."""
        return [each for each in self.joined if not each.startswith("ps-")]

    # --- internals

    @property
    def _job_uid(self) -> str:
        return str(self.settings()["job"]["uid"])

    def _notice_attempt(self) -> None:
        if self.pods and (attempt := self._label(LABEL_ATTEMPT)) != self.attempt:
            self.begin(attempt)

    def _trains(self, member: str) -> bool:
        return self.phase == "Training" and self.running.get(member, "") == self.joined[member]

    @property
    def _last(self) -> dict[str, Any]:
        assert self.last is not None
        return self.last

    def _start(self, running: dict[str, str]) -> None:
        for member in running:
            given = self.settings(member)["ledger"]
            if given["processFailures"] > self.ledger["processFailures"]:
                self.row = SameFailure.from_json(given.get("sameFailure") or {})
            self.ledger = {name: max(value, given[name]) for name, value in self.ledger.items()}
        old = self.joined.items()
        self.ledger["inPlace"] += bool(old) and (old <= running.items() or running.items() <= old)
        self.joined, self.done = running, set()
        self.ever |= set(running)
        self.round += 1
        self.phase = "Training"
        if self.last is not None and self.last["downSeconds"] is None:
            step = (self.progress or {}).get("step", 0)
            epoch = (self.progress or {}).get("epoch", 1) - 1
            self.last |= {"downSeconds": 1.1, "resumedFromEpoch": epoch, "resumedFromStep": step, "lostSteps": 3}
        for member in running:
            self._kubelet.start(self._pod_of(member))

    def _stop(self, member: str, reason: str, charged: bool, **ended: Any) -> None:
        epoch = (self.progress or {}).get("epoch")
        progressed = epoch is not None and self.mark is not None and epoch > self.mark
        self.mark = epoch
        if progressed:
            self.ledger["withoutProgress"] = 0
        if progressed and self.pods and self.settings()["budgetReset"] == "OnProgress":
            self.ledger["refilledAt"] = self.ledger["processFailures"] + self.ledger["podFailures"]
        self.ledger["processFailures"] += charged
        self.ledger["withoutProgress"] += reason not in ("Resized", "Grown")
        alone = self._alone(member) and reason not in OF_ALL
        self.phase = self.phase if alone else "Restarting"
        self.last = {"time": self._now(), "member": member, "exitCode": None, "signal": None, "reason": reason}
        self.last |= ended
        self.last |= {"downSeconds": None, "resumedFromEpoch": None, "resumedFromStep": None, "lostSteps": None}
        self.last["alone"] = alone
        for each in () if alone else set(self.running) & set(self.joined):
            self._kubelet.start(self._pod_of(each), ready=False)

    def _pod_of(self, member: str) -> str:
        """The name of the member's pod."""
        return str(self.pods[member]["metadata"]["name"])

    def _alone(self, member: str) -> bool:
        scope = self.settings()["scope"] if self.pods else "Job"
        return bool(scope == "Pod" and member.startswith("worker-") and member != self.members[0])

    def _training_pods(self) -> Iterator[tuple[str, Manifest]]:
        for name, pod in self._api.pods.items():
            labels = pod["metadata"]["labels"]
            if pod["spec"].get("nodeName") in self._nodes.powered_off:
                continue
            if labels.get(LABEL_ROLE) in ("chief", "worker", "ps") and pod["status"]["phase"] not in DONE:
                yield name, pod

    def _label(self, label: str) -> str:
        return str(next(iter(self.pods.values()))["metadata"]["labels"][label])

    def settings(self, member: str = "") -> dict[str, Any]:
        """What a launcher goes by: what it was made with, and what the chief's was told since."""
        return decoded(self._variable("TFTRAINING_LAUNCHER", member) or "") | self._orders()

    def _hear_orders(self) -> bool:
        """What the annotation of the chief's pod says now; whether that is news."""
        before = self.orders
        if chief := self._chief():
            annotation = chief["metadata"]["annotations"].get("tftraining.dev/orders")
            self.orders = (chief["metadata"]["uid"], json.loads(annotation) if annotation else {})
        return self.orders != before

    def _orders(self) -> dict[str, Any]:
        """What the chief's launcher was told; a new one reads it when it starts."""
        chief = self._chief()
        if chief and self.orders[0] != chief["metadata"]["uid"]:
            self._hear_orders()
        return self.orders[1] if chief else {}

    def _chief(self) -> Manifest | None:
        return self.pods.get("chief-0" if self._cluster().get("chief") else "worker-0")

    def _cluster(self) -> dict[str, list[str]]:
        if not self.pods:
            return {}
        if (config := self._variable("TF_CONFIG")) is None:
            roles = decoded(self._variable("TFTRAINING_LAUNCHER") or "")["cluster"]
            return {role: [address] * count for role, (count, address) in roles.items()}
        cluster: dict[str, list[str]] = decoded(config)["cluster"]
        return cluster

    def _variable(self, name: str, member: str = "") -> str | None:
        pods = self.pods
        pod = pods.get(member) or next(iter(pods.values()))
        env = next(each for each in pod["spec"]["containers"] if each["name"] == "tensorflow")["env"]
        return next((str(each["value"]) for each in env if each["name"] == name), None)

    def _now(self) -> str:
        # The nodes' clock is not the operator's.
        return (self._api.now + timedelta(seconds=0.25)).isoformat()
