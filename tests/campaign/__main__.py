"""Random faults, from a seed, on running jobs of every kind on the test cluster, and a verdict on each job.

    make campaign SEED=7 MINUTES=10           or: python -m tests.campaign --seed 7 --minutes 10

Jobs are begun and faults strike for so many minutes; then all faults are healed, the running jobs end, and are judged.
The progress goes to standard error, and the last line of the output is JSON. For a job with complaints the evidence
lies in the folder that this line names. The exit status is 1 if any job has complaints.
"""

import argparse
import dataclasses
import json
import math
import os
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from testbed import cluster as lab
from testbed import release
from testbed.cluster import Cluster
from testbed.kube import Kube
from testbed.shell import Impossible, LabError
from tests.campaign import clocks, jobs, plan
from tests.campaign.around import Around, Wrong
from tests.campaign.disk import Disk
from tests.campaign.faults import Faults, Place, answering, control_plane, heal
from tests.campaign.hits import Hits
from tests.campaign.kinds import KINDS
from tests.campaign.lane import Lane, said
from tests.campaign.oracle import Evidence, Hit, Verdict
from tests.campaign.plan import Strike
from tests.campaign.report import report
from tests.campaign.road import lead, lead_back, road
from tests.support.cluster.training import Training, local_storage
from tests.support.control_plane.rude_proxy import RudeProxy

LANES = 2
OPERATOR = "tftraining-tftraining-operator"
# Faults strike a job that trains; without one they wait.
LOOK_SECONDS = 0.5


