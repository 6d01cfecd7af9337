"""Runs a module such that it cannot outlive its parent, even if the parent is killed: the launcher under `tftj run`,
and `tftj run` itself under a notebook's kernel.

python -P -m tftraining_client.local.die_with_parent MODULE arguments…
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for a SIGTERM at the parent's death, then run the module in this process."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(143)  # the parent died before prctl
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
