"""The handlers that kopf calls, and nothing else: process lifecycle, login, the watch of the custom resource.

kopf's creation and update handlers, timers and daemons are not used: they write annotations and finalizers.
"""

import logging
from typing import Any

import kopf

from tftraining_api.model.names import GROUP, PLURAL, VERSION
from tftraining_operator.cluster.kopf_diff_base import NoDiffBase
from tftraining_operator.runtime import Operator

logger = logging.getLogger(__name__)
registry = kopf.OperatorRegistry()
LOGIN_PAUSE = 1.0  # seconds; kopf's own is a minute


@kopf.on.startup(registry=registry)
async def start(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Configure kopf for one watch, and start the operator with the arguments in `memo`."""
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    # kopf's default pauses grow to 21 s, too long to miss changes of jobs after the API server is back. After the last
    # pause the process ends, and the kubelet restarts it.
    settings.networking.error_backoffs = (0.5, 1, 2, *[5] * 12)
    settings.execution.max_workers = 1
    try:
        memo.operator = await Operator.start(memo.settings, memo.lost_lease, memo.watch_jobs)
    except (RuntimeError, ValueError, OSError) as error:
        raise kopf.PermanentError(str(error)) from None
    except Exception as error:
        # kopf would wait for a minute and try again, without a word: __main__ silences its logs of activities.
        logger.exception("the operator cannot start")
        raise kopf.PermanentError(f"a fault at the start: {error!r}") from None


@kopf.on.cleanup(registry=registry)
async def stop(memo: Any, **_: Any) -> None:
    """Stop the operator; trainings continue."""
    try:
        if "operator" in memo:
            await memo.operator.stop()
    except Exception:
        logger.exception("the operator has not ended cleanly")


@kopf.on.login(registry=registry)
async def login(memo: Any, **kwargs: Any) -> kopf.AiohttpSession | None:
    """Log in by the pod's service account or the kubeconfig. kopf's default would import the synchronous client. A file
    that somebody is writing just now is read again soon: until then no job is watched."""
    try:
        info = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    except Exception as error:
        # Not the text: that of a YAML error quotes the line, which may have the token.
        logger.warning("cannot read the credentials (%s); retrying in %g s", type(error).__name__, LOGIN_PAUSE)
        raise kopf.TemporaryError(type(error).__name__, delay=LOGIN_PAUSE) from None
    operator: Operator = memo.operator
    return operator.kopf_sessions.of(info) if info is not None else None


@kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
async def changed(event: kopf.RawEvent, memo: Any, **_: Any) -> None:
    """Cache a job that was added, changed or deleted, and put its key on the queue."""
    operator: Operator = memo.operator
    operator.jobs.update(event["object"], event["type"] == "DELETED", operator.queue.add)
