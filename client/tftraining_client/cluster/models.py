"""A job, its pods and its events as a program reads them: frozen, with the object of the API server in `raw`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from tftraining_api.model.job import parse_job
from tftraining_api.model.names import CONTAINER, KIND, LABEL_ATTEMPT, LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import Status
from tftraining_api.model.times import parse_time

NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Job:
    """A TFTrainingJob. `spec` is None if this version of the client cannot read it."""

    namespace: str
    name: str
    uid: str
    created: datetime
    deleting: bool
    suspended: bool
    spec: JobSpec | None
    status: Status
    raw: Manifest = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Manifest) -> Self:
        """The job in an object of the API server."""
        job = parse_job(raw)
        policy = (raw.get("spec") or {}).get("runPolicy") or {}
        return cls(
            namespace=job.key.namespace,
            name=job.key.name,
            uid=job.uid,
            created=job.created,
            deleting=job.deleting,
            suspended=bool(policy.get("suspend")),
            spec=job.spec,
            status=job.status,
            raw=raw,
        )

    @property
    def phase(self) -> str:
        """The phase, also one that this version of the client does not know."""
        return str((self.raw.get("status") or {}).get("phase") or self.status.phase)

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.succeeded or self.failed

    @property
    def succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether the job has failed."""
        return self.phase == "Failed"

    @property
    def epoch(self) -> int:
        """The newest epoch that the program has reported; 0 before the first report."""
        return (self.status.progress.epoch if self.status.progress else None) or 0

    @property
    def log_tail(self) -> str:
        """The last lines of the program that failed last; "" if none failed."""
        return (self.status.failure.log_tail if self.status.failure else None) or ""


@dataclass(frozen=True)
class Pod:
    """A pod of a job. `started` and `terminated` are about the container of the training, or the named one."""

    name: str
    uid: str
    role: str
    index: int
    attempt: int
    phase: str
    reason: str
    ready: bool
    started: bool
    terminated: bool
    node: str
    created: datetime
    raw: Manifest = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Manifest, container_name: str = CONTAINER) -> Self:
        """The pod in an object of the API server."""
        meta, status = raw["metadata"], raw.get("status") or {}
        labels = meta.get("labels") or {}
        container = _container(status, container_name)
        state = container.get("state") or {}
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            role=str(labels.get(LABEL_ROLE, "")),
            index=_number(labels.get(LABEL_INDEX)),
            attempt=_number(labels.get(LABEL_ATTEMPT)),
            phase="Terminating" if meta.get("deletionTimestamp") else str(status.get("phase", "Pending")),
            reason=_reason(status, state),
            ready=bool(container.get("ready")),
            started="running" in state or "terminated" in state,
            terminated="terminated" in state or status.get("phase") in ("Succeeded", "Failed"),
            node=str((raw.get("spec") or {}).get("nodeName") or ""),
            created=_time(meta.get("creationTimestamp")),
            raw=raw,
        )

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return str(self.raw["metadata"].get("namespace", ""))

    @property
    def job(self) -> str:
        """The name of the job."""
        return str((self.raw["metadata"].get("labels") or {}).get(LABEL_JOB, ""))

    @property
    def containers(self) -> tuple[str, ...]:
        """The names of the containers, and of those that prepare the pod."""
        spec = self.raw.get("spec") or {}
        return tuple(each["name"] for kind in ("containers", "initContainers") for each in spec.get(kind) or ())

    def is_of(self, uid: str) -> bool:
        """Whether the pod belongs to the job of the UID, and not to an earlier one of the same name."""
        return not self.owners or uid in self.owners

    @property
    def owners(self) -> tuple[str, ...]:
        """The UIDs of the jobs with which the pod goes."""
        references = self.raw["metadata"].get("ownerReferences") or ()
        return tuple(each["uid"] for each in references if each["kind"] == KIND)

    @property
    def replica(self) -> str:
        """The replica that the pod runs, such as `worker-1`."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class Event:
    """An event about a job."""

    time: datetime
    type: str
    reason: str
    message: str
    raw: Manifest = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: Manifest) -> Self:
        """The event in an object of the API server (core/v1)."""
        when = raw.get("lastTimestamp") or raw.get("eventTime") or raw["metadata"].get("creationTimestamp")
        return cls(
            time=_time(when),
            type=str(raw.get("type", "")),
            reason=str(raw.get("reason", "")),
            message=str(raw.get("message", "")),
            raw=raw,
        )


@dataclass(frozen=True)
class JobChange:
    """A change of a job: ADDED, MODIFIED or DELETED, and the job after it (before it, if it was deleted)."""

    type: str
    job: Job


@dataclass(frozen=True)
class LogLine:
    """One line of a replica's log. `time` is that of the container runtime, in nanoseconds since 1970."""

    pod: str
    pod_uid: str
    replica: str
    time: int
    text: str


def _container(status: Manifest, name: str) -> Manifest:
    entries: list[Any] = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((each for each in entries if each.get("name") == name), {})


def _reason(status: Manifest, state: Manifest) -> str:
    """Why the pod does not run, in one word; "" if it does."""
    for name in ("waiting", "terminated"):
        if name in state:
            return str(state[name].get("reason") or "")
    unmet = [each for each in status.get("conditions") or () if each.get("type") == "PodScheduled"]
    unscheduled = [each for each in unmet if each.get("status") == "False"]
    return str(unscheduled[0].get("reason") or "") if unscheduled else str(status.get("reason") or "")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _time(text: str | None) -> datetime:
    """The time; NEVER if there is none, or one that Python does not know."""
    try:
        return parse_time(text) if text else NEVER
    except ValueError:
        return NEVER
