"""Errors that the user can fix: one line that names the problem and the fix, shown without a traceback."""


class UserError(Exception):
    """An error that the user can fix; its message is shown as it is."""
