"""Network policies that are enforced: kube-router's firewall on each node, beside the lab's own pod network.

`with enforced(nodes):` starts the daemon on all nodes, and removes it and its rules behind the block. It must never run
on official nodes, whose own plugin enforces policies.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from . import binaries
from .nodes import Nodes
from .shell import step

PROGRAM, CREDENTIALS, UNIT = "/usr/local/bin/kube-router", "/run/kube-router.conf", "kube-router"
ADMIN = "/etc/kubernetes/admin.conf"
# Only its firewall: kube-proxy and the lab's routes do the rest. A policy holds within seconds after it is written.
FLAGS = (
    "--run-router=false --run-service-proxy=false --run-loadbalancer=false --run-firewall=true --health-port=0"
    f" --metrics-port=0 --iptables-sync-period=10s --kubeconfig={CREDENTIALS}"
)
# The pods of a node are ports of one bridge: their packets pass the firewall only with this setting.
BRIDGED = "sysctl -q -w net.bridge.bridge-nf-call-iptables=1"
# Its chains and sets; those of kube-proxy, whose names also begin with KUBE-, stay.
OWN_CHAINS, OWN_SETS = "KUBE-(ROUTER|NWPLCY|POD-FW)", "^(inet6:)?KUBE-(SRC|DST|ROUTER|NWPLCY|POD|IPBLK|INGRESS|EGRESS)"
REMOVE = f"""
systemctl stop {UNIT} 2>/dev/null || true
iptables-save | grep -vE '{OWN_CHAINS}' | iptables-restore
for each in $(ipset list -n | grep -E '{OWN_SETS}'); do ipset destroy "$each" || true; done
rm -f {PROGRAM} {CREDENTIALS}
"""


@contextmanager
def enforced(nodes: Nodes) -> Iterator[None]:
    """Enforce network policies on all nodes while the block lasts."""
    program = binaries.ensure(UNIT) / UNIT
    names = nodes.all()
    [control_plane, *_] = [name for name in names if name.endswith("control-plane")]
    credentials = nodes.execute(control_plane, "cat", ADMIN)

    def start(node: str) -> None:
        nodes.engine.docker("cp", program.resolve(), f"{node}:{PROGRAM}")
        nodes.engine.execute(node, "sh", "-c", f"umask 077; cat > {CREDENTIALS}", stdin=credentials)
        run = f"systemd-run --quiet --collect --unit={UNIT} {PROGRAM} {FLAGS} --hostname-override={node}"
        nodes.execute(node, "sh", "-eu", "-c", f"{BRIDGED}; {run}")

    with ThreadPoolExecutor() as pool:
        try:
            with step("starting kube-router's firewall on the nodes"):
                list(pool.map(start, names))
            yield
        finally:
            list(pool.map(lambda node: nodes.execute(node, "sh", "-c", REMOVE), names))
