"""Every command of the pages is one: no command runs here, but each has only verbs, options and names that exist.

`tftj` is parsed by its real parsers, up to the point where it would act. The verbs and options of other programs are in
tables below; what they name is looked up in the Makefile, the chart's values, the Dockerfile, the custom resource and
the examples. Not checked: `cosign` and `sha256sum`.

What runs elsewhere, as a page has it:

* kubectl and `helm install` and `upgrade`, without kubelets: tests/control_plane/test_page_commands.py;
* `tftj` without an operator and kubelets: tests/control_plane/test_page_tftj.py, where a list names the tests of the
  other commands of `tftj` (such as `run` and `doctor`), and what is different there;
* `kubectl logs` and `exec`, `tftj logs` and `tensorboard`, on kind: tests/cluster/test_page_commands.py;
* the quick start on a laptop, in a bare Debian: tests/processes/machine/test_quickstart.py;
* the quick starts on kind and on a cluster: tests/quickstarts/test_quickstarts.py;
* the kills by hand: tests/processes/launch/test_kill_by_hand.py, where a process takes the place of a pod;
* the first job and `helm test`, on kind: tests/cluster/test_first_job.py;
* the cells of notebooks for this machine: tests/processes/client/test_notebooks.py.

Not run by any test: docker, kind and pip on other pages; cosign, sha256sum; `nvidia-smi` and `pkill` in a pod; what a
page only mentions, without its object (`kubectl port-forward`, `kubectl rollout undo`); make and the benchmarks, which
people run. Paths, links and modules are proven in test_paths.py, manifests in tests/unit/client/test_validation.py and,
by an API server, in tests/control_plane/test_manifests.py.
"""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.exceptions import TyperException
from typer.main import get_command

from tests.support.crd import definition
from tests.support.page_commands import PROGRAMS, Block, Command, blocks, commands, split
from tests.support.repository import REPOSITORY
from tests.unit.docs.test_paths import PAGES
from tftraining_client.commands.app import app, only
from tftraining_client.errors import UserError

PLACEHOLDERS = {"SHELL": "bash", "STATE": "succeeded", "FILE": "job.yaml"}
# The options that kubectl has, by verb (kubectl VERB --help), as far as the pages use them.
GLOBAL = {"--namespace", "-n", "--all-namespaces", "-A"}
KUBECTL = {
    "annotate": {"--overwrite"},
    "apply": {"--filename", "-f", "--server-side"},
    "create": {"--type", "--from-file", "--from-literal", "--value", "--description"},
    "delete": set[str](),
    "describe": set[str](),
    "drain": set[str](),
    "exec": {"--container", "-c", "-it"},
    "explain": {"--recursive"},
    "get": {"--output", "-o", "--watch", "-w", "--selector", "-l"},
    "logs": {"--selector", "--prefix", "--tail", "--follow", "--container", "-c"},
    "patch": {"--type", "-p", "--patch", "--patch-file"},
    "port-forward": set[str](),
    "rollout": set[str](),
    "scale": {"--replicas"},
    "set": set[str](),
    "wait": {"--for", "--timeout"},
}
HELM = {
    "install": {"--namespace", "--create-namespace", "--wait", "--set"},
    "rollback": set[str](),
    "test": {"--namespace"},
    "uninstall": {"--namespace"},
    "upgrade": {"--namespace", "--create-namespace", "--wait", "--set", "--install"},
}
DOCKER = {
    "build": {"--target", "--tag", "--build-arg", "--file"},
    "push": set[str](),
    "buildx": {"--format"},
}
UNCHECKED = {"cosign", "sha256sum"}  # for a release, and there is none yet
KIND = {"create", "delete", "load"}
# Of Kubernetes and of Kueue.
OTHER_KINDS = {
    *("pod", "pods", "lease", "pvc", "storageclass", "serviceaccounts", "crd", "secret", "configmap", "workload"),
    *("deployment", "image", "undo", "namespace", "events", "priorityclass"),
}
SHELL = {"for", "do", "done", "echo"}  # the loop of docs/launcher.md, which test_kill_by_hand.py runs
NAMES = definition()["spec"]["names"]
GROUP = definition()["spec"]["group"]
OURS = {NAMES["plural"], NAMES["singular"], *NAMES["shortNames"], f"{NAMES['plural']}.{GROUP}"}
SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


@cache
def all_commands() -> list[Command]:
    return [command for page in PAGES for command in commands(page)]


def of(*programs: str) -> list[Command]:
    found = [command for command in all_commands() if command.program in programs]
    assert found
    return found


