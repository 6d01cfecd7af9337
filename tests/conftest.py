"""What holds for every tier."""

import signal


def pytest_configure() -> None:
    """Let the programs that tests start be interrupted: a shell without job control starts a command in the background
    with SIGINT ignored, and each program inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
