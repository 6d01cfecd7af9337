"""A saved model that is no good is found out, and the program that saved it does not call it a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from tftraining.lib.verify_model import VerificationError, verify


def test_a_damaged_model_is_no_proof(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"not a model")
    with pytest.raises(VerificationError, match="a single process cannot use the saved model"):
        verify(str(tmp_path), "digits", None)
    assert "Traceback" in capfd.readouterr().err