def each(check: Callable[[Command], str | None], *programs: str) -> list[str]:
    """What is wrong with the commands of the programs."""
    return [f"{command}: {wrong}" for command in of(*programs) if (wrong := check(command))]


def options(words: tuple[str, ...]) -> dict[str, str]:
    """The options up to `--`, each with its value or the next word."""
    mine = words[: words.index("--")] if "--" in words else words
    pairs = zip(mine, (*mine[1:], ""), strict=True)
    return {word.split("=")[0]: word.partition("=")[2] or after for word, after in pairs if word.startswith("-")}


def test_the_tests_that_run_commands_are_there() -> None:
    named = re.findall(r"tests/[\w/]+\.py", __doc__ or "")
    assert len(named) >= 8 and [name for name in named if not (REPOSITORY / name).is_file()] == []


# --- what the pages have


def test_a_block_of_commands_has_nothing_else() -> None:
    programs = {*PROGRAMS, "pytest", "cd", *UNCHECKED}
    others = [str(command) for command in all_commands() if command.program not in programs | SHELL]
    assert others == [], "output stands in a block of the language text"


def test_the_pages_have_commands_of_every_kind() -> None:
    assert {command.whole for command in of("tftj")} == {True, False}
    assert {"kubectl", "helm", "make", "docker", "python"} <= {command.program for command in all_commands()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b # c\nd", [("a", "b"), ("d",)]),
        ("a \\\n  --b=c", [("a", "--b=c")]),
        ("A=1 B='2 3' a 'b c' > d", [("a", "b c")]),
        ("a $(b c)\nd | e && f", [("a", "SUBSTITUTED"), ("d",), ("e",), ("f",)]),
        ("a --b=<where you are>", [("a", "--b=SUBSTITUTED")]),
    ],
)
def test_a_script_is_split_as_a_shell_splits_it(text: str, words: list[tuple[str, ...]]) -> None:
    assert list(split(text)) == words


# --- tftj


def parsed(argv: list[str]) -> Callable[[], int] | int | None:
    """What the real parser of `tftj` makes of the arguments, without doing it; SystemExit or an error of typer."""
    work: Callable[[], int] | int | None = get_command(only(app, argv)).main(
        argv, prog_name="tftj", standalone_mode=False
    )
    return work


def problem(command: Command) -> str | None:
    """What `tftj` says about the command. A mention need not name the job, nor the value of its last option."""
    words = list(command.words[1:])
    if words[:1] == ["tftj"]:
        words = words[1:]  # kubectl tftj
    argv = [PLACEHOLDERS.get(word, word.replace("STATE", "succeeded")) for word in words]
    try:
        parsed(argv)
    except UserError as error:
        return str(error) if command.whole else None
    except SystemExit as error:
        return f"exit code {error.code}" if command.whole or len(argv) > 1 else None
    except TyperException as error:
        unfinished = type(error).__name__ == "MissingParameter" or "requires an argument" in str(error)
        return None if unfinished and not command.whole else f"{type(error).__name__}: {error}"
    return None


def is_tftj(command: Command) -> bool:
    return command.program in ("tftj", "kubectl-tftj") or command.words[:2] == ("kubectl", "tftj")


def test_tftj_reads_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [f"{command}: {found}" for command in all_commands() if is_tftj(command) and (found := problem(command))]
    capsys.readouterr()
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    ["tftj lst", "tftj list --outputs json", "tftj wait digits --fro=failed", "tftj run job.yaml --klil worker-1"],
)
def test_a_misspelt_command_of_tftj_is_found(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem(Command("page", tuple(line.split()))) and problem(Command("page", tuple(line.split()), whole=False))
    capsys.readouterr()


def test_a_mention_of_a_verb_is_no_mistake() -> None:
    assert problem(Command("page", ("tftj", "restart"))) and not problem(Command("page", ("tftj", "restart"), False))


def known_options() -> set[str]:
    """All options of `tftj`, from the page that `make reference` makes of typer's."""
    return {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text_of("docs/reference-commands.md"))}


@pytest.mark.parametrize("page", ["tftj.md", "quickstart.md"])
def test_the_options_that_pages_on_tftj_name_exist(page: str) -> None:
    spans = re.findall(r"`(--?[a-z][a-z-]*)", text_of(f"docs/{page}"))
    assert sorted({*spans} - known_options()) == []


# --- kubectl


@cache
def example_jobs() -> dict[str, dict[str, Any]]:
    """The jobs of the examples and of the pages, by name."""
    texts = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "examples").rglob("*.yaml")]
    texts += [block.text for _, block in blocks_of("yaml")]
    found = [job for text in texts if NAMES["kind"] in text for job in yaml.safe_load_all(text) if job]
    return {job["metadata"]["name"]: job for job in found if job.get("kind") == NAMES["kind"]}


