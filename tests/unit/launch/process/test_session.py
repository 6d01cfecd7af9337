"""Which errors of a start are permanent."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest

from tftraining.launch.process.session import StartError, spawn


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [
        (errno.ENOENT, 127, "NotFound"),
        (errno.EACCES, 126, "NotFound"),
        (errno.ENOEXEC, 126, "NotFound"),
        (errno.ENOTDIR, 126, "NotFound"),
        (errno.EAGAIN, 126, ""),
        (errno.ENOMEM, 126, ""),
        (errno.EIO, 126, ""),
        (errno.ESTALE, 126, ""),
    ],
)
def test_only_errors_of_the_command_itself_are_permanent(
    monkeypatch: pytest.MonkeyPatch, number: int, code: int, kind: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(StartError) as raised:
        spawn(["train"], {}, (1, 2))
    assert (raised.value.code, raised.value.kind) == (code, kind)
