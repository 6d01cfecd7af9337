"""Resumed trainings are the undisturbed ones, or it was said. The cells are drawn from a seed; `python -m tests.exact`
draws more of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.exact.__main__ import Runs
from tests.exact.cells import DRAIN, POD, Cell, Kill
from tests.exact.direct import Direct, Interpreter
from tests.exact.draw import cells
from tests.exact.launched import Launched

SEED, CELLS = 34, 52
FIRST = [
    Cell(
        input="shuffled",
        callbacks=("early-stopping", "csv"),
        validation="each",
        kills=(Kill(0, 3), Kill(1, 12), Kill(2, at="validation")),
    ),
    Cell(
        lib="keras", input="shuffled", model="dropout", callbacks=("csv", "lr", "own"), kills=(Kill(1, 18), Kill(2, 9))
    ),
]
GANGS = [
    Cell(workers=2, model="batchnorm", kills=(Kill(1, 12, member=1), Kill(2, 12))),
    Cell(
        workers=2, input="shuffled", callbacks=("csv", "reduce-lr"), validation="each", kills=(Kill(1, at="epoch_end"),)
    ),
    Cell(workers=3, input="finite-uneven", callbacks=("lr",), kills=(Kill(2, 3, member=2),)),
    Cell(workers=2, input="file-shards", model="metric", shape="two-fits", kills=(Kill(1, 12, part=1),)),
    Cell(workers=2, input="repeat-shuffled", loop="custom", kills=(Kill(1, 3), Kill(2, 19, member=1))),
    Cell(workers=1, scaled_to=2, input="shuffled", kills=(Kill(1, 7),)),
    Cell(workers=2, scaled_to=1, input="finite", callbacks=("lr", "csv"), kills=(Kill(1, 7),)),
    Cell(workers=2, input="random-map", model="train-step", backup=False, kills=(Kill(0, 3), Kill(2, 12))),
]
GANGS_3 = [  # of Keras 3
    Cell(
        lib="keras",
        workers=2,
        input="shuffled",
        model="batchnorm",
        backup=False,
        epochs=3,
        kills=(Kill(1, 18, member=1), Kill(2, 12)),
    ),
    Cell(
        lib="keras",
        workers=2,
        callbacks=("early-stopping", "reduce-lr", "checkpoint", "csv", "tensorboard"),
        validation="each",
        epochs=3,
        kills=(Kill(1, 12), Kill(1, at="validation", member=1)),
    ),
    Cell(
        lib="keras",
        workers=2,
        callbacks=("csv-append",),
        epochs=3,
        kills=(Kill(0, 12, member=1), Kill(2, at="epoch_begin")),
    ),
    Cell(lib="keras", workers=2, callbacks=("checkpoint",), epochs=3, kills=(Kill(0, at="save"), Kill(1, at="save"))),
    Cell(lib="keras", workers=2, epochs=3, kills=(Kill(0, at="save"), Kill(1, at="save"))),
    Cell(lib="keras", workers=2, scaled_to=3, input="shuffled", callbacks=("csv",), epochs=3, kills=(Kill(1, 7),)),
    Cell(lib="keras", workers=2, scaled_to=1, input="cache-behind", kills=(Kill(2, 6),)),
]
NEW_PODS = [
    Cell(workers=2, shape="two-fits", backup=False, kills=(Kill(3, 4, member=1, what=POD),)),
    Cell(workers=2, input="options", model="metric", kills=(Kill(2, 3, member=1, what=POD), Kill(2, 6))),
    Cell(workers=2, steps=40, kills=(Kill(1, 27, what=DRAIN),)),
    Cell(
        lib="keras",
        workers=2,
        model="batchnorm",
        steps=40,
        kills=(Kill(1, 7, member=1, what=DRAIN), Kill(3, 30, what=POD)),
    ),
]
FOUND = [  # by campaigns
    Cell(input="generator", model="metric", callbacks=("lr", "own"), kills=(Kill(1, 12), Kill(2, 12))),
    Cell(input="arrays", model="dropout", backup=False, shape="two-fits", kills=(Kill(1, 13, part=1),)),
    Cell(input="arrays", model="metric", shape="two-fits", validation="second", kills=(Kill(3, 9, part=1),)),
    Cell(input="arrays", model="late", kills=(Kill(1, 10), Kill(3, at="epoch_begin"), Kill(3, at="epoch_begin"))),
    Cell(input="files", model="table", kills=(Kill(3, 5),)),
    Cell(input="cache-file", shape="one-line", kills=(Kill(2, 2), Kill(2, 19))),
    Cell(lib="keras", input="unseeded", model="metric", shape="two-fits", kills=(Kill(1, 18, part=1),)),
    Cell(lib="keras", callbacks=("csv",), shape="two-fits", epochs=2, kills=(Kill(1, 10, part=1),)),
    Cell(lib="keras", model="two-optimizers", shape="two-fits", epochs=2, kills=(Kill(0, part=1),)),
    Cell(lib="keras", model="train-step", shape="two-fits", epochs=2, kills=(Kill(0, part=1),)),
    Cell(input="arrays", optimizer="legacy", callbacks=("lr",), kills=(Kill(2, 4), Kill(3, 12))),
]
# What members of a gang have of their own must not pass for replicas that differ.
ALIKE = [
    Cell(model="batchnorm", callbacks=("reduce-lr", "lr"), workers=2, steps=400, validation="each", kills=()),
    Cell(lib="keras", model="loss-scale", workers=2, steps=400, validation="each", kills=()),
]
DRAWN = list(islice(cells(SEED), CELLS))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    place, elsewhere = tmp_path_factory.mktemp("exact"), tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(elsewhere))
        with Interpreter(place) as interpreter:
            yield Runs(place, Direct(interpreter))
    assert not [*elsewhere.iterdir()], "killed programs have left files in the machine's temporary directory"


def check(runs: Runs, cell: Cell) -> None:
    verdict = runs.verdict(cell)
    assert verdict.good, "\n".join([cell.to_json(), *verdict.lines()])
    assert verdict.kills or verdict.resumed, f"nothing has disturbed {cell.to_json()}"


@pytest.mark.parametrize("cell", FIRST, ids=lambda cell: f"{cell.lib} {cell.input}")
def test_a_resumed_training_is_the_undisturbed_one_or_it_is_said(runs: Runs, cell: Cell) -> None:
    check(runs, cell)


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    "cell",
    [*GANGS, *GANGS_3, *NEW_PODS, *FOUND, *DRAWN],
    ids=Cell.to_json,
)
def test_a_drawn_training_is_the_undisturbed_one_or_it_is_said(runs: Runs, cell: Cell) -> None:
    check(runs, cell)


@pytest.mark.slow_fault
@pytest.mark.parametrize("cell", ALIKE, ids=Cell.to_json)
def test_the_replicas_of_an_undisturbed_gang_do_not_differ(tmp_path: Path, cell: Cell) -> None:
    assert Launched().run(cell, tmp_path / "cell", backups=True) == ""
    assert int((tmp_path / "cell" / "compared").read_text()) > 0
