"""No public name changes unnoticed: public_names.txt lists those of the commit before, with types and defaults."""

from pathlib import Path

from tests.support.public_names import public_names
from tests.support.repository import REPOSITORY

BEFORE = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").splitlines()
REMEDY = (
    "a public name changed: write the reason into CHANGELOG.md, test the upgrade, then run "
    "python -m tests.support.public_names > tests/unit/docs/public_names.txt"
)


def test_the_public_names_are_those_of_the_commit_before() -> None:
    now = public_names(REPOSITORY)
    assert (sorted(set(BEFORE) - set(now)), sorted(set(now) - set(BEFORE))) == ([], []), REMEDY


def test_names_of_every_kind_are_found() -> None:
    kinds = {line.split(" ")[0] for line in BEFORE}
    assert kinds == {
        "chart",
        "column",
        "command",
        "condition",
        "field",
        "label",
        "metric",
        "option",
        "reason",
        "resource",
        "variable",
    }


def test_the_modules_that_programs_import_are_there() -> None:
    package = REPOSITORY / "trainer" / "tftraining"
    names = ["report.py", "paths.py", "cluster.py", "cleanup.py", "launch/__main__.py", "launch/install.py"]
    examples = [
        path.name for path in (REPOSITORY / "examples").glob("*.yaml") if "tftraining.examples." in path.read_text()
    ]
    assert [name for name in names if not (package / name).exists()] == []
    assert examples, "the shipped manifests run `python -m tftraining.examples.*`"
