"""Escape sequences of jobs never reach the reader's terminal."""

import json
import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from aiohttp import web

from tests.support.client.hostile_cluster import HOSTILE, hostile_cluster
from tftraining_client.__main__ import main
from tftraining_client.cluster.models import LogLine
from tftraining_client.commands.dashboard.server import _log_line, _send
from tftraining_client.errors import JobFailed
from tftraining_client.visible import uncoloured_log_line, visible, visible_line, visible_log_line, visible_object

SHOWN = "^[]0;owned^G^[[2J^[[8m\\x9b2J\\u202ereversed\\rover"
OBEYED = re.compile("\x1b\\]|\x1b\\[2J|\x07|\x9b|\u202e|\rover")
READERS = (
    ["list", "-o", "wide"],
    ["status", "digits"],
    ["status", "digits", "--watch"],
    ["explain", "digits"],
    ["logs", "digits"],
    ["plot", "digits"],
    ["top", "digits", "-o", "wide"],
    ["tensorboard", "digits"],
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the hostile cluster."""
    with hostile_cluster() as kubeconfig:
        (tmp_path / "config").write_text(kubeconfig)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield


def on_a_terminal(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal gets of a command."""
    ours, theirs = os.openpty()
    read: list[bytes] = []

    def reader() -> None:
        try:
            while data := os.read(ours, 65536):
                read.append(data)
        except OSError:  # the other end is closed
            pass

    thread = threading.Thread(target=reader)
    thread.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", terminal)
        patch.setattr("sys.stderr", terminal)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "1000")
        main(arguments)
    thread.join()
    os.close(ours)
    return b"".join(read).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_terminal_obeys_no_text_of_a_cluster(
    arguments: list[str], cluster: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = on_a_terminal(arguments, monkeypatch)
    assert OBEYED.findall(said) == [] and said
    # Of a log only the colours stay, up to the end of the line.
    assert "over\x1b[31mred\x1b[0m" in said if arguments[0] == "logs" else SHOWN[:9] in said and "\x1b[8m" not in said
    main(arguments)
    piped = "".join(capsys.readouterr())
    if arguments[0] == "logs":  # as `kubectl logs` does
        assert f"line {HOSTILE}" in piped
    else:
        assert OBEYED.findall(piped) == [] and SHOWN[:9] in piped and "\x1b" not in piped


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_an_object_is_exact_and_safe(
    output: str, load: Callable[[str], Any], cluster: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "digits", "-o", output]) == 0
    text = capsys.readouterr().out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    assert load(text)["status"]["message"] == f"the gang trains{HOSTILE}"


def test_texts_are_shown_with_their_control_characters() -> None:
    assert visible(f"a\tb\n{HOSTILE}") == f"a\tb\n{SHOWN}"
    assert visible_line("a\nb\x7f\x00") == "a\\nb^?^@"
    assert visible("Größe 模型 😀") == "Größe 模型 😀"
    assert visible_object({"\x1b": ["\x1b", 1, None]}) == {"^[": ["^[", 1, None]}


def test_a_line_of_a_log_keeps_its_colours_and_nothing_else() -> None:
    assert visible_log_line("\x1b[31mred") == "\x1b[31mred\x1b[0m"
    assert visible_log_line("1%\r50%\r100%\r") == "100%"
    assert visible_log_line("\x1b[2Jgone\x1b[1A") == "^[[2Jgone^[[1A"
    assert uncoloured_log_line("\x1b[31mred\x1b[0m\x1b[2J") == "red^[[2J"
    assert _log_line(LogLine("p", "u", "worker-0", 1, "\x1b[32m1\x08")) == ["worker-0", "1^H"]


def test_an_error_of_the_python_client_is_shown_so_too() -> None:
    error = JobFailed("digits", "Error", f"boom{HOSTILE}", f"line{HOSTILE}")
    assert OBEYED.findall(str(error)) == [] and SHOWN[:9] in "".join(traceback.format_exception(error))
    assert error.log_tail == f"line{HOSTILE}"


async def test_the_dashboard_gets_texts_that_are_shown() -> None:
    sent: list[bytes] = []

    class Response:
        async def write(self, data: bytes) -> None:
            sent.append(data)

    await _send(cast(web.StreamResponse, Response()), {"job": {"message": HOSTILE, "pods": [{"reason": HOSTILE}]}})
    job = json.loads(sent[0].removeprefix(b"data: "))["job"]
    assert job == {"message": SHOWN, "pods": [{"reason": SHOWN}]}
