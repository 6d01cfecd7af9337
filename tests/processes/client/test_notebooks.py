"""docs/notebooks.md: the cells of a training on this machine, one after the other in a process with an event loop."""

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY

pytestmark = pytest.mark.slow_fault  # two workers import TensorFlow


def cells() -> list[str]:
    """The cells up to the one that needs a cluster."""
    found = [block.text for block in blocks(REPOSITORY / "docs" / "notebooks.md") if block.language == "python"]
    first = next(number for number, text in enumerate(found) if "from_function" in text)
    return found[:first]


async def run(texts: list[str], names: dict[str, Any]) -> None:
    """Run the cells as a kernel does, which awaits a cell that awaits."""
    for number, text in enumerate(texts):
        code = compile(text, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


def test_the_cells_train_beside_an_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    asyncio.run(run(cells(), names))
    printed = capsys.readouterr().out
    assert "worker-1 | " in printed, printed
    history = names["history"]
    assert [point.epoch for point in history.metrics["accuracy"]] == [1, 2, 3], printed
    assert history.metrics["accuracy"][-1].value > history.metrics["accuracy"][0].value
    assert list((tmp_path / "training").iterdir()) == [tmp_path / "training" / names["job"].name]
