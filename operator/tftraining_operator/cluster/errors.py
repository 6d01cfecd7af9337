"""The exception for a write that the API server refuses: it names the object and the method. Pure."""

from tftraining_api.kube.api import ApiError


class WriteRefused(Exception):
    """The API server refused to create, change or delete `child`, such as `pod/x`; `status` is the HTTP status, `verb`
    the method, `retry_after` the seconds that the server asks to wait."""

    def __init__(self, child: str, status: int, message: str, verb: str = "POST", retry_after: float = 0.0) -> None:
        super().__init__(f"{child}: {message}")
        self.child = child
        self.status = status
        self.message = message
        self.verb = verb
        self.retry_after = retry_after

    @classmethod
    def to(cls, verb: str, child: str, error: ApiError) -> "WriteRefused":
        """The refusal of a write that failed with `error`."""
        return cls(child, error.status, error.message, verb, error.retry_after)

    @property
    def write(self) -> str:
        """The write: `DELETE pod/x`."""
        return f"{self.verb} {self.child}"
