"""A small disk of a campaign's own, which all nodes share, and which can be full.

It is a file system in memory. The kernel gives a mount to another mount namespace as a copy (open_tree, move_mount),
so that neither the machine's mounts nor those of the nodes have to propagate. In a node it is below /run, which is gone
when the node is switched off: until `share` is called again, the kubelet finds no path to mount, and starts no pod.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.nodes import Nodes
from testbed.shell import LabError, run

MIB = 256
FILLER = "campaign-filler"
PIECE = 1 << 18
LOOK_SECONDS = 0.05
# Numbers of system calls and flags that are the same on all machines: open_tree with a clone, move_mount from a file.
SHARE = (
    "import ctypes, os, sys\n"
    "source, pid, target = sys.argv[1:]\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "def checked(result):\n"
    "    if result < 0:\n        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
    "    return result\n"
    "tree = checked(libc.syscall(428, -100, source.encode(), 1 | os.O_CLOEXEC))\n"
    "checked(libc.setns(os.open(f'/proc/{pid}/ns/mnt', os.O_RDONLY), 0x20000))\n"
    "os.makedirs(target, exist_ok=True)\n"
    "if not os.path.ismount(target):\n"
    "    checked(libc.syscall(429, tree, b'', -100, target.encode(), 4))\n"
)


@dataclass(frozen=True)
class Disk:
    """A small disk: its folder on this machine, and its path in each node."""

    nodes: Nodes
    folder: Path
    path: str

    def make(self) -> None:
        """Mount it. Only root can."""
        if os.geteuid() != 0:
            raise LabError("a campaign needs root, for a small disk of its own")
        self.folder.mkdir(parents=True)
        run(["mount", "-t", "tmpfs", "-o", f"size={MIB}m,mode=1777", "tftraining-campaign", self.folder])
        for node in self.nodes.all():
            self.share(node)

    def share(self, node: str) -> None:
        """Let a node have it, if it has it not."""
        pid = self.nodes.engine.docker("inspect", "--format", "{{.State.Pid}}", node).strip()
        run([sys.executable, "-c", SHARE, self.folder, pid, self.path])

    def remove(self) -> None:
        """Take it away from the nodes, and unmount it."""
        for node in self.nodes.all():
            with suppress(LabError):  # not there since the node was off
                self.nodes.execute(node, "umount", "--lazy", self.path)
        with suppress(LabError):  # not made
            run(["umount", "--lazy", self.folder])
        with suppress(OSError):
            self.folder.rmdir()

    @contextmanager
    def filled(self) -> Iterator[None]:
        """There is no room, whatever is deleted meanwhile."""
        filler, over, full = self.folder / FILLER, threading.Event(), threading.Event()
        thread = threading.Thread(target=_fill, args=(filler, over, full))
        thread.start()
        try:
            full.wait()
            yield
        finally:
            over.set()
            thread.join()
            filler.unlink()


def _fill(filler: Path, over: threading.Event, full: threading.Event) -> None:
    with filler.open("wb", buffering=0) as file:
        while not over.is_set():
            try:
                file.write(bytes(PIECE))
            except OSError:
                full.set()
                over.wait(LOOK_SECONDS)
