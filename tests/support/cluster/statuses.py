"""Every status that a job has had, and what a sequence of them must never say."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.cluster.training import Manifest, Training, condition

ENDS = ("Succeeded", "Failed")
COUNTS = ("counted", "disruptions", "recreated", "inPlace")
AGAIN_SECONDS = 0.5  # until a watch that has ended is begun again


@contextmanager
def all_statuses(training: Training) -> Iterator[list[Manifest]]:
    """Every status that the job has had since, in their order; complete when the block is over.

    A watch that ends, as when the API server does, is begun again, with the status of that moment.
    """
    found: list[Manifest] = []
    watch = _Watch(training, found)
    watch.start()
    try:
        yield found
    finally:
        watch.stop()


class _Watch(threading.Thread):
    def __init__(self, training: Training, found: list[Manifest]) -> None:
        super().__init__()
        words = ("get", "tftrainingjob", training.name, "--namespace", training.namespace, "--watch", "--output=json")
        self._command, self._found = training.kube.command(*words), found
        self._over, self._lock = threading.Event(), threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while not self._over.is_set():
            with self._lock:
                if self._over.is_set():
                    return
                self._process = subprocess.Popen(
                    self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            with self._process as process:
                _read(process, self._found)
            self._over.wait(AGAIN_SECONDS)

    def stop(self) -> None:
        with self._lock:
            self._over.set()
            if self._process is not None:
                self._process.terminate()
        self.join()


def _read(watch: "subprocess.Popen[str]", found: list[Manifest]) -> None:
    decoder, text = json.JSONDecoder(), ""
    for line in watch.stdout or ():
        text += line
        with suppress(json.JSONDecodeError):
            job, _ = decoder.raw_decode(text)
            found.append(job.get("status", {}))
            text = ""


def count(status: Mapping[str, Any], name: str) -> int:
    """A count of `status.restarts`; 0 if it is not set."""
    return int((status.get("restarts") or {}).get(name, 0))


def contradictions(statuses: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a status contradicts in itself or in those before it: one sentence for each."""
    told, epoch = [], 0
    for before, now in zip([{}, *statuses], statuses, strict=False):
        if before.get("phase") in ENDS and now.get("phase") != before["phase"]:
            told.append(f"an end is not final: {before['phase']} became {now.get('phase')}")
        if condition(dict(now), "Succeeded") == condition(dict(now), "Failed") == "True":
            told.append("a status says both Succeeded and Failed")
        if now.get("attempt", 0) < before.get("attempt", 0):
            told.append(f"the attempt fell from {before['attempt']} to {now.get('attempt', 0)}")
        told += [
            f"restarts.{name} fell from {count(before, name)} to {count(now, name)}"
            for name in COUNTS
            if count(now, name) < count(before, name)
        ]
        there, wanted = (int(number) for number in now.get("ready", "0/0").split("/"))
        if there > wanted:
            told.append(f"more members than wanted are ready: {there}/{wanted}")
        reached = (now.get("progress") or {}).get("epoch", epoch)
        if reached < epoch - 1:
            told.append(f"the job lost more than an epoch: it was in epoch {epoch} and then in epoch {reached}")
        epoch = max(epoch, reached)
    return told
