"""A place to start programs in, with stand-ins for TensorFlow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.launchers.harness import Lab


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path)
    monkeypatch.chdir(lab.work)
    yield lab
    await lab.close()
