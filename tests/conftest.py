"""What holds for every tier."""

import os
import signal

from hypothesis import settings

# A case may take longer than Hypothesis' 200 ms: all tiers share the machine's two processors.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


# With it a program keeps no output that it could not write, and the tests would hide what happens at people's.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_configure() -> None:
    """Let the programs that tests start be interrupted: a shell without job control starts a command in the background
    with SIGINT ignored, and each program inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
