"""What a person can put right: one line that names the thing and the fix. Never shown with a traceback."""


class UserError(Exception):
    """The message is for a person, and complete."""
