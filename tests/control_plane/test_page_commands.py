"""The commands of kubectl and Helm on the pages, run as they are written, against a real API server with the jobs of
the pages.

There is no kubelet: Helm waits for no pod, and commands that need one do not run here (NEED_KUBELETS, `helm test`).
What a page only mentions runs if it names its object.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import binaries, release_files
from testbed.shell import run
from tests.control_plane.test_manifests import Manifest, documents
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.page_commands import Command
from tests.support.repository import REPOSITORY
from tests.unit.docs.test_commands import is_tftj, of

NEED_KUBELETS = {"exec", "logs", "port-forward", "rollout"}
# The options of these commands whose value is the next word.
VALUED = {"--namespace", "-n", "--output", "-o", "--filename", "-f", "--type", "-p", "--patch-file", "--selector", "-l"}
FILES = {"--filename", "-f", "--patch-file"}
GIT = {"username": "reader", "password": "secret"}  # files beside the page's `kubectl create secret`


def objects_of(words: tuple[str, ...]) -> list[str]:
    """The words that name what the command is about."""
    pairs = zip(("", *words[2:]), words[2:], strict=False)
    return [word for before, word in pairs if before not in VALUED and not word.startswith("-")]


def is_complete(command: Command) -> bool:
    """Whether the command names its objects; in prose many do not."""
    verb, found = command.words[1], objects_of(command.words)
    if verb == "apply":
        return bool(FILES & {*command.words})
    needed = 1 if verb in ("explain", "get") or any("/" in word for word in found) else 2
    return len(found) >= needed


def of_kubectl() -> list[tuple[str, ...]]:
    """The words of each command, what creates first and what deletes last."""
    chosen = [each for each in of("kubectl") if not is_tftj(each) and each.words[1] not in NEED_KUBELETS]
    found = dict.fromkeys(each.words for each in chosen if each.whole or is_complete(each))
    order = {"apply": 0, "create": 1, "delete": 3}
    return sorted(found, key=lambda words: (order.get(words[1], 2), "crd" in words))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with what the commands name: a checkout, the manifests of a release, a user of Git."""
    for name in ("charts", "crds", "examples"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    release_files.make_chart(REPOSITORY, tmp_path, release_files.Release(), "")
    for name, content in GIT.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def jobs() -> Iterator[Manifest]:
    """The jobs of pages and examples, all in the namespace `default`, where the commands look for them."""
    for each in documents():
        if each["kind"] == "TFTrainingJob" and "name" in each["metadata"]:
            yield {**each, "metadata": {name: v for name, v in each["metadata"].items() if name != "namespace"}}


def prepare(plane: ControlPlane) -> None:
    """Make what the commands expect to find: jobs and two of their pods, an end, and Argo CD's ConfigMap."""
    plane.kubectl("apply", "--server-side", "--filename", REPOSITORY / "crds" / "tftrainingjobs.yaml")
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/tftrainingjobs.tftraining.dev")
    path = "/apis/tftraining.dev/v1/namespaces/default/tftrainingjobs"
    # The last of a name is that of an example, which a page may shorten: an applied template must not change.
    for job in {each["metadata"]["name"]: each for each in jobs()}.values():
        plane.request("POST", path, job)
    ended = {"type": "Succeeded", "status": "True", "reason": "ChiefSucceeded", "message": ""}
    ended["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    # kubectl waits for a status that knows the newest generation; the commands before make new ones.
    change = {"status": {"phase": "Succeeded", "observedGeneration": 99, "conditions": [ended]}}
    plane.request("PATCH", f"{path}/digits/status", change, "application/merge-patch+json")
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    for name in ("my-training-worker-1", "first-job-worker-1"):
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "tensorflow", "image": "none"}]}}
        plane.request("POST", "/api/v1/namespaces/default/pods", pod)
    plane.create_namespace("argocd")
    plane.request("POST", "/api/v1/namespaces/argocd/configmaps", {"metadata": {"name": "argocd-cm"}})


def first_lines(words: list[str], here: Path) -> str:
    """The head and the first row that a watching command prints, which never ends by itself."""
    with subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.readline() + process.stdout.readline()
        process.kill()
    return told


def problem(plane: ControlPlane, words: tuple[str, ...], here: Path) -> str | None:
    """What kubectl says against the command."""
    kubectl = [str(binaries.ensure("kubectl") / "kubectl"), "--kubeconfig", str(plane.kubeconfig)]
    command = [*kubectl, *(word.replace("JOB", "digits") for word in words[1:])]
    if "--watch" in words:
        told = first_lines(command, here)
        return None if told.startswith("NAME") and words[3] in told else told
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr if done.returncode else None


@pytest.mark.slow_fault
def test_kubectl_carries_out_the_commands_of_the_pages(here: Path) -> None:
    commands = of_kubectl()
    assert len(commands) > 20
    with ControlPlane() as plane:
        prepare(plane)
        assert {" ".join(words): told for words in commands if (told := problem(plane, words, here))} == {}
        assert plane.get("secret", "digits-git")["type"] == "kubernetes.io/basic-auth"
        misspelt = ("kubectl", "get", "tftj", "frist-job")
        assert "NotFound" in str(problem(plane, misspelt, here))


def of_helm() -> list[tuple[str, ...]]:
    """The words of each command that installs, without what waits for pods."""
    chosen = [each.words for each in of("helm") if each.words[1] in ("install", "upgrade") and len(each.words) > 4]
    return sorted({tuple(word for word in words if word != "--wait") for words in chosen})


@pytest.mark.slow_fault
@pytest.mark.parametrize("words", of_helm(), ids=" ".join)
def test_helm_carries_out_the_commands_of_the_pages(words: tuple[str, ...], here: Path) -> None:
    helm = binaries.ensure("helm") / "helm"
    with ControlPlane() as plane:
        environment = os.environ | {"HOME": str(plane.directory), "KUBECONFIG": str(plane.kubeconfig)}
        assert "STATUS: deployed" in run([helm, *words[1:]], cwd=here, env=environment)
        template = "jsonpath={.items[*].spec.template.spec.containers[0].image}"
        image = plane.kubectl("get", "deployments", "--namespace", "tftraining-system", "--output", template)
        given = [word.partition("=")[2] for word in words if word.startswith("image.repository=")]
        assert image.rpartition(":")[0] == (given[0] if given else "tftraining-operator")
