"""docs/status.md and the code say the same: every reason, condition and field is on the page, and no other is.

A reason is any CamelCase word that stands alone as a string in the modules that decide, wherever that is, unless it is
named below as something else. So a new one cannot be hidden by the way in which it is handed on.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.crd import definition
from tests.support.repository import REPOSITORY
from tests.support.simulated_gang.simulation import make_coordinator
from tftraining.launch.config import settings
from tftraining.launch.http import metrics, pages
from tftraining.launch.progress import Snapshot, to_status
from tftraining_api.model.status import ConditionStatus, Keras

PAGE = (REPOSITORY / "docs" / "status.md").read_text(encoding="utf-8")
CRD: dict[str, Any] = definition()
(VERSION,) = CRD["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]["properties"]

API = REPOSITORY / "api" / "tftraining_api"
OPERATOR = REPOSITORY / "operator" / "tftraining_operator"
# Where reasons are made; what else there is of the operator carries out, and may not make any (see below).
DECIDING = (
    OPERATOR / "plan",
    OPERATOR / "model",
    API / "model",
    REPOSITORY / "trainer" / "tftraining" / "launch",
    REPOSITORY / "client" / "tftraining_client" / "local",
)
# What runs in the program names classes of TensorFlow and Keras. Its reasons are sentences.
IN_PROGRAM = REPOSITORY / "trainer" / "tftraining" / "launch" / "in_user_process"
CAMEL_CASE = re.compile(r"[A-Z]+[a-z][A-Za-z0-9]*")
NO_REASONS = {
    "phases that are nobody's reason": "Pending Restarting",
    "types of events": "Normal Warning",
    "our kind": "TFTrainingJob",
    "causes in the message of SlowMember": "Computes WaitsForInput",
    "where a round resumed from, and where a restart resumes": "Epoch Memory Peer Start Step StepDrawnAnew Storage",
    "classes": "Decoded Draft Exit Frozen ProcessSpec Program Snapshot",
    "conditions, which have a table of their own": "MemoryBackup NoProgress Ready ReconcileError Unreadable",
    "operators of label selectors": "DoesNotExist Exists In NotIn",
    "scopes of quotas, and the restart policy of a side-car": (
        "Always BestEffort NotBestEffort NotTerminating PriorityClass Terminating"
    ),
    "exceptions of programs": (
        "AbortedError DeadlineExceededError RemoteDisconnected ResourceExhaustedError UnavailableError "
        "AlreadyExistsError CancelledError DataLossError FailedPreconditionError NotFoundError "
        "PermissionDeniedError UnauthenticatedError UnknownError BadZipFile DownloadError EOFError "
        "IncompleteReadError KeyError ReadError"
    ),
    "what Kubernetes says of pods and nodes, and we in other words": (
        "Completed ContainerCreating ContainersReady ErrImageNeverPull ErrImagePull FailedAttachVolume "
        "FailedCreatePodSandBox FailedMount ImageInspectError ImagePullBackOff InvalidImageName NoExecute "
        "PodInitializing PodReadyToStartContainers PodScheduled RegistryUnavailable SchedulingGated "
        "SignatureValidationFailed TerminationTarget"
    ),
}
EXCEPTIONS = {word for words in NO_REASONS.values() for word in words.split()}


# --- the page


def table(heading: str) -> list[list[str]]:
    """The cells of each row of the table whose first heading this is."""
    _, _, rest = PAGE.partition(f"\n| {heading} |")
    rows = rest.split("\n\n")[0].splitlines()[2:]
    assert rows, f"docs/status.md has no table of each {heading}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def named(cell: str) -> list[str]:
    """What stands in backticks."""
    return [name.rstrip("…") for name in re.findall(r"`([^`]+)`", cell)]


def first_column(heading: str) -> list[str]:
    return [name for row in table(heading) for name in named(row[0])]


# --- the code


def trees(*places: Path) -> Iterator[ast.Module]:
    for place in places:
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if IN_PROGRAM not in path.parents:
                yield parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def words() -> set[str]:
    """All CamelCase words that stand alone in the modules that decide."""
    found = (node.value for tree in trees(*DECIDING) for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {word for word in found if isinstance(word, str) and CAMEL_CASE.fullmatch(word)}


def of_the_spec(schema: Any) -> Iterator[str]:
    """The values that fields of the spec may have, such as OnProgress."""
    if isinstance(schema, dict):
        yield from schema.get("enum", ()) if isinstance(schema.get("enum"), list) else ()
        for child in schema.values():
            yield from of_the_spec(child)


def calls(tree: ast.Module, function: str) -> Iterator[list[str]]:
    """The arguments of each call of the function: strings and constants of the module, the first of a tuple, or ""."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    constants = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            return text(node.elts[0])
        if isinstance(node, ast.Name) and node.id in constants:
            return text(constants[node.id])
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield [text(each) for each in node.args]


