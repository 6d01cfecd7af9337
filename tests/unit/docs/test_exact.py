"""The page docs/exact.md has what tests.exact promises for each program, and the programs are drawn as a seed says."""

from itertools import islice

import pytest

from tests.exact import page
from tests.exact.cells import ANEW, CALLBACKS, EPOCH, INPUTS, MODELS, STEP, STORAGE, Cell, expected
from tests.exact.draw import cells

DRAWN = list(islice(cells(1), 200))


def test_the_page_is_current() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: make reference"


def test_the_same_seed_draws_the_same_cells() -> None:
    assert list(islice(cells(1), 200)) == DRAWN


def test_a_campaign_has_each_input_each_model_and_each_callback() -> None:
    assert {cell.input for cell in DRAWN} == set(INPUTS)
    assert {cell.model for cell in DRAWN} == set(MODELS)
    assert {name for cell in DRAWN for name in cell.callbacks} == set(CALLBACKS)


@pytest.mark.parametrize("cell", DRAWN[:50], ids=Cell.to_json)
def test_a_cell_is_the_same_behind_its_json(cell: Cell) -> None:
    assert Cell.from_json(cell.to_json()) == cell


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        (Cell(input="random-map"), ANEW),
        (Cell(input="random-map", exactness="Required"), EPOCH),
        (Cell(input="arrays-shuffled"), STEP),
        (Cell(input="arrays-shuffled", seeded=False), ANEW),
        (Cell(model="table"), STORAGE),
        (Cell(shape="initial-epoch", backup=False), STORAGE),
        (Cell(input="generator"), EPOCH),
    ],
)
def test_a_cell_is_promised_the_kind_of_its_weakest_part(cell: Cell, kind: str) -> None:
    assert expected(cell).kind == kind
