"""The limit of open files of this launcher: the chief's launcher needs one file for each member's connection.

The soft limit of a container is often 1,024, for programs that use select(2) or close all descriptors one by one. So
the user's program must never see the raised limit: a started process gets back the previous one.
"""

from __future__ import annotations

import contextlib
import resource

OTHER_FILES = 256  # HTTP clients, strangers at the rendezvous, the program's output, and Python's own files

_original_limits: tuple[int, int] | None = None  # this process's limits before they were raised


def raise_limit() -> None:
    """Raise the soft limit to the hard one, which needs no privilege."""
    global _original_limits  # noqa: PLW0603  # the limit is per process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    with contextlib.suppress(OSError, ValueError):  # a container's security policy may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _original_limits = (soft, hard)


def restore_limit() -> None:
    """Restore the limit from before `raise_limit`; for a child process before its exec."""
    if _original_limits is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, _original_limits)


def describe_shortage(members: int) -> str:
    """Why the limit is too low for a gang of so many members; "" if it is high enough."""
    limit, need = resource.getrlimit(resource.RLIMIT_NOFILE)[0], members + OTHER_FILES
    if limit == resource.RLIM_INFINITY or limit >= need:
        return ""
    return (
        f"the limit of open files is {limit}, and the rendezvous of {members} members needs {need}: not all members "
        "can connect; raise the hard limit (RLIMIT_NOFILE) in the container runtime"
    )