class Campaign:
    """One run; the folder keeps the evidence of what went wrong."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, folder: Path, proxy: RudeProxy) -> None:
        assert cluster.nodes is not None
        assert cluster.shared is not None
        self._cluster, self._nodes, self._options, self._folder = cluster, cluster.nodes, options, folder
        self._namespace = f"campaign-{options.seed}-{secrets.token_hex(2)}"
        self._other = f"{self._namespace}-other"
        address = cluster.nodes.gateway()
        operator = (release.NAMESPACE, OPERATOR)
        self._around = Around(cluster.kube, operator, proxy, self._namespace, self._other, address, cluster.images[1])
        self._address, self._port = address, proxy.port
        self._began = time.monotonic()
        self._calm = threading.Event()  # nothing strikes any more
        self._storage = [
            local_storage(self._namespace),
            *(local_storage(self._namespace, f"disk-{n}") for n in range(LANES)),
        ]
        self._directory = cluster.shared / self._storage[0][0]["metadata"]["name"]
        self._disks = {str(number): self._disk(number) for number in range(LANES)}
        directory = self._directory
        self._place = Place(release.NAMESPACE, directory / "operators", directory / "clocks", self._disks)
        self.hits = Hits()
        self.broken: list[Verdict] = []  # of strikers that stopped early, and of faults during which others suffered
        self.lanes = [self._lane(number) for number in range(LANES)]

    def _disk(self, number: int) -> Disk:
        volume, _ = self._storage[number + 1]
        name = volume["metadata"]["name"]
        path = volume["spec"]["local"]["path"] = f"/run/{name}"
        return Disk(self._nodes, Path(tempfile.gettempdir(), f"tftraining-{name}"), path)

    def _lane(self, number: int) -> Lane:
        _, claim = self._storage[number + 1]
        return Lane(
            self._cluster,
            self._namespace,
            self._directory / "jobs",
            self._disks[str(number)].folder,
            claim["metadata"]["name"],
            number,
            plan.jobs(self._options.seed, number),
            self._folder,
            self.tell,
            hits=self.hits,
        )

    def tell(self, line: str) -> None:
        """Print a line of the progress."""
        print(f"[campaign {time.monotonic() - self._began:6.1f} s] {line}", file=sys.stderr, flush=True)

    def run(self) -> None:
        """Run jobs and faults for the minutes of the options, then let the jobs end."""
        self._prepare()
        threads = [threading.Thread(target=lane.run) for lane in self.lanes]
        strikers = [threading.Thread(target=self._strike, args=(each,)) for each in plan.strikers(LANES)]
        try:
            for thread in threads + strikers:
                thread.start()
            self._calm.wait(60 * self._options.minutes)
            self._finish(threads, strikers)
        finally:
            for lane in self.lanes:
                lane.over.set()
                lane.aborted.set()
            self._calm.set()
            for thread in strikers:
                thread.join()
            self._heal()
            for thread in threads:
                thread.join()

    def _finish(self, threads: list[threading.Thread], strikers: list[threading.Thread]) -> None:
        for lane in self.lanes:
            lane.over.set()
        self._calm.set()
        for thread in strikers:
            thread.join()
        self._heal()
        struck = sum(hit.struck for hit in self.hits.all())
        self.tell(f"{struck} faults have struck; the jobs go on undisturbed to their ends")
        for thread in threads:
            thread.join()

    def _heal(self) -> None:
        for each in heal(self._nodes, self._cluster.kube, self._disks.values()):
            self.tell(f"healed: {each}")

    def _prepare(self) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self._namespace, "labels": labels}
        for name in ("jobs", "clocks", "operators"):
            (self._directory / name).mkdir(parents=True)
            (self._directory / name).chmod(0o777)
        for disk in self._disks.values():
            disk.make()
        program = jobs.config_map()
        program["metadata"]["namespace"] = self._namespace
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        storage = [each for pair in self._storage for each in pair]
        library = clocks.build()
        configs = [clocks.config_map(each, library) for each in (self._namespace, release.NAMESPACE)]
        other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._other}}
        self._cluster.kube.apply(namespace, other, *storage, program, *configs)
        folder = f"{lab.SHARED}/{self._directory.name}/operators"
        clocks.give_to_operator(self._cluster.kube, release.NAMESPACE, OPERATOR, folder)
        lead(self._cluster.kube, release.NAMESPACE, OPERATOR, self._address, self._port)

    def _strike(self, striker: str) -> None:
        """Strike until the end of the campaign, beside the other strikers. A striker that stops early is a complaint:
        fewer faults would strike, and nobody would notice."""
        try:
            self._strikes(striker)
        except Exception as error:
            self._complain(f"striker {striker}", f"it has stopped: {error!r}")

    def _strikes(self, striker: str) -> None:
        for strike in plan.strikes(self._options.seed, striker, LANES, self._options.kinds):
            if self._calm.wait(strike.after):
                return
            training = self._training(strike)
            if training is None:
                return
            self._one(strike, training)

    def _training(self, strike: Strike) -> Training | None:
        """The job to hit, which has pods that run or have run; None when the campaign is over."""
        allowed = KINDS[strike.kind].only
        order = [*self.lanes[strike.lane :], *self.lanes[: strike.lane]]
        while not self._calm.is_set():
            for lane in order:
                if training := lane.target(allowed):
                    return training
            self._calm.wait(LOOK_SECONDS)
        return None

    def _one(self, strike: Strike, training: Training) -> None:
        # Noted before it strikes: a job that ends meanwhile is judged with it.
        hit = Hit(strike.number, strike.kind, training.name, "", time.monotonic(), math.inf)
        self.hits.note(hit)
        try:
            target = self._strike_now(strike, training)
        except Wrong as wrong:
            target = "others suffered"
            self._complain(f"{strike.kind} {strike.number}", str(wrong))
        except LabError as error:
            # It may have struck before the error: its costs are allowed for, and it is not counted.
            self.tell(f"{strike.number} {strike.kind}: missed: {str(error).splitlines()[-1][-150:]}")
            target = ""
        ended = time.monotonic()
        self.hits.note(dataclasses.replace(hit, target=target, ended=ended))
        if target:
            self.tell(f"{strike.number} {strike.kind}: {target} ({ended - hit.began:.1f} s)")

    def _strike_now(self, strike: Strike, training: Training) -> str:
        if KINDS[strike.kind].around:
            return self._around.strike(training, strike)
        return Faults(self._cluster, self._nodes, self._place, training, strike).strike_now()

    def _complain(self, name: str, complaint: str) -> None:
        self.broken.append(Verdict(Evidence(name.replace(" ", "-"), "none", 0.0, 0.0), [complaint]))
        self.tell(f"{name}: WRONG: {complaint}")

    def verdicts(self) -> list[Verdict]:
        """On all jobs that have ended, and on what went wrong beside them."""
        return [*self.broken, *(verdict for lane in self.lanes for verdict in lane.verdicts)]

    def tidy(self) -> None:
        """Remove the namespace and the storage, and keep the operator's logs if anything was wrong."""
        answering(self._cluster.kube)
        kube = self._cluster.kube
        if any(verdict.complaints for verdict in self.verdicts()):
            self._folder.mkdir(parents=True, exist_ok=True)
            words = ("--namespace", release.NAMESPACE, f"--selector={release.PODS}")
            (self._folder / "operator.log").write_text(said(kube, "logs", *words, "--prefix", "--tail=-1"))
        try:
            self._remove(kube)
        finally:
            for disk in self._disks.values():
                disk.remove()

    def _remove(self, kube: Kube) -> None:
        kube.kubectl("delete", "namespace", self._namespace, self._other, "--ignore-not-found", "--timeout=180s")
        names = [volume["metadata"]["name"] for volume, _ in self._storage]
        kube.kubectl("delete", "persistentvolume", *names, "--ignore-not-found")
        lead_back(kube, release.NAMESPACE, OPERATOR, self._address)
        clocks.take_from_operator(kube, release.NAMESPACE, OPERATOR)


def _stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run a campaign; 1 if any job has complaints."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the plan (default: a new one)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults (10); the jobs then take their time")
    parser.add_argument("--kinds", nargs="*", default=(), choices=sorted(KINDS), help="only these kinds of faults")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(lab.session())
        except Impossible as error:
            if os.environ.get("CI") == "true":
                raise
            print(f"skipped: no cluster: {error}", file=sys.stderr)
            return 0
        stack.enter_context(release.session(cluster.kube, cluster.images[0], *release.OFF_THE_WORKERS))
        return _run(cluster, options)


def _run(cluster: Cluster, options: argparse.Namespace) -> int:
    folder = Path(tempfile.gettempdir()) / f"tftraining-campaign-{options.seed}"
    kube, nodes = cluster.kube, cluster.nodes
    assert nodes is not None
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tftraining-road-")))
        proxy = stack.enter_context(road(kube, nodes, control_plane(kube), own))
        campaign = Campaign(cluster, options, folder, proxy)
        campaign.tell(f"seed {options.seed}, {options.minutes:g} minutes")
        stack.callback(campaign.tidy)
        campaign.run()
    verdicts = campaign.verdicts()
    print(json.dumps(report(options.seed, options.minutes, campaign.hits.all(), verdicts, str(folder))))
    return int(any(verdict.complaints for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
