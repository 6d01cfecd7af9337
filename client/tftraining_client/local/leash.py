"""Runs the launcher such that it cannot outlive `tftj run`: when that dies, by whatever cause, the launcher has to go.

python -P -m tftraining_client.local.leash -- command args…
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for a SIGTERM at the parent's death, then become the launcher."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(143)  # it died just now
    runpy.run_module("tftraining.launch", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
