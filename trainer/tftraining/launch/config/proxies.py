"""Exempts the connections between a job's programs from the proxy of their environment.

gRPC sends every connection through `http_proxy`, even those to peers of the gang, and a proxy outside the cluster
cannot reach the peers. Pure. It must never remove the user's own exemptions.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping

from tftraining.launch.config.json_text import parse

PROXIES = frozenset({"http_proxy", "https_proxy", "grpc_proxy"})
# Each variable with its fallback, which a program reads if the variable is unset: setting the variable must not hide
# the user's entries in the fallback.
EXEMPTIONS = {"no_proxy": "NO_PROXY", "NO_PROXY": "no_proxy", "no_grpc_proxy": "no_proxy"}


def exempt(environment: Mapping[str, str], worker_address: str | None) -> dict[str, str]:
    """The variables that exempt the peers of TF_CONFIG and the workers at `worker_address` (`%d` is the index) from the
    proxy; empty if no proxy is set."""
    if not any(name.lower() in PROXIES and value for name, value in environment.items()):
        return {}
    if not (own := domains(_hosts(environment.get("TF_CONFIG", ""), worker_address))):
        return {}
    variables = {}
    for name, instead in EXEMPTIONS.items():
        users = environment.get(name, environment.get(instead, environment.get("NO_PROXY", "")))
        entries = [entry for entry in users.split(",") if entry.strip()]
        variables[name] = ",".join([*entries, *(each for each in own if each not in entries)])
    return variables


def domains(hosts: Iterable[str]) -> list[str]:
    """The exemptions that match these hosts: hosts that share a domain are replaced by it, so that thousands fit."""
    parents = {host: _parent(host) for host in hosts}
    sizes = Counter(parents.values())
    shared = {parent for parent, size in sizes.items() if parent and size > 1}
    return list(dict.fromkeys(parent if parent in shared else host for host, parent in parents.items()))


def _parent(host: str) -> str:
    """`.digits.default.svc` of `digits-worker-0.digits.default.svc`; "" for an IP address or a name without a domain.

    gRPC compares the end of the name, so the dot excludes the service `my-digits`; other libraries accept the dot too.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        rest = host.partition(".")[2]
        return f".{rest}" if rest else ""
    return ""


def _hosts(tf_config: str, worker_address: str | None) -> list[str]:
    try:
        cluster = parse(tf_config)["cluster"]
        addresses = [str(address) for role in cluster.values() for address in role]
    except (ValueError, KeyError, TypeError, AttributeError):
        addresses = []  # TensorFlow reports a bad TF_CONFIG
    # Two workers, so that their domain counts as shared.
    addresses += [worker_address.replace("%d", str(index)) for index in (0, 1)] if worker_address else []
    return [host.strip("[]") for address in addresses if (host := address.rpartition(":")[0])]
