"""All commands of `tftj` on a real API server: what each says on a terminal, in a pipe, and about bad input."""

import contextlib
import copy
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane.test_client import VIEW, Terminal, service_account
from tests.support.client.cluster_objects import HISTORY, RAW
from tests.support.client.tfjobs import FILES
from tests.support.client.verbs import CLUSTER_VERBS, JOB, OF_A_JOB, WITH_POD, words
from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.installation import CRD, install_crd
from tests.support.control_plane.jobs import JOBS, wait_until
from tests.support.control_plane.manifests import minimal
from tftraining_api.model.names import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from tftraining_client.__main__ import main

MERGE = "application/merge-patch+json"
STATUS = {**RAW["status"], "history": HISTORY}


def create_job(plane: ControlPlane, namespace: str, name: str = JOB) -> None:
    """A job that trains, which no operator touches."""
    manifest = minimal(name)
    manifest["spec"]["runPolicy"] = {"managedBy": "tests.example/verbs"}
    manifest["spec"]["storage"] = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    plane.request("POST", JOBS.format(namespace), manifest)
    plane.request("PATCH", f"{JOBS.format(namespace)}/{name}/status", {"status": STATUS}, MERGE)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Give the file of a job of another name, which no operator touches either: nothing collects its pods here."""
    path, job = tmp_path / "job.yaml", minimal("other")
    job["spec"]["runPolicy"] = {"managedBy": "tests.example/verbs"}
    path.write_text(yaml.safe_dump(job))
    return path


class Spoken:
    """Runs commands in this process: exit code, output, and messages of each."""

    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err


def one_line(said: tuple[int, str, str], code: int, text: str) -> None:
    assert said[0] == code and re.fullmatch(f"tftj: {text}\n", said[2]), said


RUN_ALL = """\
import json, sys
from tftraining_client.__main__ import main
for words in json.loads(sys.argv[1]):
    for stream in {sys.stdout} if sys.stdout.isatty() else (sys.stdout, sys.stderr):
        print("$", *words, file=stream, flush=True)
    code = main(words)
    print("exit code", code, flush=True)
