"""The pod network of nodes built here: a bridge in each node, routes between the nodes, and a cluster DNS without loop.

It stands in for the plugin that the official node image brings; it does not enforce network policies.
It must never be used on official nodes.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from . import packages
from .docker import Engine
from .kube import Kube
from .shell import run

CONFLIST = "/etc/cni/net.d/10-bridge.conflist"


@dataclass(frozen=True)
class Member:
    """A node with its address and its pods' range of addresses."""

    name: str
    address: str
    pods: str

    def conflist(self) -> str:
        """Return the CNI configuration of this node, as JSON."""
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipMasq": False,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        return json.dumps({"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge, portmap]})


def install(engine: Engine, kube: Kube) -> None:
    """Give every node its part of the pod network; to be repeated after a node was started again."""
    members = [_member(node) for node in kube.get("nodes")["items"]]

    def configure(member: Member) -> None:
        routes = [f"ip route replace {other.pods} via {other.address}" for other in members if other != member]
        script = f"set -eu; mkdir -p /etc/cni/net.d; cat > {CONFLIST}; {'; '.join(routes)}"
        engine.execute(member.name, "bash", "-c", script, stdin=member.conflist())

    with ThreadPoolExecutor() as pool:
        list(pool.map(configure, members))


@contextmanager
def routes_to_pods(kube: Kube) -> Iterator[None]:
    """Let this machine answer the pods while the block lasts: their packets leave a node with the pod's own address."""
    packages.need("ip")
    members = [_member(node) for node in kube.get("nodes")["items"]]
    with ExitStack() as stack:
        for member in members:
            route = [member.pods, "via", member.address]
            run(["ip", "route", "replace", *route])  # a campaign that was killed has left its own
            stack.callback(run, ["ip", "route", "del", *route])
        yield


def _member(node: dict[str, Any]) -> Member:
    addresses = {entry["type"]: entry["address"] for entry in node["status"]["addresses"]}
    return Member(node["metadata"]["name"], addresses["InternalIP"], node["spec"]["podCIDR"])


def mend_dns(kube: Kube) -> None:
    """Take out of CoreDNS what cannot work here: pods cannot reach Docker's resolver, and it looks like a loop."""
    config = kube.get("configmap", "coredns", "--namespace", "kube-system")
    config["data"]["Corefile"] = without(config["data"]["Corefile"], "loop", "forward")
    kube.kubectl("replace", "-f", "-", stdin=json.dumps(config))


def without(corefile: str, *plugins: str) -> str:
    """Return the Corefile without these plugins and their blocks."""
    kept, depth = [], 0
    for line in corefile.splitlines():
        words = line.split()
        if depth == 0 and words and words[0] in plugins:
            depth = line.count("{")
        elif depth:
            depth += line.count("{") - line.count("}")
        else:
            kept.append(line)
    return "\n".join(kept) + "\n"
