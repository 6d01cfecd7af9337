"""Jobs of a campaign, one after the other: each is run to its end, its traces are collected, and it is judged."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.cluster import Cluster
from testbed.kube import Kube
from testbed.shell import LabError
from tests.campaign import jobs, oracle
from tests.campaign.faults import LOOK_SECONDS, patiently
from tests.campaign.hits import Hits
from tests.campaign.oracle import Evidence, Verdict
from tests.support.cluster.statuses import ENDS, all_statuses
from tests.support.cluster.training import Manifest, Training, condition

KINDS_LEFT = "pods,secrets,services,networkpolicies"
# How long a job may take, however often it is hit; reaching it is a complaint. An undisturbed one takes two minutes.
END_SECONDS = 1500
CLEAN_SECONDS = 300
GONE_SECONDS = 300


@dataclass
class Lane:
    """A thread that runs jobs; the faults strike the present one."""

    cluster: Cluster
    namespace: str
    records: Path  # what the programs of all jobs note, on this machine
    volume: Path  # the storage of the jobs, on this machine
    claim: str  # the same in the cluster
    number: int
    kinds: Iterator[str]
    folder: Path  # for the evidence of jobs with complaints
    tell: Callable[[str], None]
    over: threading.Event = field(default_factory=threading.Event)  # no further job is begun
    aborted: threading.Event = field(default_factory=threading.Event)  # the present job is given up
    present: Evidence | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    hits: Hits = field(default_factory=Hits)  # of all lanes
    _made: int = 0

    def target(self, kinds: Sequence[str]) -> Training | None:
        """The present job, if it is of one of these kinds, or none are given, and has begun to train."""
        present = self.present
        if present is None or (kinds and present.kind not in kinds):
            return None
        trained = any(status.get("phase") == "Running" for status in present.statuses)
        return Training(self.cluster.kube, self.namespace, present.job) if trained else None

    def run(self) -> None:
        """Run jobs until the campaign is over; each that is begun is brought to its end."""
        while not self.over.is_set():
            try:
                self._job(next(self.kinds))
            except Exception as error:
                failed = Evidence(f"lane-{self.number}", "none", 0.0, time.monotonic())
                self.verdicts.append(Verdict(failed, [f"the campaign itself failed: {error!r}"]))
                self.tell(f"lane {self.number}: {error!r}")
                return

    def _job(self, kind: str) -> None:
        self._made += 1
        name = f"{kind}-{self.number}-{self._made}"
        training = Training(self.cluster.kube, self.namespace, name)
        records = self.records / name
        records.mkdir()
        records.chmod(0o777)
        evidence = Evidence(name, kind, time.monotonic(), 0.0)
        manifest = jobs.manifest(name, kind, self.cluster.images[1], self.claim)
        manifest["metadata"]["namespace"] = self.namespace
        patiently(lambda: self.cluster.kube.apply(manifest))
        self.tell(f"{name}: begun")
        with all_statuses(training) as evidence.statuses:
            self.present = evidence
            over = self._wait(lambda: _phase(evidence) in ENDS, END_SECONDS)
            evidence.seen = time.time()
            self.present = None
            if over:
                self._wait(lambda: _cleaned(evidence), CLEAN_SECONDS)
        evidence.ended = time.monotonic()
        job = _patient_job(training)
        evidence.statuses.append(job.get("status", {}))
        evidence.created = job["metadata"]["creationTimestamp"]
        self._collect(evidence, records)
        logs = _logs(training) if oracle.judge(evidence) else {}
        self._delete(evidence, training)
        complaints = oracle.judge(evidence)
        self.verdicts.append(Verdict(evidence, complaints))
        end = evidence.end.get("phase")
        self.tell(
            f"{name}: {end}, {evidence.end.get('restarts')}" + "".join(f"\n    WRONG: {each}" for each in complaints)
        )
        if complaints:
            keep(self.folder / name, evidence, complaints, logs)

    def _wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                return False
            if self.aborted.wait(LOOK_SECONDS):
                raise LabError("the campaign was ended")
        return True

    def _collect(self, evidence: Evidence, records: Path) -> None:
        evidence.processes = jobs.processes(records)
        evidence.hits = oracle.of_job(self.hits.all(), evidence.job, evidence.began, evidence.ended)
        directory = self.volume / evidence.job
        result = directory / "result.json"
        evidence.result = json.loads(result.read_text()) if result.exists() else None
        evidence.temporary = sorted(str(each.relative_to(self.volume)) for each in directory.rglob("workertemp_*"))

    def _delete(self, evidence: Evidence, training: Training) -> None:
        words = ("tftrainingjob", training.name, "--namespace", self.namespace, "--ignore-not-found", "--wait=false")
        patiently(lambda: training.kube.kubectl("delete", *words))

        def gone() -> bool:
            try:
                evidence.left = _objects(training)
            except LabError:
                return False
            return not evidence.left

        self._wait(gone, GONE_SECONDS)


def _objects(training: Training) -> list[str]:
    """The children of a job by their names, as labels can be lost."""
    words = ("--namespace", training.namespace, "--output=name")
    names = training.kube.kubectl("get", KINDS_LEFT, *words).split()
    return [each for each in names if f"{each.partition('/')[2]}-".startswith(f"{training.name}-")]


def _phase(evidence: Evidence) -> str:
    return str(evidence.end.get("phase"))


def _cleaned(evidence: Evidence) -> bool:
    return condition(dict(evidence.end), "Cleaned") in ("True", "False")


def _patient_job(training: Training) -> Manifest:
    found: list[Manifest] = []
    patiently(lambda: found.append(training.job()))
    return found[0]


def _logs(training: Training) -> dict[str, str]:
    """The logs of the job's pods, and their objects, by file name."""
    here = ("--namespace", training.namespace)
    words = {
        "pods.log": ("logs", "--selector", training.selector, *here, "--prefix", "--tail=-1", "--all-containers"),
        "network.yaml": ("get", "services,endpointslices,networkpolicies", *here, "--output=yaml"),
        "pods.yaml": ("get", "pods", *here, "--output=yaml"),
        "events.txt": ("get", "events", *here, "--sort-by=.lastTimestamp"),
        "job.yaml": ("get", "tftrainingjob", training.name, *here, "--output=yaml"),
    }
    return {name: said(training.kube, *command) for name, command in words.items()}


def said(kube: Kube, *words: str) -> str:
    """What kubectl prints, or its complaint."""
    try:
        return kube.kubectl(*words)
    except LabError as error:
        return str(error)


def keep(folder: Path, evidence: Evidence, complaints: list[str], logs: dict[str, str]) -> None:
    """Write the evidence of a job into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "complaints.txt").write_text("\n".join(complaints) + "\n")
    (folder / "evidence.json").write_text(json.dumps(asdict(evidence), indent=1))
    for name, text in logs.items():
        (folder / name).write_text(text)
