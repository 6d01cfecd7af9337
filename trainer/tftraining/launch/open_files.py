"""How many files this launcher may have open: the chief's needs one for the connection of each member.

The soft limit of a container is often 1,024, for the sake of programs that use select(2) or close all descriptors one
by one. So the user's program must never see the raised limit: a process that is started gets back the one from before.
"""

from __future__ import annotations

import contextlib
import resource

OTHERS = 256  # the pages' clients, strangers at the rendezvous, the program's output, and what Python itself opens

_before: tuple[int, int] | None = None  # of this process


def raise_limit() -> None:
    """Raise the soft limit as far as this process may without any right: to the hard one."""
    global _before  # noqa: PLW0603  # the limit is one of the process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    with contextlib.suppress(OSError, ValueError):  # a container's own rules may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _before = (soft, hard)


def restore_limit() -> None:
    """In a process that is to become another program: the limit that it would have had without a launcher."""
    if _before is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, _before)


def shortage(members: int) -> str:
    """What is wrong with the limit for a gang of so many members; "" if it is high enough."""
    limit, need = resource.getrlimit(resource.RLIMIT_NOFILE)[0], members + OTHERS
    if limit == resource.RLIM_INFINITY or limit >= need:
        return ""
    return (
        f"only {limit} files may be open here, and the rendezvous of {members} members needs {need}: not all members "
        "can join. Raise the hard limit of open files (RLIMIT_NOFILE) in the container's runtime"
    )