@cache
def example_pods() -> set[str]:
    roles = (
        (name, role, state)
        for name, job in example_jobs().items()
        for role, state in job["spec"]["replicaSpecs"].items()
    )
    return {f"{name}-{role}-{index}" for name, role, state in roles for index in range(state.get("replicas", 1))}


def kubectl_problem(command: Command) -> str | None:
    if is_tftj(command):
        return None
    verb, *rest = command.words[1:]
    if verb not in KUBECTL:
        return f"no verb {verb}"
    if unknown := set(options(command.words)) - KUBECTL[verb] - GLOBAL:
        return f"no option {sorted(unknown)}"
    return next(filter(None, (*_targets(verb, rest), *_values(options(command.words)))), None)


def _targets(verb: str, rest: list[str]) -> Iterator[str | None]:
    """What is wrong with the objects that the command names."""
    plain = [word for word in rest[: 2 if verb != "exec" else 1] if not word.startswith("-")]
    if verb == "exec":
        yield None if not plain or plain[0] in example_pods() else f"no example has the pod {plain[0]}"
    elif verb == "explain":
        yield None if plain and _field(plain[0]) else f"no field {plain}"
    elif plain and verb not in ("apply", "logs"):
        kind, _, name = plain[0].partition("/")
        name = name or (plain[1] if len(plain) > 1 else "")
        if kind not in OURS | OTHER_KINDS and not {*kind.split(",")} <= OTHER_KINDS:
            yield f"no resource {kind}"
        if kind in OURS and name and not name.isupper() and name not in example_jobs():
            yield f"no example has the job {name}"
        if kind == "pod" and name and name not in example_pods():
            yield f"no example has the pod {name}"
        if kind == "crd" and name not in OURS:
            yield f"no definition {name}"


def _field(path: str) -> bool:
    first, *names = path.split(".")
    schema: dict[str, Any] | None = SCHEMA
    for name in names:
        schema = ((schema or {}).get("properties") or {}).get(name)
    return first in OURS and schema is not None


def _values(given: dict[str, str]) -> Iterator[str | None]:
    """What is wrong with the values of options."""
    output = given.get("-o", given.get("--output", ""))
    if path := re.fullmatch(r"jsonpath=\{\.(.*)\}", output):
        yield None if _field(f"{NAMES['singular']}.{path[1]}") else f"no field {path[1]}"
    elif output and output not in {"yaml", "json", "wide", "name"}:
        yield f"no output {output}"
    if condition := re.fullmatch(r"condition=(.*)", given.get("--for", "")):
        known = re.findall(r"\w+", SCHEMA["properties"]["status"]["properties"]["conditions"]["description"])
        yield None if condition[1] in known else f"no condition {condition[1]}"
    if patch := given.get("-p"):
        unknown = [path for path in _leaves(json.loads(patch)) if not _field(f"{NAMES['singular']}.{path}")]
        yield f"no fields {unknown}" if unknown else None
    if selector := given.get("--selector", given.get("-l")):
        label, _, value = selector.partition("=")
        names = text_of("tests/unit/docs/public_names.txt").splitlines()
        is_label = f"label or annotation {label.removeprefix(f'{GROUP}/')}" in names
        yield None if is_label else f"no label {label}"
        yield None if value in example_jobs() else f"no example has the job {value}"


def _leaves(patch: Any, path: str = "") -> Iterator[str]:
    if isinstance(patch, dict):
        for name, child in patch.items():
            yield from _leaves(child, f"{path}.{name}".lstrip("."))
    else:
        yield path


def test_commands_of_kubectl() -> None:
    assert each(kubectl_problem, "kubectl") == []


@pytest.mark.parametrize(
    "line",
    [
        "kubectl get tftjs",
        "kubectl get tftj frist-job",
        "kubectl delete pod first-job-worker-9",
        "kubectl get tftj digits --wacth",
        "kubectl get tftj digits -o jsonpath={.status.code.digset}",
        "kubectl wait --for=condition=Suceeded tftj/digits",
        'kubectl patch tftj/digits -p {"spec":{"suspend":true}}',
        "kubectl logs --selector tftraining.dev/job=digits",
    ],
)
def test_a_misspelt_command_of_kubectl_is_found(line: str) -> None:
    assert kubectl_problem(Command("page", tuple(line.split())))


# --- helm, make, docker, kind, pip, python