"""


def spoken_verbs(manifest: Path) -> list[list[str]]:
    """Each command that ends by itself, in an order in which each finds its job."""
    others = [each for each in OF_A_JOB if each not in (*WITH_POD, "top", "wait", "delete")]
    return [
        ["list"],
        *(words(verb, manifest) for verb in others),
        ["wait", JOB, "--for", "running"],
        ["wait", JOB, "--for", "epoch=3"],
        ["doctor"],
        ["submit", "-f", str(manifest), "--dry-run"],
        ["submit", "-f", str(manifest), "--code", str(code_of(manifest.parent))],
        ["delete", JOB, "other"],
        ["list", "-l", "none=none"],
        ["convert", str(FILES[0])],
        ["completion", "bash"],
    ]


def code_of(directory: Path) -> Path:
    """A directory with a program."""
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text("print('trains')\n")
    return code


def parts(text: str) -> dict[str, list[str]]:
    """The lines of each command in the output of RUN_ALL."""
    return {each.splitlines()[0]: each.splitlines()[1:] for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]}


@pytest.mark.parametrize("columns", [40, *(pytest.param(each, marks=pytest.mark.slow_fault) for each in (80, 200))])
def test_each_command_tells_the_next_commands_on_a_terminal(
    control_plane: ControlPlane, namespace: str, manifest: Path, columns: int
) -> None:
    create_job(control_plane, namespace)
    verbs = spoken_verbs(manifest)
    kubeconfig = kubeconfig_of(control_plane, namespace, manifest.parent)
    with Terminal(kubeconfig, columns, json.dumps(verbs), program=("-c", RUN_ALL)) as terminal:
        assert terminal.read_to_the_end() == 0, terminal.text
    said = parts("\n".join(terminal.lines))
    assert list(said) == [" ".join(each) for each in verbs] and "Traceback" not in terminal.text
    for verb, lines in said.items():
        assert lines[-1] == f"exit code {1 if verb == 'doctor' else 0}", (verb, lines)
        assert re.match("next: (tftj|source) ", lines[-2]), (verb, lines)
        if verb.split()[0] in ("list", "status", "plot"):
            assert max(len(line) for line in lines[:-2]) <= columns, (verb, lines)
    with Terminal(kubeconfig, columns, "dashboard") as terminal:
        terminal.read_until("Ctrl-C ends the dashboard")
    assert re.match(r"http://127\.0\.0\.1:\d+/", terminal.lines[0])


def kubeconfig_of(plane: ControlPlane, namespace: str, directory: Path) -> Path:
    """The administrator's kubeconfig with the namespace in its context."""
    document = yaml.safe_load(plane.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = namespace
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_no_command_says_more_in_a_pipe(control_plane: ControlPlane, namespace: str, manifest: Path) -> None:
    create_job(control_plane, namespace)
    verbs = spoken_verbs(manifest)
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(verbs)],
        env={**os.environ, "KUBECONFIG": str(kubeconfig_of(control_plane, namespace, manifest.parent))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "next:" not in done.stdout + done.stderr and "\x1b" not in done.stdout
    said, noted = parts(done.stdout), parts(done.stderr)
    assert list(said) == list(noted) == [" ".join(each) for each in verbs]
    # What is no output is told: what a program has, a difference of a TFJob, no pods, no jobs.
    assert {verb.split()[0] for verb, lines in noted.items() if lines} == {"submit", "logs", "list", "convert"}, noted
    assert said["list"][0].split() == ["NAME", "PHASE", "READY", "RESTARTS", "PROGRESS", "AGE"]
    assert said["list -l none=none"] == ["exit code 0"]
    assert said[f"scale {JOB} --replicas 3"][0] == f"tftrainingjob.tftraining.dev/{JOB} scaled to 3 workers"


def test_the_next_commands_name_the_cluster_that_was_given(control_plane: ControlPlane, namespace: str) -> None:
    create_job(control_plane, namespace)
    with Terminal(control_plane.kubeconfig, 80, "list", "-n", namespace, "--context", "plane") as terminal:
        assert terminal.read_to_the_end() == 0
    scope = f"--namespace {namespace} --context plane"
    assert terminal.lines[-1] == f"next: tftj status JOB --watch {scope}; tftj logs JOB --follow {scope}"
    failed = {"status": {"phase": "Failed", "reason": "SameFailure", "message": "boom"}}
    control_plane.request("PATCH", f"{JOBS.format(namespace)}/{JOB}/status", failed, MERGE)
    with Terminal(control_plane.kubeconfig, 80, "wait", JOB, "-n", namespace) as terminal:
        assert terminal.read_to_the_end() == 1
    explain = f"tftj explain {JOB} --namespace {namespace}"
    assert terminal.lines[0] == f"tftj: job {JOB} failed: SameFailure: boom"
    assert terminal.lines[1].startswith(f"next: {explain}; tftj logs {JOB} --tail 50")


def test_each_format_of_a_command_can_be_read_by_a_program(
    control_plane: ControlPlane,
    namespace: str,
    manifest: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_job(control_plane, namespace)
    tftj = Spoken(control_plane.kubeconfig, capsys, monkeypatch)
    of_job = ("status", "suspend", "resume", "restart", "scale")
    for verb in of_job:
        for output in ("json", "yaml", "name"):
            code, out, _ = tftj(*words(verb, manifest), "-o", output, "-n", namespace)
            name = f"tftrainingjob.tftraining.dev/{JOB}\n"
            found = out == name if output == "name" else yaml.safe_load(out)["metadata"]["name"] == JOB
            assert code == 0 and found, (verb, output, out)
    for output in ("json", "yaml"):
        assert json_or_yaml(tftj("wait", JOB, "--for=running", "-o", output, "-n", namespace))["spec"]["replicaSpecs"]
        told = json_or_yaml(tftj("explain", JOB, "-o", output, "-n", namespace))
        assert (told["job"], told["phase"], told["lastRestart"]["lostSteps"]) == (JOB, "Running", 42)
        code, out, _ = tftj("doctor", "-o", output, "-n", namespace)
        assert code == 1 and {each["result"] for each in yaml.safe_load(out)["checks"]} >= {"ok", "failed"}
    assert tftj("delete", JOB, "-o", "name", "-n", namespace)[1] == f"tftrainingjob.tftraining.dev/{JOB}\n"


def json_or_yaml(said: tuple[int, str, str]) -> dict[str, Any]:
    assert said[0] == 0, said
    found: dict[str, Any] = yaml.safe_load(said[1])
    return found


def test_each_command_names_the_missing_right(
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    manifest: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_job(control_plane, namespace)
    user = f"system:serviceaccount:{namespace}:person"

    def lacks(right: str, role: str) -> str:
        where = f"in namespace {namespace}; the cluster role {role} contains the right"
        return f"no permission: {user} may not {right} {where}"

    nobody = Spoken(service_account(control_plane, namespace, [], tmp_path), capsys, monkeypatch)
    first = {
        "list": "list tftrainingjobs.tftraining.dev",
        "dashboard": "list tftrainingjobs.tftraining.dev",
        "submit": "create tftrainingjobs.tftraining.dev",
        "convert": "get tfjobs.kubeflow.org",
    }
    for verb in CLUSTER_VERBS:
        said = nobody(*words(verb, manifest))
        if verb == "doctor":
            assert said[0] == 1 and "you may not get tftrainingjobs, list tftrainingjobs" in said[1]
            continue
        right = first.get(verb, "get tftrainingjobs.tftraining.dev")
        one_line(said, 2, lacks(right, "(view|edit)"))
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/person"
    control_plane.request("PATCH", rbac, {"rules": VIEW}, MERGE)
    changes = {
        "submit": "create tftrainingjobs.tftraining.dev",
        "suspend": "patch tftrainingjobs.tftraining.dev",
        "resume": "patch tftrainingjobs.tftraining.dev",
        "restart": "patch tftrainingjobs.tftraining.dev",
        "delete": "delete tftrainingjobs.tftraining.dev",
        **dict.fromkeys(WITH_POD, "create pods"),
        "scale": "patch tftrainingjobs/scale.tftraining.dev",
    }
    wait_until(lambda: nobody("list")[0] == 0, "the right to look")
    for verb, right in changes.items():
        one_line(nobody(*words(verb, manifest)), 2, lacks(right, "edit"))
    # The other namespaces of the cluster stay hidden.
    assert nobody("list", "-o", "name") == (0, f"tftrainingjob.tftraining.dev/{JOB}\n", "")
    for verb in ("list", "status", "top"):
        said = nobody(*words(verb, manifest)[:2], "-n", "default")
        one_line(
            said, 2, lacks("(get|list) tftrainingjobs.tftraining.dev", "view").replace(namespace + ";", "default;")
        )


def test_each_command_tells_an_unknown_job_with_the_nearest_names(
    control_plane: ControlPlane,
    namespace: str,
    manifest: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_job(control_plane, namespace)
    tftj = Spoken(control_plane.kubeconfig, capsys, monkeypatch)
    for verb in OF_A_JOB:
        said = tftj(*words(verb, manifest, "digit"), "-n", namespace)
        one_line(said, 2, f"no job digit in namespace {namespace}; the nearest names: {JOB}")
        assert said[1] == ""


def test_a_job_that_vanishes_ends_each_command_that_follows_it(
    control_plane: ControlPlane,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tftj = Spoken(control_plane.kubeconfig, capsys, monkeypatch)
    for verb in (["status", JOB, "--watch"], ["logs", JOB, "--follow"], ["wait", JOB]):
        create_job(control_plane, namespace)
        with later(lambda: control_plane.request("DELETE", f"{JOBS.format(namespace)}/{JOB}")):
            one_line(tftj(*verb, "-n", namespace), 1, f"job {JOB} was deleted .*")


FINISHED = {"status": {"phase": "Succeeded", "reason": "Done"}}


@pytest.fixture
def tftj(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Spoken:
    """Give the commands, in the role of an administrator."""
    return Spoken(control_plane.kubeconfig, capsys, monkeypatch)


def test_nothing_is_done_to_a_job_that_has_ended(control_plane: ControlPlane, namespace: str, tftj: Spoken) -> None:
    create_job(control_plane, namespace)
    control_plane.request("PATCH", f"{JOBS.format(namespace)}/{JOB}/status", FINISHED, MERGE)
    before = control_plane.request("GET", f"{JOBS.format(namespace)}/{JOB}")
    for verb in (["suspend"], ["resume"], ["scale", "--replicas", "3"], ["restart"]):
        said = tftj(verb[0], JOB, *verb[1:], "-n", namespace)
        one_line(said, 2, rf"job {JOB} has ended \(Succeeded\): `tftj submit --replace -f FILE` resumes from .*")
    assert control_plane.request("GET", f"{JOBS.format(namespace)}/{JOB}")["spec"] == before["spec"]
    assert tftj("wait", JOB, "--timeout", "0", "-n", namespace)[0] == 0
    assert tftj("wait", JOB, "--for", "epoch=99", "--timeout", "0", "-n", namespace)[0] == 1


def test_delete_takes_the_names_of_list_and_misses_none(
    control_plane: ControlPlane, namespace: str, tftj: Spoken
) -> None:
    for name in ("a", "b"):
        create_job(control_plane, namespace, name)
    names = tftj("list", "-o", "name", "-n", namespace)[1].split()
    code, out, err = tftj("delete", names[0], "missing", names[1], "gone", "-n", namespace)
    assert code == 2 and sorted(out.split()[::2]) == names
    assert [line.split(" in ")[0] for line in err.splitlines()] == ["tftj: no job missing", "tftj: no job gone"]
    assert tftj("list", "-n", namespace) == (0, "", f"tftj: no jobs in namespace {namespace}\n")


def test_delete_takes_labels_a_file_or_all_and_never_two_of_them(
    control_plane: ControlPlane, namespace: str, tftj: Spoken, tmp_path: Path
) -> None:
    for name in ("a", "b", "c", "d"):
        create_job(control_plane, namespace, name)
    labels = {"metadata": {"labels": {"team": "x"}}}
    control_plane.request("PATCH", f"{JOBS.format(namespace)}/a", labels, MERGE)

    def left() -> list[str]:
        return [each.partition("/")[2] for each in tftj("list", "-o", "name", "-n", namespace)[1].split()]

    for wrong in ([], ["--all", "a"], ["-l", "team=x", "--all"], ["-l", ""]):
        one_line(tftj("delete", *wrong, "-n", namespace), 2, "delete takes the names of jobs, or one of .*")
    assert tftj("-n", namespace, "delete", "-l", "team=x")[0] == 0 and left() == ["b", "c", "d"]
    assert tftj("delete", "-l", "team=x", "-n", namespace) == (0, "", "tftj: there is no such job\n")

    file = tmp_path / "jobs.yaml"
    elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "elsewhere"}}
    here = minimal("c")
    here["metadata"]["namespace"] = namespace
    file.write_text(yaml.safe_dump_all([elsewhere, here]))
    one_line(tftj("delete", "-f", str(file), "-n", "default"), 2, f"the manifest is for namespace {namespace}, not .*")
    assert tftj("delete", "-f", str(file))[0] == 0 and left() == ["b", "d"]
    file.write_text(yaml.safe_dump(elsewhere))
    one_line(tftj("delete", "-f", str(file)), 2, f"{file}: found no TFTrainingJob")
    assert tftj(f"--namespace={namespace}", "delete", "--all")[0] == 0 and left() == []


def test_a_role_that_may_get_and_not_list(
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_job(control_plane, namespace)
    rules = [{"apiGroups": ["tftraining.dev"], "resources": ["tftrainingjobs"], "verbs": ["get", "delete"]}]
    tftj = Spoken(service_account(control_plane, namespace, rules, tmp_path), capsys, monkeypatch)
    wait_until(lambda: tftj("status", JOB)[0] == 0, "the right to get")
    one_line(tftj("status", "other"), 2, f"no job other in namespace {namespace}")
    code, out, err = tftj("delete", JOB)
    assert (code, out) == (0, f"tftrainingjob.tftraining.dev/{JOB} deleted\n") and "may not list pods" in err


def pod_of(plane: ControlPlane, namespace: str, uid: str, name: str) -> None:
    """A pod of the job of the UID."""
    owner = {"apiVersion": "tftraining.dev/v1", "kind": "TFTrainingJob", "name": JOB, "uid": uid}
    labels = {LABEL_JOB: JOB, LABEL_ROLE: "worker", LABEL_INDEX: "0"}
    metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
    plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def event_about(plane: ControlPlane, namespace: str, uid: str, reason: str) -> None:
    about = {
        "kind": "TFTrainingJob",
        "apiVersion": "tftraining.dev/v1",
        "name": JOB,
        "namespace": namespace,
        "uid": uid,
    }
    event = {"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": reason, "message": reason}
    plane.request("POST", f"/api/v1/namespaces/{namespace}/events", event)


def test_an_earlier_job_of_the_name_is_another_job(control_plane: ControlPlane, namespace: str, tftj: Spoken) -> None:
    create_job(control_plane, namespace)
    uid = control_plane.request("GET", f"{JOBS.format(namespace)}/{JOB}")["metadata"]["uid"]
    for each, kind in (("0" * 8 + uid[8:], "earlier"), (uid, "own")):
        pod_of(control_plane, namespace, each, f"pod-{kind}")
        event_about(control_plane, namespace, each, f"{kind}-event")
    watch = ("status", JOB, "-w", "-o", "wide", "-n", namespace)
    path = f"{JOBS.format(namespace)}/{JOB}/status"
    with (
        later(lambda: control_plane.request("PATCH", path, FINISHED, MERGE)),
        Terminal(control_plane.kubeconfig, 200, *watch) as terminal,
    ):
        assert terminal.read_to_the_end() == 0
    for out in (tftj("status", JOB, "-o", "wide", "-n", namespace)[1], terminal.text):
        assert "own-event" in out and "pod-own" in out and "earlier" not in out


def test_deletion_and_suspension_wait_for_the_pods(control_plane: ControlPlane, namespace: str, tftj: Spoken) -> None:
    create_job(control_plane, namespace)
    path = f"{JOBS.format(namespace)}/{JOB}"
    uid = control_plane.request("GET", path)["metadata"]["uid"]
    control_plane.request("PATCH", f"{path}/status", {"status": {"phase": "Suspended"}}, MERGE)
    pod_of(control_plane, namespace, uid, "pod-own")
    assert tftj("wait", JOB, "--for", "suspended", "--timeout", "0.5", "-n", namespace)[0] == 124
    pod = f"/api/v1/namespaces/{namespace}/pods/pod-own"

    def end() -> None:
        with contextlib.suppress(WriteRefused):  # an operator may have deleted the pod of a job that is gone
            control_plane.request("DELETE", pod)

    for command in (["wait", JOB, "--for", "suspended"], ["delete", JOB]):
        with later(end):
            assert tftj(*command, "-n", namespace)[0] == 0
            with pytest.raises(WriteRefused, match="404"):
                control_plane.request("GET", pod)
        pod_of(control_plane, namespace, uid, "pod-own")


def test_a_status_that_is_watched_prints_an_object_a_change(
    control_plane: ControlPlane, namespace: str, tftj: Spoken
) -> None:
    path = f"{JOBS.format(namespace)}/{JOB}"
    for output in ("json", "yaml", "name"):
        create_job(control_plane, namespace)
        with later(lambda: control_plane.request("PATCH", f"{path}/status", FINISHED, MERGE)):
            code, out, _ = tftj("status", JOB, "-w", "-o", output, "-n", namespace)
        assert code == 0 and out.count(f"/{JOB}\n" if output == "name" else "resourceVersion") == 2, out
        assert "managedFields" not in out
        assert output != "yaml" or [each["status"]["phase"] for each in yaml.safe_load_all(out)][1] == "Succeeded"
        assert tftj("delete", JOB, "-n", namespace)[0] == 0


def test_logs_of_a_replica_that_the_job_does_not_have(
    control_plane: ControlPlane, namespace: str, tftj: Spoken
) -> None:
    create_job(control_plane, namespace)
    for options in (["--index", "9"], ["--index", "9", "-f"], ["--role", "ps"]):
        said = tftj("logs", JOB, *options, "-n", namespace)
        one_line(said, 2, f"job {JOB} has no replica (9|ps); it has worker-0.*")


def test_a_program_for_a_generated_name(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, tftj: Spoken
) -> None:
    job = minimal()
    job["metadata"] = {"generateName": "train-"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    names = set()
    for _ in range(2):
        code, out, err = tftj("submit", "-f", str(file), "--code", str(code_of(tmp_path)), "-n", namespace)
        assert code == 0, err
        names.add(out.split()[0].rpartition("/")[2])
    assert len(names) == 2 and all(each.startswith("train-") for each in names)


class later:
    """Does the work soon, in a thread."""

    def __init__(self, work: Callable[[], object], seconds: float = 0.4) -> None:
        self._timer = threading.Timer(seconds, work)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.join()


@pytest.mark.slow_fault
def test_credentials_that_end_are_told_by_a_command_that_follows(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    create_job(control_plane, namespace)
    person = service_account(control_plane, namespace, VIEW, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "tftraining_client", "status", JOB, "--watch"],
        env={**os.environ, "KUBECONFIG": str(person)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None and following.stdout.readline().startswith("Running")
        control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/person")
        control_plane.restart_apiserver()  # it remembers tokens
        _, told = following.communicate(timeout=60)
    *interrupted, last = told.splitlines()
    assert following.returncode == 2 and "Traceback" not in told, told
    assert last == "tftj: the API server refuses the credentials of context plane: log in again"
    assert all("was interrupted and goes on" in line for line in interrupted), told


@pytest.mark.slow_fault
def test_a_reader_that_has_gone_ends_each_command_quietly(
    control_plane: ControlPlane, namespace: str, manifest: Path
) -> None:
    create_job(control_plane, namespace)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig_of(control_plane, namespace, manifest.parent))}
    running = []
    for verb in (["list"], ["status", JOB], ["explain", JOB], ["plot", JOB], ["doctor"], ["status", JOB, "--watch"]):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "tftraining_client", *verb]
        running.append(subprocess.Popen(command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True))
        os.close(writing)
    for process in running:
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (141, ""), process.args


@pytest.fixture
def bare_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Give an API server that knows no TFTrainingJob."""
    with ControlPlane() as plane:
        yield plane


@pytest.mark.slow_fault
def test_a_cluster_without_the_definition_and_with_an_older_one(
    bare_plane: ControlPlane, manifest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tftj = Spoken(bare_plane.kubeconfig, capsys, monkeypatch)
    unknown = (
        "the cluster of context plane does not know tftrainingjobs.tftraining.dev: install the operator's chart, or "
    )
    for verb in CLUSTER_VERBS:
        said = tftj(*words(verb, manifest))
        if verb == "doctor":
            assert said[0] == 1 and "the cluster does not know tftrainingjobs.tftraining.dev" in said[1]
        elif verb == "convert":
            one_line(
                said, 2, "the cluster of context plane does not know tfjobs.kubeflow.org/v1: convert a file instead"
            )
        else:
            one_line(said, 2, unknown + "choose another --context")
    install_older_crd(bare_plane)
    create_job_of_older(bare_plane)
    older = "the installed definition of tftrainingjobs.tftraining.dev is older than this client: it lacks "
    upgrade = "; upgrade the operator's chart, and see `tftj doctor`"
    wanted = minimal("other")
    wanted["spec"]["restartPolicy"] = {"rules": [{"action": "Fail", "exitCodes": [1]}]}
    manifest.write_text(yaml.safe_dump(wanted))
    one_line(tftj("submit", "-f", str(manifest)), 2, f"{older}spec.restartPolicy{upgrade}")
    one_line(tftj("scale", JOB, "--replicas", "3"), 2, f"{older}the subresource scale{upgrade}")
    one_line(tftj("plot", JOB), 2, ".*no metrics.*|.*history.*")
    examined = tftj("doctor")
    assert examined[0] == 1 and "is older than this client: it lacks " in examined[1]
    for verb in ("status", "explain", "suspend", "resume", "restart", "logs", "list", "delete"):
        assert tftj(*words(verb, manifest))[0] == 0, verb


def install_older_crd(plane: ControlPlane) -> None:
    """The definition of an earlier version, without some fields and without the subresource scale."""
    older = yaml.safe_load(CRD.read_text())
    (version,) = older["spec"]["versions"]
    del version["subresources"]["scale"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    for part, names in (("spec", ("restartPolicy", "code")), ("status", ("history",))):
        for name in names:
            schema[part]["properties"].pop(name)
    schema["spec"].pop("x-kubernetes-validations", None)
    path = plane.directory / "older.yaml"
    path.write_text(yaml.safe_dump(older))
    install_crd(plane, path)


def create_job_of_older(plane: ControlPlane) -> None:
    status = copy.deepcopy(STATUS)
    plane.request("POST", JOBS.format("default"), minimal(JOB))
    plane.request("PATCH", f"{JOBS.format('default')}/{JOB}/status", {"status": status}, MERGE)
