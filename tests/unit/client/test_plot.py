"""`tftj plot`: the curves at 40, 80 and 200 columns, as HTML and PNG, and what it says when it cannot draw any."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.history import FILE, Mark, Series
from tftraining_client import History, UserError
from tftraining_client.commands.curves import curves_of, nice_ticks, number
from tftraining_client.commands.plot import is_path, plot_directory, read_history
from tftraining_client.commands.plot_html import html_page
from tftraining_client.commands.plot_png import png_image
from tftraining_client.commands.plot_terminal import plot_lines

SECONDS = 1_772_366_400.0  # 2026-03-01T12:00:00Z

PLOT_40 = """\
loss: 0.088388 at 700
    ┌────────┬───────────────┬─────────┐
0.71┤⢠       ┊               ┊         │
    │ ⠑⢄     ┊               ┊         │
0.55┤   ⠑⢄   ┊               ┊         │
    │     ⠑⠤⡀┊               ┊         │
    │       ⠈⠒⢄              ┊         │
0.40┤        ┊ ⠑⠢⣀           ┊         │
    │        ┊    ⠉⠒⠤⡀       ┊         │
0.24┤        ┊       ⠈⠑⠒⠤⣀   ┊         │
    │        ┊            ⠉⠑⠒⠢⠤⣀⣀      │
0.09┤        ┊               ┊   ⠉⠉⠑⠒⠒⠂│
    └┬─────┬─┴──┬─────┬────┬─┴──┬─────┬┘
     100  200  300   400  500  600  700
                   step

┊ restarts: 2
  2026-03-01 12:04  step 251  Killed
  2026-03-01 12:08  step 530  PodDeleted
"""
PLOT_80 = """\
loss: 0.088388 at 700, lowest 0.088388 at 700, highest 0.70711 at 100
    ┌──────────────────┬─────────────────────────────────┬─────────────────────┐
0.71┤⠠⢄⡀               ┊                                 ┊                     │
    │  ⠈⠑⠢⢄⡀           ┊                                 ┊                     │
0.55┤      ⠈⠑⠢⢄⡀       ┊                                 ┊                     │
    │          ⠈⠑⠢⠤⣀⡀  ┊                                 ┊                     │
    │               ⠈⠉⠒⠢⢄⣀                               ┊                     │
0.40┤                  ┊  ⠉⠑⠒⠤⢄⣀⡀                        ┊                     │
    │                  ┊        ⠈⠉⠉⠒⠒⠤⠤⣀⣀                ┊                     │
0.24┤                  ┊                 ⠉⠉⠑⠒⠒⠤⠤⠤⣀⣀⣀     ┊                     │
    │                  ┊                            ⠉⠉⠉⠒⠒⠒⠒⠤⠤⠤⠤⣀⣀⣀⣀            │
0.09┤                  ┊                                 ┊         ⠉⠉⠉⠉⠉⠑⠒⠒⠒⠒⠒⠂│
    └┬───────────┬─────┴─────┬────────────┬───────────┬──┴────────┬───────────┬┘
     100        200         300          400         500         600        700
                                       step

┊ restarts: 2
  2026-03-01 12:04  step 251  Killed
  2026-03-01 12:08  step 530  PodDeleted
