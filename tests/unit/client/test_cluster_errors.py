"""Errors of the API server as one line with the fix, the states to wait for, and the command line's exit codes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.cluster_objects import a_job, a_pod
from tests.support.repository import REPOSITORY
from tftraining_api.kube.api import ApiError
from tftraining_client import ApiUnavailable, JobEnded, JobFailed, NoCustomResource, PermissionDenied, UserError
from tftraining_client.__main__ import main
from tftraining_client.cluster.api_errors import as_user_error, unknown_job
from tftraining_client.cluster.awaited import check_possible, parse_awaited
from tftraining_client.commands.app import parse_duration, whole_seconds
from tftraining_client.commands.doctor import (
    Check,
    check_lines,
    judge_definition,
    judge_dns,
    judge_images,
    judge_operator,
    judge_storage,
)
from tftraining_client.validation.crd import custom_resource

FORBIDDEN = (
    'tftrainingjobs.tftraining.dev is forbidden: User "ada" cannot list resource "tftrainingjobs" in API group '
    '"tftraining.dev" in the namespace "team"'
)


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (
            ApiError(0, "NoAnswer", "refused"),
            ApiUnavailable,
            "cannot reach the API server https://s (context c): refused",
        ),
        (
            ApiError(401, "Unauthorized", "Unauthorized"),
            PermissionDenied,
            "the API server refuses the credentials of context c: log in again",
        ),
        (
            ApiError(403, "Forbidden", FORBIDDEN),
            PermissionDenied,
            "no permission: ada may not list tftrainingjobs.tftraining.dev in namespace team; the cluster role view "
            "contains the right",
        ),
        (
            ApiError(403, "Forbidden", 'User "ada" cannot get resource "pods/log" in API group ""'),
            PermissionDenied,
            "no permission: ada may not get pods/log in all namespaces; the cluster role view contains the right",
        ),
        (
            ApiError(403, "Forbidden", 'admission webhook "x" denied the request: no'),
            PermissionDenied,
            'the API server denies the request: admission webhook "x" denied the request: no',
        ),
        (
            ApiError(404, "", "404 page not found"),
            NoCustomResource,
            "the cluster of context c does not know tftrainingjobs.tftraining.dev: install the operator's chart, or "
            "choose another --context",
        ),
        (
            ApiError(400, "BadRequest", 'strict decoding error: unknown field "spec.restartPolicy.rules[0].role"'),
            UserError,
            "the installed definition of tftrainingjobs.tftraining.dev is older than this client: it lacks "
            "spec.restartPolicy.rules[].role; upgrade the operator's chart, and see `tftj doctor`",
        ),
        (
            ApiError(400, "BadRequest", 'strict decoding error: unknown field "spec.runPolcy"'),
            UserError,
            'the API server refuses the request: strict decoding error: unknown field "spec.runPolcy"; did you mean '
            "spec.runPolicy?",
        ),
        (
            ApiError(409, "AlreadyExists", 'tftrainingjobs.tftraining.dev "mnist" already exists'),
            UserError,
            "job mnist already exists: choose another name, or let the new one take its place with `tftj submit "
            "--replace`: it resumes from the backup, or begins anew with `--replace --fresh`",
        ),
        (ApiError(422, "Invalid", "spec: wrong"), UserError, "the API server refuses the request: spec: wrong"),
        (
            ApiError(502, "", "<html>\n  bad gateway\n</html>"),
            ApiUnavailable,
            "the API server https://s answers 502: <html> bad gateway </html>",
        ),
        (ApiError(503, "", ""), ApiUnavailable, "the API server https://s answers 503"),
    ],
)
def test_an_error_of_the_api_server_is_one_line(error: ApiError, kind: type[UserError], line: str) -> None:
    told = as_user_error(error, "https://s", "c")
    assert (type(told), str(told)) == (kind, line)


def test_an_unknown_job_is_told_with_what_there_is() -> None:
    assert str(unknown_job("mnits", "ns", ["mnist", "digits"])) == (
        "no job mnits in namespace ns; the nearest names: mnist"
    )
    assert str(unknown_job("zzz", "ns", ["mnist"])) == "no job zzz in namespace ns; `tftj list` shows the jobs"
    assert str(unknown_job("zzz", "ns", None)) == "no job zzz in namespace ns"
    assert str(unknown_job("zzz", "ns", [])) == "no job zzz in namespace ns; the namespace has no jobs"


@pytest.mark.parametrize(
    ("text", "phase", "reached"),
    [
        ("succeeded", "Succeeded", True),
        ("Succeeded", "Running", False),
        ("failed", "Failed", True),
        ("finished", "Failed", True),
        ("running", "Running", True),
        ("epoch=3", "Running", True),
        ("epoch=4", "Running", False),
        ("epoch=3", "Succeeded", True),
    ],
)
def test_a_state_is_reached_or_not(text: str, phase: str, reached: bool) -> None:
    assert parse_awaited(text).reached(a_job(phase=phase)) is reached


def test_a_state_that_cannot_come_ends_the_wait() -> None:
    failed = a_job(phase="Failed", reason="SameFailure", message="boom", failure={"pod": "p", "logTail": "a\nb"})
    with pytest.raises(JobFailed) as ended:
        check_possible(parse_awaited("epoch=9"), failed)
    assert str(ended.value) == "job digits failed: SameFailure: boom\na\nb"
    assert ended.value.summary == "job digits failed: SameFailure: boom"
    with pytest.raises(JobEnded, match="job digits has succeeded and will never be epoch=9"):
        check_possible(parse_awaited("epoch=9"), a_job(phase="Succeeded"))
    check_possible(parse_awaited("failed"), failed)
    check_possible(parse_awaited("failed"), a_job())


@pytest.mark.parametrize("text", ["", "done", "epoch", "epoch=", "epoch=-1", "epoch=x"])
def test_a_wrong_state_is_told(text: str) -> None:
    with pytest.raises(UserError, match=r"use succeeded, failed, finished, running, suspended or epoch=NUMBER"):
        parse_awaited(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1h30m5s", 5405)])
def test_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_the_log_of_a_moment_is_that_of_a_second() -> None:
    assert (whole_seconds("0.2"), whole_seconds("1.5m")) == (1, 90)
    with pytest.raises(UserError, match="--since 1d: must be a duration"):
        whole_seconds("1d")


@pytest.mark.parametrize("text", ["", "x", "-1", "1d", "s"])
def test_a_wrong_duration_is_told(text: str) -> None:
    with pytest.raises(UserError, match="must be a duration such as 90s, 10m or 2h"):
        parse_duration(text)


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: one, user: {token: t}}]
contexts:
  - {name: one, context: {cluster: one, user: one}}
  - {name: two, context: {cluster: none, user: one}}
"""


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["list"], 3, "tftj: cannot reach the API server https://127.0.0.1:1 (context one): "),
        (["list", "--context", "three"], 2, "tftj: the kubeconfig has no context three: it has one, two"),
        (["list", "--context", "two"], 2, "tftj: the kubeconfig "),
        (["list", "--kubeconfig", "/none"], 2, "tftj: no kubeconfig: /none does not exist"),
        (["list", "--kubeconfig", __file__], 2, "tftj: the kubeconfig "),
        (["wait", "job", "--for", "done"], 2, "tftj: cannot wait for 'done'"),
        (["wait", "job", "--timeout", "soon"], 2, "tftj: --timeout soon: must be a duration"),
        (["logs", "job", "-f", "--previous"], 2, "tftj: --previous shows containers that have ended"),
        (["submit", "-f", "/none"], 2, "tftj: /none: no such file or directory"),
        (["submit", "-f", "a", "--watch", "--dry-run"], 2, "tftj: --watch follows a job that is created"),
        (["status", "a/b"], 2, "tftj: 'a/b' is not the name of a job"),
        (["status", "."], 2, "tftj: '.' is not the name of a job"),
        (["delete", ".."], 2, "tftj: '..' is not the name of a job"),
        (["doctor"], 1, ""),
    ],
)
def test_bad_input_is_one_line_with_its_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    line: str,
) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert said.startswith(line) and said.count("\n") == (1 if line else 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["scale", "a", "--replicas", "x"],
        ["logs", "a", "--role", "boss"],
        ["wait"],
        ["run", "-f", "job.yaml", "--work", "folder"],
    ],
)
def test_a_wrong_argument_is_one_line_and_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1 and "; see " in said and "--help" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_has_a_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_TFTJ_COMPLETE" in capsys.readouterr().out


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tftraining_client", "completion", "bash"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("command", "redirection", "code", "said"),
    [
        ("completion bash", ">/dev/full", 2, "tftj: cannot write the output: no space left on device\n"),
        ("--help", ">/dev/full", 2, "tftj: cannot write the output: no space left on device\n"),
        ("completion bash", ">&-", 0, ""),
        ("convert -", "<&-", 2, "tftj: -: the file is empty\n"),
        ("convert /none", "2>&-", 2, ""),
        ("convert /none", "2>/dev/full", 2, ""),
    ],
)
def test_a_stream_that_is_full_or_closed_is_no_traceback(command: str, redirection: str, code: int, said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "tftraining_client", *command.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stderr) == (code, said)
    assert redirection != "2>&-" or not done.stdout


