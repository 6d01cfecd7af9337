"""The workflows run targets of the Makefile, and no action can change under its name.

tests/processes/machine/test_release_files.py has actionlint read them.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.binaries import DEFAULT_MINOR, KUBERNETES_VERSIONS
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


def commands(path: Path) -> list[str]:
    """Each command of the jobs, without what runs it as root."""
    lines = (line for job in jobs(path).values() for step in job["steps"] for line in step.get("run", "").splitlines())
    return [re.sub(r"^sudo (--preserve-env=\S+ )?", "", line.strip()) for line in lines]


@pytest.mark.parametrize("name", ["ci.yml", "security.yml"])
def test_a_job_that_publishes_nothing_runs_make_alone(name: str) -> None:
    others = [line for line in commands(REPOSITORY / ".github" / "workflows" / name) if not line.startswith("make ")]
    assert {*others} <= {'chown --recursive "$USER" ~/.cache'}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_make_knows_how_to_run_each_command(path: Path) -> None:
    made = [found[0] for line in commands(path) if (found := re.search(r"\bmake [^)>]*", line))]
    assert made
    for command in made:
        words = command.replace('"$TARGET"', "check").replace("make", "make --dry-run --no-print-directory", 1)
        done = subprocess.run(["bash", "-c", words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout, (command, done.stderr)


def test_the_variables_that_the_jobs_give_are_read_by_the_makefile() -> None:
    given = {name for path in WORKFLOWS for line in commands(path) for name in re.findall(r"\b([A-Z_]+)=", line)}
    read = {*re.findall(r"\$\((?:if \$\(|filter yes,\$\()?([A-Z_]+)\)", (REPOSITORY / "Makefile").read_text())}
    assert {"PLATFORMS", "TAG", "MINORS"} <= given <= read


def test_ci_has_a_job_for_each_part_of_a_release() -> None:
    made = " ".join(commands(REPOSITORY / ".github" / "workflows" / "ci.yml"))
    targets = {*re.findall(r"\bmake ([a-z][a-z-]*)", made)}
    assert targets == {
        "check", "docs", "images", "outdated", "pythons", "release-files", "test-faults", "test-kubernetes"
    }  # fmt: skip
    assert "PLATFORMS=linux/amd64,linux/arm64" in made


def test_ci_runs_the_tiers_with_an_api_server_on_every_version_of_kubernetes() -> None:
    ci = jobs(REPOSITORY / ".github" / "workflows" / "ci.yml")
    assert {*ci["kubernetes"]["strategy"]["matrix"]["minor"]} == {*KUBERNETES_VERSIONS} - {DEFAULT_MINOR}


def test_a_release_is_audited_signed_and_has_its_bills_of_materials() -> None:
    lines = commands(REPOSITORY / ".github" / "workflows" / "release.yml")
    order = ["make audit", "make release-files ", "cosign sign-blob ", "gh release create "]
    assert [next(i for i, line in enumerate(lines) if line.startswith(each)) for each in order] == sorted(
        next(i for i, line in enumerate(lines) if line.startswith(each)) for each in order
    )
    text = "\n".join(lines)
    assert all(
        each in text for each in ("dist/*.cdx.json", "dist/SHA256SUMS.sigstore.json", "--notes-file dist/notes.md")
    )
    assert text.count("cosign sign ") == 2, "both images at once, and the chart"


def test_ci_runs_each_tier_of_make_test() -> None:
    (told,) = re.findall(r"^test: (.*?)  ##", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    ci = jobs(REPOSITORY / ".github" / "workflows" / "ci.yml")
    assert {*told.split()} == {"check", *ci["tier"]["strategy"]["matrix"]["target"]}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_has_no_right_that_it_does_not_name_and_ends_in_time(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs(path).items() if "timeout-minutes" not in job] == []
