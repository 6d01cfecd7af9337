"""The condition SlowMember and its event, for a member that the launchers have found to be slow.

The job goes on: the operator only names the member, its node and the cause. The condition is False once the launchers
have measured that no member is slow; a new launcher of the chief knows nothing yet. A job without such a member does
not have it.
"""

from tftraining.launch.failure_and_restart_messages import waits_for_slow
from tftraining_api.model.status import SLOW_MEMBER
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import ReportedSlowMember
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

OVER = ("Training", "no member is slow")


def warn_of_slow_member(context: Context, draft: Draft) -> Draft:
    """The draft with the condition, and its event where a member begins to be slow."""
    found, known = draft.report and draft.report.slow_member, draft.status.is_true(SLOW_MEMBER)
    if not found:
        return draft
    if (message := _words(draft, found)) is None:
        if not known:
            return draft
        return draft.with_fields(status=with_condition(draft.status, SLOW_MEMBER, "False", OVER, context.now))
    why = (SLOW_MEMBER, message)
    draft = draft.with_fields(status=with_condition(draft.status, SLOW_MEMBER, "True", why, context.now))
    return draft if known else draft.with_events(Event("Warning", SLOW_MEMBER, message))


def _words(draft: Draft, found: ReportedSlowMember) -> str | None:
    """What the member does, in words; None if it is none of the gang."""
    pod = next((pod for each, pod in draft.gang.members.items() if str(each) == found.member), None)
    return None if pod is None else waits_for_slow(found.member, pod.node, found.factor, found.cause)
