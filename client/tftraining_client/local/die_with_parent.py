"""Runs the launcher such that the launcher cannot outlive `tftj run`, even if `tftj run` is killed.

python -P -m tftraining_client.local.die_with_parent -- command args…
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for a SIGTERM at the parent's death, then run the launcher in this process."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(143)  # the parent died before prctl
    runpy.run_module("tftraining.launch", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
