"""The API server's refusal of a write, as an error that names what it was about."""

from tftraining_operator.cluster.api import ApiError


class Refused(Exception):
    """The API server refused to create, change or delete `child`, such as `pod/x`; `status` is the HTTP status, `verb`
    the method."""

    def __init__(self, child: str, status: int, message: str, verb: str = "POST") -> None:
        super().__init__(f"{child}: {message}")
        self.child = child
        self.status = status
        self.message = message
        self.verb = verb

    @classmethod
    def to(cls, verb: str, child: str, error: ApiError) -> "Refused":
        """The refusal of a change that the error tells of."""
        return cls(child, error.status, error.message, verb)

    @property
    def write(self) -> str:
        """The write: `DELETE pod/x`."""
        return f"{self.verb} {self.child}"
