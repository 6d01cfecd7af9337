"""A whole Kubernetes but for its kubelets: the real API server, controllers and scheduler, and kwok for the nodes.

What kwok does not show: no container runs, so nothing takes time, nothing is written to a disk, no exit code, signal or
termination message is anybody's own; no volume is mounted, no image pulled, no probe asked, no admission by a kubelet,
no downward API; a pod on a silent node "runs on" as an object only. That is for the cluster tier.
"""

from ipaddress import ip_network
from pathlib import Path
from typing import ClassVar, Self

from testbed.binaries import GANG_APIS, GANG_GATES, NATIVE_GANGS
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import own_network
from tests.support.control_plane.installation import install_crd

STAGES = Path(__file__).with_name("stages.yaml")
GATES = tuple(f"--feature-gates={name}=true" for name in GANG_GATES)
CONTROLLERS = (
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    *(("podgroup-protection-controller",) if NATIVE_GANGS else ()),
    "taint-eviction-controller",
)
# A kubelet renews its lease four times in its duration. Kubernetes' own grace is 50 s.
LEASE_SECONDS, GRACE_SECONDS = 4, 5


class Simulation(ControlPlane):
    """A control plane that knows TFTrainingJob and whose pods are placed and run; `with Simulation() as plane:`.

    A subclass may have nodes that are missed later, more addresses, and more requests a second.
    """

    lease_seconds: ClassVar[int] = LEASE_SECONDS
    grace_seconds: ClassVar[int] = GRACE_SECONDS
    network_bits: ClassVar[int] = 24
    client_flags: ClassVar[tuple[str, ...]] = ()
    flags: ClassVar[tuple[str, ...]] = (
        *GATES,
        *(f"--runtime-config={api}=true" for api in GANG_APIS),
    )

    def __enter__(self) -> Self:
        """Start everything, with the custom resource; nodes are made by the tests."""
        super().__enter__()
        try:
            self._start_rest()
        except BaseException:
            self._close()
            raise
        return self

    def _start_rest(self) -> None:
        # First: the garbage collector looks for new kinds every 30 s only.
        install_crd(self)
        grace = f"--node-monitor-grace-period={self.grace_seconds}s"
        self.start_controllers(grace, "--node-monitor-period=1s", *GATES, *self.client_flags, controllers=CONTROLLERS)
        self.start("kube-scheduler", "--leader-elect=false", "--secure-port=0", *GATES, *self.client_flags)
        managed = "--manage-nodes-with-label-selector=kwok=yes"
        lease = f"--node-lease-duration-seconds={self.lease_seconds}"
        # Pods get addresses of this machine, so that a test can answer there in a launcher's place.
        network = ip_network(f"{own_network()}.0/{self.network_bits}", strict=False)
        self.start("kwok", f"--config={STAGES}", managed, lease, f"--cidr={network}")
