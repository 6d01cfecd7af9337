"""What all commands of `tftj` have in common: options, exit codes, and one line for a cluster that is not there."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.support.client.verbs import CLUSTER_VERBS, WITHOUT_CLUSTER, words
from tests.support.control_plane.manifests import minimal
from tests.support.repository import REPOSITORY
from tests.unit.client.test_cluster_errors import KUBECONFIG
from tftraining_client import errors
from tftraining_client.__main__ import as_kubectl, command_first, completions, main
from tftraining_client.commands.app import EPILOG, EXAMPLES, GROUPS, app

PAGE = (REPOSITORY / "docs" / "tftj.md").read_text(encoding="utf-8")
FORMATS = ("json", "yaml", "name", "wide", "png", "html")


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the file of a job, beside a kubeconfig whose server does not answer."""
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(minimal("digits")))
    return path


def test_each_command_is_covered_by_these_tests() -> None:
    assert {each.name for each in app.registered_commands} == {*CLUSTER_VERBS, *WITHOUT_CLUSTER}


@pytest.mark.parametrize("verb", CLUSTER_VERBS)
def test_each_command_tells_a_wrong_context_and_a_server_that_does_not_answer(
    verb: str, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(verb, manifest), "--context", "three"]) == 2
    assert capsys.readouterr() == ("", "tftj: the kubeconfig has no context three: it has one, two\n")
    # The time for an answer that never comes, also on a busy machine.
    patience = ["--timeout", "60s"] if verb == "wait" else []
    code, said = main([*words(verb, manifest), *patience]), capsys.readouterr()
    told = said.out if verb == "doctor" else said.err
    assert code == (1 if verb == "doctor" else errors.ApiUnavailable.exit_code)
    assert "cannot reach the API server https://127.0.0.1:1 (context one): " in told
    assert len(said.err.splitlines()) == (0 if verb == "doctor" else 1) and "Traceback" not in told


def options(text: str) -> dict[str, str]:
    """The long options of a help text with what stands beside them."""
    body = re.sub(r"\n {8,}", " ", text)
    return {found[1]: line for line in body.splitlines() if (found := re.match(r"\s+(?:-\w, )?(--[\w-]+)", line))}


def documented() -> dict[str, tuple[bool, tuple[str, ...]]]:
    """The table of docs/tftj.md: by command whether it has -A, and the formats of -o."""
    rows = re.findall(r"^\| (`[^|]+`) \| (yes|no) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    return {
        verb: (everywhere == "yes", tuple(re.findall(r"`(\w+)`", formats)))
        for verbs, everywhere, formats in rows
        for verb in re.findall(r"`(\w+)`", verbs)
    }


@pytest.mark.parametrize("verb", CLUSTER_VERBS)
def test_the_options_of_each_command_are_those_of_the_page(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    found = options(capsys.readouterr().out)
    assert {"--namespace", "--context", "--kubeconfig", "--as", "--as-group", "--as-uid", "--v"} <= set(found)
    formats = re.search(r"<([\w|]+)>", found.get("--output", ""))
    values = tuple(formats[1].split("|")) if formats else ()
    assert documented()[verb] == ("--all-namespaces" in found, values)
    assert set(values) <= set(FORMATS)


def test_the_exit_codes_are_those_of_the_page_and_of_the_help() -> None:
    section = PAGE.partition("\n### Exit codes\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \| ", section, re.MULTILINE)
    page = {int(code) for row in rows for code in row.split(",")}
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.UserError)]
    assert {each.exit_code for each in classes} | {0, 130, 141} == page
    assert {int(code) for code in re.findall(r"\d+", EPILOG)} == page


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("-n ns --context=a list -o json", "list -n ns --context=a -o json"),
        ("-nns list", "list -nns"),
        ("-n=ns list", "list --namespace=ns"),
        ("--as ada --as-group=a list -v=8", "list --as ada --as-group=a --v=8"),
        ("-v 7 list --v 9", "list --v=7 --v=9"),
        ("-v list -v", "list --v=6 --v=6"),
        ("list -- -v -n=a", "list -- -v -n=a"),
        ("list -n ns", "list -n ns"),
        ("-n ns", "-n ns"),
        ("--version", "--version"),
        ("--help list", "--help list"),
        ("", ""),
    ],
)
def test_the_options_of_the_cluster_may_stand_before_the_command(given: str, taken: str) -> None:
    assert command_first(as_kubectl(given.split())) == taken.split()


def test_each_command_is_in_a_group_of_the_help_with_an_example_that_can_be_parsed() -> None:
    named = [name for group in GROUPS.values() for name in group]
    assert sorted(named) == sorted(str(each.name) for each in app.registered_commands)
    for name, example in EXAMPLES.items():
        words = shlex.split(re.sub(r"source <\((.*)\)", r"\1", example).partition(" > ")[0])
        assert words[:2] == ["tftj", name]
        assert callable(get_command(app).main(words[1:], standalone_mode=False)), example


@pytest.mark.parametrize("arguments", [[], *([name] for name in EXAMPLES)], ids="".join)
def test_the_help_is_whole_at_80_columns(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main([*arguments, "--help"])
    said = capsys.readouterr().out
    assert not re.search(r"[^\]]\.\.\.", said)  # but for [ARGS]... and [JOB]...
    assert max(map(len, said.splitlines())) <= 80
    for text in [f"  {title}:" for title in GROUPS] if not arguments else [f"Example: {EXAMPLES[arguments[0]]}"]:
        assert " ".join(text.split()) in " ".join(said.split())


def test_kubectl_gets_the_completions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names: list[Any] = [{"name": name, "context": {}} for name in ("prod", "stage")]
    (tmp_path / "config").write_text(json.dumps({"contexts": names}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    for given, found in {
        ("sus",): ["suspend"],
        ("-n", "team", "stat"): ["status"],
        ("wait", "x", "--for", "su"): ["succeeded", "suspended"],
        ("run", "--wor"): ["--workdir", "--workers"],
        ("list", "--context", ""): ["prod", "stage"],
        ("logs", "x", "--role", "ev"): ["evaluator"],
    }.items():
        assert completions(given) == [*found, ":4"], given
    # Files.
    assert completions(["run", "job"]) == [":0"]
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl_complete-tftj"] == "tftraining_client.__main__:complete_for_kubectl"