def called(function: str) -> list[list[str]]:
    return [arguments for tree in trees(OPERATOR / "plan") for arguments in calls(tree, function)]


# --- reasons


def test_every_reason_in_the_code_has_a_row() -> None:
    others = {*EXCEPTIONS, *of_the_spec(SCHEMA["spec"]), *get_args(ConditionStatus), *get_args(Keras)}
    assert sorted(words() - others - set(first_column("reason"))) == []


def test_every_row_is_of_a_reason_in_the_code_and_there_is_one_of_each() -> None:
    rows = first_column("reason")
    assert [word for word, number in Counter(rows).items() if number > 1] == []
    assert sorted(set(rows) - words()) == []


def test_what_is_no_reason_is_still_in_the_code_and_has_no_row() -> None:
    assert sorted(EXCEPTIONS - words()) == []
    assert sorted(EXCEPTIONS & set(first_column("reason"))) == []


@pytest.mark.parametrize("function", ["Event", "Problem", "Incident", "with_condition"])
def test_reasons_are_made_where_they_are_looked_for(function: str) -> None:
    parts = [*OPERATOR.iterdir(), *API.iterdir()]
    others = [each for each in parts if each not in DECIDING and each.suffix in ("", ".py")]
    assert OPERATOR / "cluster" in others
    assert [arguments for tree in trees(*others) for arguments in calls(tree, function)] == []


def test_a_row_says_that_its_word_is_an_event_or_the_reason_of_a_condition() -> None:
    where = {name: row[1] for row in table("reason") for name in named(row[0])}
    events = {arguments[1] for arguments in called("Event")} - {""}
    reasons = {(arguments[3], arguments[1]) for arguments in called("with_condition") if all(arguments[1:4:2])}
    reasons |= {(arguments[2], "Cleaned") for arguments in called("_unknown")}
    assert {"Started", "EarlierRun"} <= events and ("Retrying", "Cleaned") in reasons
    assert sorted(word for word in events if "event" not in where[word]) == []
    # What all conditions share is said above the table.
    told = [(word, kind) for word, kind in reasons if kind != "Ready" and f"`{kind}`" not in where[word]]
    assert told == []


# --- conditions, fields, and the metrics of docs/reference-metrics.md


def test_the_conditions_are_those_of_the_definition_and_of_the_code() -> None:
    rows = first_column("condition")
    assert sorted(rows) == sorted(re.findall(r"\w+", SCHEMA["status"]["properties"]["conditions"]["description"]))
    kinds = {arguments[1] for arguments in called("with_condition")} - {""}
    assert kinds <= set(rows) and len(kinds) > 4


def fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every field of the status; roles are all alike."""
    for name, child in schema["properties"].items():
        here = f"{path}<role>" if path == "replicas." else f"{path}{name}"
        yield from fields(child, f"{here}.") if "properties" in child else [here]


def test_the_fields_are_those_of_the_definition() -> None:
    rows = first_column("field")
    assert len(rows) == len(set(rows))
    assert sorted(rows) == sorted(set(fields(SCHEMA["status"])))


def test_the_metrics_of_a_launcher_are_those_of_the_reference() -> None:
    raw = '{"job": {"namespace": "n", "name": "j", "uid": "u"}, "attempt": 1, "rendezvous": "h:1", "statusPort": 1'
    config = '{"cluster": {"worker": ["h:2"]}, "task": {"type": "worker", "index": 0}}'
    told = settings.read({"TF_CONFIG": config, settings.VARIABLE: raw + ', "secretFile": "/f"}'})
    progress = to_status(Snapshot(updated=1.0))
    assert progress is not None
    gang = {**pages.gang_status(make_coordinator(), 0.0), "progress": dict.fromkeys(progress, 1)}
    backup = {"step": 1, "bytes": 1, "seconds": 0.1, "violations": 0, "replicasCompared": 1, "replicasDiffer": False}
    gang |= {"backup": backup, "lastRestart": {"lostSteps": 1}, "slowMember": {"member": None}}
    families = {family.name: family for family in text_string_to_metric_families(metrics.metrics(told, gang))}
    assert {name: family.documentation for name, family in families.items()} == metrics.HELP
    assert {family.type for family in families.values()} == {"gauge"}
    labels = [sample.labels.keys() for family in families.values() for sample in family.samples]
    assert len(labels) == len(families) and all(each == set(metrics.LABELS) for each in labels)
