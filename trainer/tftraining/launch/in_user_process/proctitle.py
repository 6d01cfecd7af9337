"""Reads and changes the content of `ps`, /proc/PID/cmdline and /proc/PID/environ for this process.

For the forks of the warm interpreter, which must be found by the user's own command. Only the view of other processes
changes, not sys.argv or os.environ. It must never fail, and never overwrite the environment that the process began
with, because C code keeps pointers into it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping, Sequence

PR_SET_NAME = 15
PR_GET_NAME = 16
PR_SET_MM = 35
PR_SET_MM_MAP = 14  # needs no capability, unlike setting a single field; since Linux 3.18
NAME_BYTES = 16
TRIES = 8
# The field numbers of /proc/PID/stat, see proc_pid_stat(5), by the field names of struct prctl_mm_map.
STAT = {"start_code": 26, "end_code": 27, "start_data": 45, "end_data": 46, "start_brk": 47, "start_stack": 28}
STAT_ARGUMENTS = {"arg_start": 48, "arg_end": 49, "env_start": 50, "env_end": 51}

_libc = ctypes.CDLL(None)


class _Map(ctypes.Structure):
    """struct prctl_mm_map of linux/prctl.h."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk", "brk")),
        *((name, ctypes.c_uint64) for name in ("start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv")),
        ("auxv_size", ctypes.c_uint32),  # 0: unchanged
        ("exe_fd", ctypes.c_uint32),  # -1: unchanged
    ]


def command_line() -> list[str]:
    """The command line that this process shows now; empty where there is no /proc."""
    with contextlib.suppress(OSError), open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(each) for each in file.read().split(b"\0")[:-1]]
    return []


def name() -> bytes:
    """The name of this thread; in a single-threaded process `ps` and `top` show it as COMMAND."""
    found = ctypes.create_string_buffer(NAME_BYTES)
    with contextlib.suppress(AttributeError):
        _libc.prctl(PR_GET_NAME, found, 0, 0, 0)
    return found.value


def set_name(shown: bytes) -> None:
    """Set the thread's name, cut to 15 bytes; threads that start later inherit it."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(PR_SET_NAME, ctypes.create_string_buffer(shown[: NAME_BYTES - 1], NAME_BYTES), 0, 0, 0)


def show(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Make this process appear as if it had been started with these arguments and this environment."""
    shown_arguments = _block(map(os.fsencode, arguments))
    variables = _block(os.fsencode(f"{key}={value}") for key, value in environment.items())
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        fields = _stat()
        if not _map(fields, shown_arguments, variables):
            _write_over(fields, shown_arguments)


def _block(strings: object) -> bytes:
    return b"".join(each + b"\0" for each in strings)  # type: ignore[attr-defined]


def _stat() -> dict[str, int]:
    with open("/proc/self/stat", "rb") as file:
        found = file.read().rpartition(b")")[2].split()
    return {field: int(found[number - 3]) for field, number in {**STAT, **STAT_ARGUMENTS}.items()}


def _map(fields: Mapping[str, int], arguments: bytes, environment: bytes) -> bool:
    """Point the kernel to copies of both; False where it cannot (no CONFIG_CHECKPOINT_RESTORE, no Linux)."""
    first, second = _copy(arguments), _copy(environment)
    addresses = {"arg_start": first, "arg_end": first + len(arguments)}
    addresses |= {"env_start": second, "env_end": second + len(environment)}
    new_map = _Map(**{**fields, **addresses}, exe_fd=0xFFFFFFFF)
    for _ in range(TRIES):
        # The call also sets the end of the heap, which an allocation before the call may move.
        new_map.brk = _end_of_heap()
        done = _libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(new_map), ctypes.c_ulong(ctypes.sizeof(new_map)), 0)
        if done or new_map.brk == _end_of_heap():
            return not done
    return True


def _copy(data: bytes) -> int:
    """The address of a copy that is never freed: it must outlive the interpreter."""
    allocate = _libc.malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    address: int | None = allocate(len(data) + 1)
    if not address:
        raise OSError("no memory")
    ctypes.memmove(address, data, len(data) + 1)
    return address


def _end_of_heap() -> int:
    ask = _libc.sbrk
    ask.restype, ask.argtypes = ctypes.c_size_t, [ctypes.c_ssize_t]
    return int(ask(0))


def _write_over(fields: Mapping[str, int], arguments: bytes) -> None:
    """Overwrite the original arguments with as many bytes of the new ones as fit. The last byte must stay a NUL."""
    available = fields["arg_end"] - fields["arg_start"] - 1
    if available > 0:
        ctypes.memmove(fields["arg_start"], arguments[:available].ljust(available + 1, b"\0"), available + 1)
