"""The workflows run targets of the Makefile, and no action can change under its name."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repository import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
TARGETS = {*re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)}


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def test_there_are_workflows() -> None:
    assert {path.name for path in WORKFLOWS} == {"ci.yml", "release.yml", "security.yml"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_by_its_commit(path: Path) -> None:
    uses = re.findall(r"uses: (\S+)(.*)", path.read_text())
    loose = [name for name, rest in uses if not re.search(r"@[0-9a-f]{40}$", name) or not re.match(r" # v\d", rest)]
    assert uses
    assert loose == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_target_that_a_job_makes_is_in_the_makefile(path: Path) -> None:
    steps = [step for job in jobs(path).values() for step in job["steps"]]
    made = {name for step in steps for name in re.findall(r"\bmake ([a-z][a-z-]*)", step.get("run", ""))}
    assert made
    assert made - TARGETS == set()


def test_ci_runs_each_tier_of_make_test() -> None:
    (told,) = re.findall(r"^test: (.*?)  ##", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    ci = jobs(REPOSITORY / ".github" / "workflows" / "ci.yml")
    assert {*told.split()} == {"check", *ci["tier"]["strategy"]["matrix"]["target"]}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_has_no_right_that_it_does_not_name_and_ends_in_time(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs(path).items() if "timeout-minutes" not in job] == []
