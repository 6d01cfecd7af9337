"""Run the operator: `python -m tftraining_operator`. Settings come from the environment (see the chart)."""

import tftraining_operator.cluster.lean_kubernetes  # noqa: F401, I001  # before kopf

import asyncio
import gc
import logging
import resource
import sys
import warnings
from asyncio import sslproto

import aiohttp
import kopf

from tftraining_operator.cluster import logs
from tftraining_operator.cluster.kopf_session import NO_NAMESPACE, WatchedNamespaces
from tftraining_operator.handlers import registry
from tftraining_operator.runtime import read_settings

MOST_FILES = 65536
# Bytes of the buffer that asyncio keeps for each TLS connection, of which a large job takes 64; the default is 2**18.
TLS_BUFFER = 2**16
# The API server stores objects that are nested 10,000 deep, and Python's JSON stops at 1,000: one such job would end
# the watch of all jobs. To decode one level takes at most 0.4 KiB of the stack, which has 8 MiB.
MOST_NESTED = 12_000


def main() -> int:
    """Run until SIGTERM. Returns 1 if the operator cannot start or continue; the kubelet then restarts it."""
    try:
        settings = read_settings()
    except ValueError as error:
        print(f"tftraining-operator: {error}", file=sys.stderr)
        return 1
    logs.configure(settings.log_level, settings.log_format)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.root.level))
    # kopf logs a failed start with a traceback and warnings of un-awaited coroutines; the line printed below suffices.
    logging.getLogger("kopf.activities").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
    _open_files()
    sys.setrecursionlimit(MOST_NESTED)
    sslproto.SSLProtocol.max_size = TLS_BUFFER
    # Imported modules are never freed, and each full garbage collection would spend 50 ms on them.
    gc.freeze()
    # With Python's default of 700 objects, a fifth of the CPU of creating 3,000 jobs goes into garbage collections.
    gc.set_threshold(7_000)
    end, watched = _End(), WatchedNamespaces()
    try:
        kopf.run(
            registry=registry,
            memo=kopf.Memo(settings=settings, lost_lease=end.begin, watch_jobs=watched.add),
            stop_flag=end.flag,
            standalone=True,
            # Without an identity kopf looks up the user's name, and a container's UID has none.
            identity=settings.identity,  # type: ignore[arg-type]
            clusterwide=not settings.namespaces,
            namespaces=(NO_NAMESPACE,) if settings.namespaces else (),
            insights=watched.insights,
        )
    except Exception as error:
        if (why := _outside_cause(error)) is None:
            raise
        _say(why)
        return 1
    return 1 if end.flag.is_set() else 0


class _End:
    """The end of a process that leads no longer: the kubelet starts another one, which stands by."""

    def __init__(self) -> None:
        self.flag = asyncio.Event()

    def begin(self, why: str) -> None:
        """Say why, and end."""
        _say(why)
        self.flag.set()


def _say(why: str) -> None:
    """Say why the process ends: one line, in the format of the log if that is JSON."""
    if any(isinstance(each.formatter, logs.JsonFormatter) for each in logging.root.handlers):
        logging.getLogger("tftraining_operator").critical("%s", why)
    else:
        print(f"tftraining-operator: {why}", file=sys.stderr)


def _open_files() -> None:
    """Raise the soft limit of open files towards the hard limit: each job needs a connection to its launcher, and many
    containers start with 1024, for programs that call select."""
    now, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if allowed == resource.RLIM_INFINITY else min(allowed, MOST_FILES)
    if resource.RLIM_INFINITY != now < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, allowed))


def _outside_cause(error: Exception) -> str | None:
    """The message for an error from outside this program, which needs no traceback; None for any other error."""
    if isinstance(error.__cause__, kopf.PermanentError):
        return str(error.__cause__)
    # kopf's own errors about the API are not part of its public names.
    if isinstance(error, (aiohttp.ClientError, TimeoutError)) or type(error).__module__.startswith("kopf."):
        return f"the watch of the jobs failed: {error or type(error).__name__}"
    return None


if __name__ == "__main__":
    sys.exit(main())
