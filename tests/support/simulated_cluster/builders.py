"""Jobs for tests, written as sentences: `a_job().workers(2).max_restarts(3)`. Never knows what is expected of them."""

import copy
from typing import Any, Self

from tftraining_api.model.job import Job, parse_job
from tftraining_api.model.spec import JobSpec, Manifest

NAME, NAMESPACE, UID = "mnist", "ml", "job-uid"


class JobBuilder:
    """A TFTrainingJob in the making; each method changes one thing and gives the builder back."""

    def __init__(self) -> None:
        container: Manifest = {"name": "tensorflow", "image": "trainer:1", "command": ["python", "train.py"]}
        self._spec: Manifest = {
            "template": {"spec": {"containers": [container]}},
            "replicaSpecs": {"worker": {"replicas": 2}},
            "restartPolicy": {"mode": "Recreate"},
        }
        self._metadata: Manifest = {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "generation": 1,
            "creationTimestamp": "2026-03-01T12:00:00Z",
        }

    def named(self, name: str) -> Self:
        self._metadata["name"] = name
        return self

    def labelled(self, **labels: str) -> Self:
        """Give the job labels; `__` in a name stands for the slash and `_` for a dash."""
        changed = {name.replace("__", "/").replace("_", "-"): value for name, value in labels.items()}
        self._metadata.setdefault("labels", {}).update(changed)
        return self

    def workers(self, replicas: int) -> Self:
        return self.role("worker", replicas=replicas)

    def chief(self) -> Self:
        return self.role("chief")

    def role(self, role: str, **fields: Any) -> Self:
        self._spec["replicaSpecs"].setdefault(role, {}).update(fields)
        return self

    def without(self, role: str) -> Self:
        del self._spec["replicaSpecs"][role]
        return self

    def in_place(self) -> Self:
        """Launchers restart the program in the running pods: the default of the custom resource."""
        return self.set("restartPolicy.mode", "InPlace")

    def max_restarts(self, number: int) -> Self:
        return self.set("restartPolicy.maxRestarts", number)

    def storage(self, **fields: Any) -> Self:
        volume = {"persistentVolumeClaim": {"claimName": "training"}}
        return self.set("storage", {"volume": volume, **fields})

    def bucket(self, **fields: Any) -> Self:
        return self.set("storage", {"uri": "gs://bucket/team", **fields})

    def set(self, path: str, value: Any) -> Self:
        """Set a field of the spec, such as `runPolicy.managedBy`."""
        *parents, last = path.split(".")
        place = self._spec
        for each in parents:
            place = place.setdefault(each, {})
        place[last] = value
        return self

    def pod(self, **fields: Any) -> Self:
        """Set fields of the pod's spec in the template."""
        self._spec["template"]["spec"].update(fields)
        return self

    def template_metadata(self, **fields: Any) -> Self:
        self._spec["template"]["metadata"] = fields
        return self

    def container(self, **fields: Any) -> Self:
        """Set fields of the training container."""
        self._spec["template"]["spec"]["containers"][0].update(fields)
        return self

    def beside(self, **container: Any) -> Self:
        """Add a container beside the training container."""
        self._spec["template"]["spec"]["containers"].append(container)
        return self

    def raw(self) -> Manifest:
        """The job as the API server holds it."""
        return copy.deepcopy({"metadata": self._metadata, "spec": self._spec})

    def parsed(self) -> tuple[Job, JobSpec]:
        """The job and its spec, which must be readable."""
        job = parse_job(self.raw())
        assert job.spec is not None
        return job, job.spec


def a_job() -> JobBuilder:
    """A job of two workers without a launcher, otherwise as the defaults have it."""
    return JobBuilder()


def a_launched_job() -> JobBuilder:
    """The same with launchers."""
    return JobBuilder().in_place()
