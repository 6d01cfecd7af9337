"""What GitHub and Renovate read: each file fits its published schema, and Renovate's patterns find the files."""

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import REPOSITORY

GITHUB = REPOSITORY / ".github"
RENOVATE: dict[str, Any] = json.loads((GITHUB / "renovate.json").read_text(encoding="utf-8"))
FILES = {
    "vendor.renovate": [GITHUB / "renovate.json"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml")),
    "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
}


def check(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Compare the files with a schema that check-jsonschema brings along."""
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", FILES)
def test_a_file_fits_its_schema(schema: str) -> None:
    assert FILES[schema]
    done = check(schema, *FILES[schema])
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_issue_form_is_left_out() -> None:
    checked = {*FILES["vendor.github-issue-forms"], *FILES["vendor.github-issue-config"]}
    assert checked == {*(GITHUB / "ISSUE_TEMPLATE").iterdir()}


@pytest.mark.parametrize(
    ("schema", "file", "right", "wrong"),
    [
        ("vendor.renovate", "renovate.json", '"gomod"', "7"),
        ("vendor.github-issue-forms", "ISSUE_TEMPLATE/defect.yml", "type: textarea", "type: textaera"),
    ],
)
def test_a_misspelt_word_is_found(schema: str, file: str, right: str, wrong: str, tmp_path: Path) -> None:
    text = (GITHUB / file).read_text(encoding="utf-8")
    changed = tmp_path / Path(file).name
    changed.write_text(text.replace(right, wrong), encoding="utf-8")
    assert check(schema, changed).returncode != 0


def unknown(settings: dict[str, Any]) -> set[str]:
    """The names in the settings that Renovate does not know; its schema lets them pass."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/renovate.json").read_text("utf-8"))
    rules = [name for rule in settings["packageRules"] for name in rule]
    return {*settings, *rules} - {"$schema"} - {*schema["definitions"]}


def test_renovate_knows_every_setting() -> None:
    assert unknown(RENOVATE) == set()
    assert unknown({**RENOVATE, "packagerules": [], "packageRules": [{"groupname": "a"}]}) == {
        "packagerules",
        "groupname",
    }


def test_renovate_finds_what_it_is_to_find() -> None:
    assert {*RENOVATE["enabledManagers"]} == {"github-actions", "gomod", "pip_requirements", "dockerfile"}
    (pattern,) = RENOVATE["pip_requirements"]["managerFilePatterns"]
    names = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "requirements").iterdir()]
    assert [name for name in names if re.search(pattern.strip("/"), name)] == ["requirements/constraints.in"]
    pins = (REPOSITORY / "requirements" / "constraints.in").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in pins if not line.startswith("#"))
