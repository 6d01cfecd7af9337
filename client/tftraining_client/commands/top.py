"""`tftj top`: what each pod of a job uses, beside what it requests and may use; of one job its slow member, too."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tftraining_api.model.quantity import in_bytes, in_milli
from tftraining_api.model.status import SLOW_MEMBER
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Pod
from tftraining_client.commands.output import Cell, Column, hint, note, print_raw, print_table, say

NAMESPACE, JOB = Column("NAMESPACE", rank=1), Column("JOB")
COLUMNS = (
    Column("REPLICA"),
    Column("CPU"),
    Column("REQUEST", rank=3),
    Column("LIMIT", rank=2),
    Column("MEMORY"),
    Column("REQUEST", rank=3),
    Column("LIMIT", rank=1),
    Column("GPUS", rank=4),
)
WIDE = (Column("POD", rank=6), Column("NODE", rank=5))
UNKNOWN = "-"
NEARLY_FULL = 0.9
_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


@dataclass(frozen=True)
class Resources:
    """CPU in millicores, memory in bytes; None for an unknown or unset amount."""

    cpu: int | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Usage:
    """One pod: what all its containers use, request and may use together. A limit counts if all containers have one."""

    pod: Pod
    used: Resources
    requests: Resources
    limits: Resources
    gpus: int


async def show(client: AsyncClient, name: str | None, all_namespaces: bool, output: str | None) -> int:
    """Print the usage of the pods of the job, otherwise of all jobs; the exit code."""
    slow = None if name is None else (await client.get(name)).status.condition(SLOW_MEMBER)
    metrics = {_key(each): each for each in await client.pod_metrics(name, all_namespaces=all_namespaces)}
    pods = await client.pods(name, all_namespaces=all_namespaces)
    wide = output == "wide"
    usages = [usage(pod, metrics.get(_key(pod.raw))) for pod in pods]
    if output in ("json", "yaml"):
        print_raw({"pods": [as_object(each) for each in usages]}, output)
    elif output == "name":
        for each in usages:
            say(f"pod/{each.pod.name}")
    elif usages:
        print_table(*usage_table(usages, wide, jobs=name is None, namespaces=all_namespaces), wide=wide)
        if slow is not None and slow.status == "True":
            note(f"{slow.type}: {slow.message}")
        hint(*((f"status {name} --watch", f"explain {name}") if name else ("top JOB -o wide", "list")))
    else:
        note(f"job {name} has no pods now" if name else "no job has pods now")
        hint(f"status {name}" if name else "list -A")
    return 0


def _key(raw: Mapping[str, Any]) -> tuple[str, str]:
    return str(raw["metadata"].get("namespace", "")), str(raw["metadata"]["name"])


def usage(pod: Pod, metrics: Mapping[str, Any] | None) -> Usage:
    """The usage of a pod; `metrics` is None as long as the metrics server knows nothing of it."""
    containers = (pod.raw.get("spec") or {}).get("containers") or ()
    resources = [each.get("resources") or {} for each in containers]
    limits = [each.get("limits") or {} for each in resources]
    # A limit is a container's request, too, if that is unset.
    requests = [{**limit, **(each.get("requests") or {})} for each, limit in zip(resources, limits, strict=True)]
    used = [each.get("usage") or {} for each in (metrics or {}).get("containers") or ()]
    gpus = sum(in_bytes(value) or 0 for limit in limits for key, value in limit.items() if key.endswith("/gpu"))
    return Usage(pod, _sum(used), _sum(requests), _sum(limits, complete=True), gpus)


def _sum(amounts: Iterable[Mapping[str, Any]], complete: bool = False) -> Resources:
    """The sum of the amounts. `complete`: None if one container has none, because then the pod has no limit."""
    listed = list(amounts)
    cpu = [in_milli(each.get("cpu")) for each in listed]
    memory = [in_bytes(each.get("memory")) for each in listed]
    return Resources(*(_total(each, complete) for each in (cpu, memory)))


def _total(values: Sequence[int | None], complete: bool) -> int | None:
    known = [each for each in values if each is not None]
    return None if not known or (complete and len(known) < len(values)) else sum(known)


def usage_table(
    usages: Sequence[Usage], wide: bool, jobs: bool = False, namespaces: bool = False
) -> tuple[Sequence[Column], Sequence[Sequence[Cell]]]:
    """The columns and the rows of the table, with those of the job and the namespace where there are several; an amount
    near its limit is marked."""
    columns = (*((NAMESPACE,) if namespaces else ()), *((JOB,) if jobs else ()), *COLUMNS, *(WIDE if wide else ()))
    return columns, [[*_owner(each.pod, jobs, namespaces), *_row(each, wide)] for each in usages]


def _owner(pod: Pod, jobs: bool, namespaces: bool) -> list[Cell]:
    return [*([(pod.namespace, "")] if namespaces else []), *([(pod.job, "")] if jobs else [])]


def _row(each: Usage, wide: bool) -> list[Cell]:
    cpu = (each.used.cpu, each.requests.cpu, each.limits.cpu)
    memory = (each.used.memory, each.requests.memory, each.limits.memory)
    cells: list[Cell] = [
        (each.pod.replica, ""),
        *((_cores(value), "") for value in cpu),
        *((_size(value), "") for value in memory),
        (str(each.gpus or UNKNOWN), ""),
    ]
    # Only memory: a container at its CPU limit is slow, one at its memory limit is killed.
    if each.used.memory is not None and each.limits.memory and each.used.memory > NEARLY_FULL * each.limits.memory:
        cells[4] = (cells[4][0], "red")
    return [*cells, *([(each.pod.name, ""), (each.pod.node or UNKNOWN, "")] if wide else [])]


def as_object(each: Usage) -> dict[str, Any]:
    """The usage for a program: CPU in millicores, memory in bytes."""
    parts = {"usage": each.used, "requests": each.requests, "limits": each.limits}
    amounts = {name: {"cpuMilli": part.cpu, "memoryBytes": part.memory} for name, part in parts.items()}
    owner = {"namespace": each.pod.namespace, "job": each.pod.job}
    pod = {"pod": each.pod.name, "replica": each.pod.replica, "node": each.pod.node}
    return {**owner, **pod, **amounts, "gpus": each.gpus}


def _cores(milli: int | None) -> str:
    return UNKNOWN if milli is None else f"{milli}m"


def _size(count: int | None) -> str:
    """The bytes as Kubernetes writes them: 512Mi, 1.5Gi."""
    if count is None:
        return UNKNOWN
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return str(count)
