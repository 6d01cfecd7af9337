"""The API server's refusal to create a child, as an error that names the child."""


class Refused(Exception):
    """The API server refused to create a child, such as `pod/x`; `status` is the HTTP status."""

    def __init__(self, child: str, status: int, message: str) -> None:
        super().__init__(f"{child}: {message}")
        self.child = child
        self.status = status
        self.message = message