def helm_problem(command: Command) -> str | None:
    verb = command.words[1]
    if unknown := set(options(command.words)) - HELM.get(verb, set()) or {verb} - set(HELM):
        return f"helm has no {sorted(unknown)}"
    values = yaml.safe_load(text_of("charts/tftraining-operator/values.yaml"))
    for word in (options(command.words).get("--set"),):
        for name in (word or "").split("=")[0].split("."):
            if word and (not isinstance(values, dict) or name not in values):
                return f"no value {word}"
            values = values[name] if word else values
    return None


def make_problem(command: Command) -> str | None:
    makefile = text_of("Makefile")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"\$\((?:if \$\(|filter no,\$\()?([A-Z_]+)\)", makefile))
    for word in filter(None, command.words[1:]):
        name, sign, _ = word.partition("=")
        if name not in (variables if sign else targets):
            return f"make has no {word}"
    return None


def docker_problem(command: Command) -> str | None:
    verb, given, dockerfile = command.words[1], options(command.words), text_of("Dockerfile")
    if unknown := set(given) - DOCKER.get(verb, set()) or {verb} - set(DOCKER):
        return f"docker has no {sorted(unknown)}"
    if "--target" in given and given["--target"] not in re.findall(r" AS (\S+)", dockerfile):
        return f"no stage {given['--target']}"
    argument = given.get("--build-arg", "").split("=")[0]
    if argument and argument not in re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE):
        return f"no argument {argument}"
    return _image_problem(command)


def _image_problem(command: Command) -> str | None:
    """An image has the version of this checkout, which the chart asks for."""
    version = yaml.safe_load(text_of("charts/tftraining-operator/Chart.yaml"))["appVersion"]
    images = [word for word in command.words if re.search(r"tftraining-(operator|trainer)", word)]
    return next((f"the version is {version}" for image in images if not image.endswith(f":{version}")), None)


def kind_problem(command: Command) -> str | None:
    return _image_problem(command) if command.words[1] in KIND else f"kind has no {command.words[1]}"


def pip_problem(command: Command) -> str | None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    asked = re.findall(r"\.\[(.*)\]", " ".join(command.words))
    missing = [extra for extra in ",".join(asked).split(",") if extra and extra not in extras]
    return f"no extra {missing}" if missing or command.words[1] != "install" else None


def python_problem(command: Command) -> str | None:
    """The sources of a module, or of its package, have the options that the command gives."""
    if command.words[1] != "-m" or "." not in command.words[2]:
        return None
    place = command.words[2].replace(".", "/")
    roots = [REPOSITORY / root for root in ("", "api", "operator", "trainer", "client")]
    found = [root / place for root in roots if (root / place).is_dir()] or [
        (root / place).parent for root in roots if (root / f"{place}.py").is_file()
    ]
    if place.startswith("tftraining/examples/"):
        found.append(REPOSITORY / "trainer" / "tftraining" / "lib")  # which has their common options
    sources = "".join(path.read_text(encoding="utf-8") for root in found for path in sorted(root.rglob("*.py")))
    missing = [name for name in options(command.words) if name.startswith("--") and f'"{name}"' not in sources]
    missing = [name for name in missing if name not in ("--", "--help")]
    return f"no option {missing}" if missing or not sources else None


@pytest.mark.parametrize(
    ("program", "check", "misspelt"),
    [
        ("helm", helm_problem, "helm install a charts/tftraining-operator --set image.repositry=b"),
        ("make", make_problem, "make check contrl-plane"),
        ("docker", docker_problem, "docker build --target trainr --tag tftraining-trainer:0.1.0 ."),
        ("kind", kind_problem, "kind load docker-image tftraining-operator:0.0.1"),
        ("pip", pip_problem, "pip install .[clint]"),
        ("python", python_problem, "python -m benchmarks.recovery --locl"),
    ],
)
def test_commands_of_other_programs(program: str, check: Callable[[Command], str | None], misspelt: str) -> None:
    assert each(check, program) == []
    assert check(Command("page", tuple(misspelt.split())))


# --- blocks


def blocks_of(language: str) -> list[tuple[Path, Block]]:
    return [(page, block) for page in PAGES for block in blocks(page) if block.language == language]


def test_every_language_of_a_block_is_checked() -> None:
    checked = {"", "sh", "bash", "text", "diff", "dockerfile", "json", "yaml", "python"}
    assert {block.language for page in PAGES for block in blocks(page)} <= checked


def test_blocks_are_well_formed() -> None:
    for _, block in blocks_of("yaml"):
        assert list(yaml.safe_load_all(block.text))
    for page, block in blocks_of("python"):
        # A cell of a notebook may await.
        text = block.text.replace("(…, ", "(").replace("…", "...")
        compile(text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for _, block in blocks_of("json"):
        # Results of benchmarks are several lines of one object each.
        assert [json.loads(part) for part in re.split(r"\n(?=\{)", block.text)]
