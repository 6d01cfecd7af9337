"""Whose operator stays in a cluster when the tests end: by real Helm, on a real API server without kubelets."""

import json

import pytest

from testbed import release
from testbed.kube import Kube
from tests.support.control_plane.apiserver import ControlPlane

# The session's API server has the custom resource and an operator's roles already.
SETTINGS = ("crds.install=false", "fullnameOverride=test-release")


@pytest.fixture
def kube(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Kube:
    monkeypatch.setattr(release, "WAIT", ())  # no kubelet will ever make it ready
    return Kube(control_plane.kubeconfig)


def images(kube: Kube) -> list[str]:
    """The images of the operators that are installed."""
    found = json.loads(kube.kubectl("get", "deployments", "--namespace", release.NAMESPACE, "--output=json"))
    specs = [each["spec"]["template"]["spec"] for each in found["items"] if each["metadata"]["name"] == "test-release"]
    return [spec["containers"][0]["image"] for spec in specs]


def test_an_operator_of_the_tests_goes_with_its_last_user_and_one_that_is_kept_stays(kube: Kube) -> None:
    with release.session(kube, "operator:1", *SETTINGS), release.session(kube, "operator:1", *SETTINGS):
        assert images(kube) == ["operator:1"]
    assert images(kube) == []

    release.keep(kube, "operator:1", *SETTINGS)
    with release.session(kube, "operator:2", *SETTINGS):
        assert images(kube) == ["operator:2"]
    release.tidy(kube)
    assert images(kube) == ["operator:2"]

    release.uninstall(kube)
    with release.session(kube, "operator:1", *SETTINGS):
        pass
    assert images(kube) == [], "what was kept once is not kept for ever"
