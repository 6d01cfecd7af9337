"""JSON that is nested too deeply is an error like any other invalid JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tftraining.launch import success_file
from tftraining.launch.config.json_text import parse
from tftraining.launch.rendezvous import protocol
from tftraining.launch.rendezvous.protocol import ProtocolError

DEEP = "[" * 20_000


@pytest.mark.parametrize("text", [DEEP, DEEP + "]" * 20_000, '{"a":' * 20_000])
def test_deeply_nested_json_is_a_value_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(text)
    (tmp_path / success_file.FILE).write_text(text[: success_file.FILE_BYTES])
    assert success_file.read_success(tmp_path, "a") is None
    with pytest.raises(ProtocolError, match="not JSON"):
        protocol._parse(text.encode())