def test_an_older_definition_is_told_with_the_fields_that_it_lacks() -> None:
    schema = custom_resource().schema
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    assert judge_definition({"spec": {"versions": [version]}}).result == "ok"
    spec = schema["properties"]["spec"]
    older = {**spec, "properties": {name: each for name, each in spec["properties"].items() if name != "launcher"}}
    version["schema"] = {"openAPIV3Schema": {**schema, "properties": {**schema["properties"], "spec": older}}}
    found = judge_definition({"spec": {"versions": [version]}})
    assert found.result == "failed" and "it lacks spec.launcher, spec.launcher.image" in found.text
    assert judge_definition({"spec": {"versions": [{"name": "v0", "served": True}]}}).result == "failed"
    # The chart has the definition as a template: a release with crds.install upgrades it.
    assert "helm upgrade" in found.fix and "does not update" not in found.fix


def operator_in(namespace: str, watched: str = "", ready: int = 1) -> dict[str, Any]:
    """The Deployment of an operator."""
    labels = {"app.kubernetes.io/version": "0.1.0", "app.kubernetes.io/instance": "tft"}
    container = {"name": "operator", "env": [{"name": "TFTRAINING_NAMESPACES", "value": watched}]}
    return {
        "metadata": {"name": "op", "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready},
    }


def test_an_operator_is_there_ready_and_alone() -> None:
    ok = Check("ok", "operator 0.1.0 (sys/op) is ready, and watches namespace team")
    assert judge_operator([operator_in("sys")], "team") == ok
    assert judge_operator([operator_in("sys", "team,b"), operator_in("other", "c")], "team") == ok
    assert judge_operator([operator_in("sys", ready=0)], "team").text == "operator 0.1.0 (sys/op) is not ready"
    twice = judge_operator([operator_in("sys"), operator_in("other", "team")], "team")
    assert (twice.result, twice.text) == ("warning", "2 operators watch namespace team: other/op, sys/op")
    assert judge_operator([], "team").result == "failed"


def test_a_namespace_that_no_operator_watches_is_told_with_the_upgrade() -> None:
    told = judge_operator([operator_in("sys", "a,b")], "team")
    assert (told.result, told.text) == ("failed", "no operator watches namespace team; watched: a, b")
    upgrade = "helm upgrade tft charts/tftraining-operator --namespace sys --reuse-values"
    assert told.fix.endswith(f"{upgrade} --set 'watchNamespaces={{a,b,team}}'")


def test_a_storage_class_for_one_node_is_not_enough() -> None:
    local = {"metadata": {"name": "local"}, "provisioner": "rancher.io/local-path"}
    shared = {"metadata": {"name": "shared"}, "provisioner": "nfs.csi.k8s.io"}
    assert judge_storage([local]).result == "warning"
    assert judge_storage([local, shared]).text == "storage classes that may offer ReadWriteMany: shared"


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    pods = [a_pod(0).raw, a_pod(1, "ImagePullBackOff").raw]
    pods[1]["status"]["containerStatuses"][0]["image"] = "registry/none:1"
    found = judge_images(pods, "team")
    assert (found.result, found.text) == (
        "failed",
        "an image cannot be pulled: digits-worker-1: registry/none:1 (ImagePullBackOff)",
    )
    assert judge_images(pods[:1], "team").result == "ok"


def test_dns_needs_a_server_that_is_ready() -> None:
    assert (
        judge_dns([{"endpoints": [{"conditions": {"ready": False}}, {"conditions": {"ready": True}}]}]).result == "ok"
    )
    for slices in ([], [{"endpoints": None}], [{"endpoints": [{"conditions": {"ready": False}}]}]):
        assert judge_dns(slices).result == "warning"


def test_the_lines_of_a_check() -> None:
    assert list(check_lines(Check("failed", "no", "do"), False)) == ["failed   no", "         fix: do"]
    assert next(check_lines(Check("ok", "yes"), True)) == "\x1b[32mok     \x1b[0m  yes"
