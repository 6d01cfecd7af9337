"""The resources of a process and the requests to the API server, read from outside of the measured program."""

import os
import re
from collections import Counter
from pathlib import Path

from benchmarks.api_client import Client

WRITES = ("POST", "PUT", "PATCH", "DELETE")
RESOURCES = ("pods", "services", "secrets", "networkpolicies", "events", "tftrainingjobs")
_LINE = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system together, in seconds (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int, peak: bool = False) -> float:
    """Resident memory of a process in MiB, now or at its peak (proc(5))."""
    found = re.search(rf"^{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
    if found is None:
        raise RuntimeError(f"process {pid} has no memory figures")
    return int(found[1]) / 1024


async def requests_served(client: Client) -> Counter[str]:
    """The requests for jobs and their children so far, as `POST pods` or `PUT tftrainingjobs/status`, without watches.

    The API server counts the requests of all clients together.
    """
    served: Counter[str] = Counter()
    for labels, value in _LINE.findall((await client.request("GET", "/metrics")).decode()):
        name = dict(_LABEL.findall(labels))
        if name["resource"] in RESOURCES and name["verb"] not in ("WATCH", "CONNECT"):
            served[f"{name['verb']} {'/'.join(filter(None, (name['resource'], name['subresource'])))}"] += int(
                float(value)
            )
    return served


def writes(requests: Counter[str]) -> Counter[str]:
    """The requests that write."""
    return Counter({what: count for what, count in requests.items() if what.split()[0] in WRITES and count})
