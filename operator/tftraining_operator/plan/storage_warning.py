"""The warning that another job writes the directory of this one. Which of two jobs waits is decided in
cluster/storage_admission.py."""

from tftraining_operator.model.conditions import with_condition
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

STORAGE_IN_USE, STORAGE_SHARED = "StorageInUse", "StorageShared"
_OVER = ("StorageAlone", "no other job writes the directory")


def warn_of_shared_storage(context: Context, draft: Draft) -> Draft:
    """The draft with the condition and, once, the event where pods of another job write the same directory, or one
    above or below it."""
    shared, known = context.observed.storage.shared, draft.status.is_true(STORAGE_SHARED)
    if not shared:
        over = with_condition(draft.status, STORAGE_SHARED, "False", _OVER, context.now) if known else draft.status
        return draft.with_fields(status=over)
    status = with_condition(draft.status, STORAGE_SHARED, "True", (STORAGE_IN_USE, shared), context.now)
    draft = draft.with_fields(status=status)
    return draft if known else draft.with_events(Event("Warning", STORAGE_SHARED, shared))