not shown (--metric NAME): val_loss
"""


def columns() -> dict[str, Any]:
    """Seven epochs of 100 steps, a validation in each second one, and two restarts."""
    series = Series()
    for step in range(100, 701, 100):
        metrics = {"loss": 2 ** (-step / 200), "val_loss": 1.5 ** (-step / 200) if step % 200 == 0 else None}
        series.record(step, step // 100, SECONDS + step, metrics)
    series.mark(Mark(SECONDS + 251.5, 251, "Killed"))
    series.mark(Mark(SECONDS + 530, 530, "PodDeleted"))
    return series.to_json()


HISTORY = History.of(columns())


def shown(width: int, *wanted: str, history: History = HISTORY, limit: int | None = None) -> str:
    return "\n".join(plot_lines(curves_of("digits", history, wanted, limit), width)) + "\n"


def test_at_40_columns() -> None:
    assert shown(40, "loss") == PLOT_40


def test_at_80_columns() -> None:
    assert shown(80, limit=1) == PLOT_80


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = History.of({**columns(), "metrics": {"val_loss_of_the_auxiliary_head" * 5: [1, 2, 3, 4, 5, 6, 1e-9]}})
    for text in (shown(width), shown(width, history=long)):
        widths = {len(line) for line in text.splitlines()}
        assert width - 2 <= max(widths) <= width
        assert "\x1b" not in text


@pytest.mark.parametrize(
    "values", [[0.5] * 7, [0.0] * 7, [1e300, -1e300, 0, 0, 0, 0, 0], [1e-300] * 6 + [2e-300], [None] * 6 + [3.0]]
)
def test_every_curve_can_be_drawn(values: list[float | None]) -> None:
    curves = curves_of("digits", History.of({**columns(), "metrics": {"x": values}}))
    assert "x: " in "\n".join(plot_lines(curves, 80))
    page = html_page(curves)
    assert not re.search(r"\b(?:nan|inf)\b", page)


def test_without_steps_the_axis_has_the_epochs_and_without_those_the_seconds() -> None:
    by_epoch = curves_of("digits", History.of({**columns(), "steps": [None] * 7}))
    assert (by_epoch.axis, by_epoch.curves[0].xs) == ("epoch", (1, 2, 3, 4, 5, 6, 7))
    assert [restart.x for restart in by_epoch.restarts] == [2, 5]
    by_time = curves_of("digits", History.of({**columns(), "steps": [None] * 7, "epochs": [None] * 7}))
    assert (by_time.axis, by_time.curves[0].xs[-1]) == ("seconds", 600)
    assert [restart.x for restart in by_time.restarts] == [151.5, 430]


def test_the_page_is_whole_in_itself() -> None:
    evil = History.of({**columns(), "metrics": {"<script>alert(1)</script>\x1b[31m": [1, 2, 3, 4, 5, 6, 7]}})
    page = html_page(curves_of("digits", evil))
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(tags)
    assert (tags.count("svg"), tags.count("polyline"), page.count('class="restart"')) == (1, 1, 2)
    assert not re.search(r"(?:src|href)=|url\(|@import|http", page)
    assert "prefers-color-scheme: dark" in page and "\x1b" not in page


def test_the_image_is_a_png_of_all_metrics() -> None:
    assert png_image(curves_of("$digits_$", HISTORY)).startswith(b"\x89PNG")


def test_the_image_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="needs matplotlib: pip install matplotlib"):
        png_image(curves_of("digits", HISTORY))


def test_the_directory_of_a_job_on_this_machine(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / FILE).write_text(json.dumps({"version": 1, "uid": "x", "after": 0, **columns()}))
    assert plot_directory(str(tmp_path), (), None, None) == 0
    assert capsysbinary.readouterr().out.decode() == shown(80)
    assert plot_directory(str(tmp_path / FILE), ("loss",), "html", str(tmp_path / "a.html")) == 0
    assert f"<title>{tmp_path.name}: history</title>" in (tmp_path / "a.html").read_text()
    assert plot_directory(str(tmp_path), (), "json", None) == 0
    assert json.loads(capsysbinary.readouterr().out)["metrics"]["loss"][0]["step"] == 100
    with pytest.raises(UserError, match="cannot write "):
        plot_directory(str(tmp_path), (), "png", str(tmp_path / "no" / "a.png"))


@pytest.mark.parametrize("content", ["{", "[]", "5", "[" * 100_000])
def test_a_file_that_is_no_history_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UserError, match="is no history of a job"):
        read_history(tmp_path)
    with pytest.raises(UserError, match="cannot read the history "):
        read_history(tmp_path / "none")


def test_a_job_without_metrics_and_an_unknown_metric_are_told() -> None:
    with pytest.raises(UserError, match="digits has no history: its program has reported no metrics yet"):
        curves_of("digits", History())
    with pytest.raises(UserError, match="digits has no metric 'mse'; there are: loss, val_loss"):
        curves_of("digits", HISTORY, ["mse"])


def test_paths_differ_from_names_of_jobs() -> None:
    assert all(map(is_path, ("./training", "training/digits", ".", "C:\\training")))
    assert not is_path("digits-2")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (100, 700, [100, 200, 300, 400, 500, 600, 700]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert [number(tick) for tick in nice_ticks(low, high)] == [number(tick) for tick in ticks]
