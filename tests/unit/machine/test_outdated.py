"""What `make outdated` says, of locks and of lists of versions; the index and the module proxy are not asked here."""

import json
from pathlib import Path

import pytest

from testbed.outdated import UNKNOWN, go_modules, go_rows, go_versions, moves, python_rows


def test_a_locked_package_that_is_behind_is_told_with_each_lock_that_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "operator.txt", tmp_path / "dev.txt"
    first.write_text("kopf==1.44.0 \\\n    --hash=sha256:00\nuv==2.0 \\\n")
    second.write_text("kopf==1.44.0 \\\n    # via tftraining\ncoverage[toml]==7.0 ; python_version < '3.12' \\\n")
    newest = {"kopf": "1.45.2", "uv": "2.0", "coverage": "8.1"}
    assert python_rows([first, second], newest) == [
        ("coverage", "7.0", "8.1", "dev"),
        ("kopf", "1.44.0", "1.45.2", "dev, operator"),
    ]


@pytest.mark.parametrize(
    ("here", "versions", "told"),
    [
        ("v1.34.2", ["v1.34.2", "v1.34.10", "v1.34.9", "v1.35.0"], "v1.34.10, v1.35.0"),
        ("v1.34.2", ["v1.34.1", "v1.34.2", "v1.35.0-rc.1"], "v1.34.2"),
        ("v1.9.0", ["v1.10.0"], "v1.10.0"),
        ("v1.9.0", [], UNKNOWN),
    ],
)
def test_a_module_moves_to_the_newest_patch_of_its_minor_version_and_to_the_newest_release(
    here: str, versions: list[str], told: str
) -> None:
    assert moves(here, versions) == told


def test_of_a_go_module_count_the_tools_and_what_it_names_itself_at_the_versions_that_replace_them() -> None:
    module = {
        "Tool": [{"Path": "example.org/tool/cmd/run"}],
        "Require": [
            {"Path": "example.org/tool", "Version": "v1.0.0", "Indirect": True},
            {"Path": "example.org/other", "Version": "v1.0.0", "Indirect": True},
            {"Path": "example.org/direct", "Version": "v0.0.0"},
        ],
        "Replace": [
            {"Old": {"Path": "example.org/direct"}, "New": {"Path": "example.org/direct", "Version": "v3.0.0"}}
        ],
    }
    modules = go_modules(json.dumps(module))
    assert modules == {"example.org/tool": "v1.0.0", "example.org/direct": "v3.0.0"}
    assert go_rows({"folder": modules}, {"example.org/tool": ["v1.0.0"], "example.org/direct": ["v3.1.0"]}) == [
        ("example.org/direct", "v3.0.0", "v3.1.0", "folder")
    ]


def test_a_module_that_the_proxy_does_not_list_is_unknown_and_its_refusal_is_told() -> None:
    refused = {"Path": "example.org/tool", "Error": {"Err": "reading https://proxy/tool/@v/list: 403\n\tnot here"}}
    told = [refused, {"Path": "example.org/other", "Versions": ["v1.0.0"]}, {"Path": "example.org/untagged"}]
    listed, refusals = go_versions("\n".join(json.dumps(each, indent="\t") for each in told))
    assert listed == {"example.org/tool": [], "example.org/other": ["v1.0.0"], "example.org/untagged": []}
    assert refusals == ["reading https://proxy/tool/@v/list: 403 not here"]
    here = {"folder": {"example.org/tool": "v1.0.0", "example.org/other": "v1.0.0"}}
    assert go_rows(here, listed) == [("example.org/tool", "v1.0.0", UNKNOWN, "folder")]
