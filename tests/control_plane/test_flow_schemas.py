"""The FlowSchemas of docs/scale.md: the API server takes them, and puts the operator's requests where the page says."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chart import Manifest, of_kind, render
from tests.support.control_plane.jobs import wait_until
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY

FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
# As on the page.
RELEASE, NAMESPACE = "tftraining", "tftraining-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def on_the_page() -> list[Manifest]:
    (text,) = [each.text for each in blocks(REPOSITORY / "docs/scale.md") if each.language == "yaml"]
    return list(yaml.safe_load_all(text))


@pytest.fixture
def schemas(control_plane: ControlPlane) -> Iterator[list[Manifest]]:
    """The FlowSchemas of the page, which are gone after the test."""
    made = [control_plane.request("POST", f"{FLOW_CONTROL}/flowschemas", each) for each in on_the_page()]
    yield made
    for each in made:
        control_plane.request("DELETE", f"{FLOW_CONTROL}/flowschemas/{each['metadata']['name']}")


def placed(plane: ControlPlane, account: str, method: str, path: str) -> tuple[str, str]:
    """The UIDs of FlowSchema and priority level that a request of the account gets; a refused request has both, too."""
    headers = {
        "Authorization": f"Bearer {plane.token}",
        "Impersonate-User": f"system:serviceaccount:{NAMESPACE}:{account}",
        "Impersonate-Group": "system:serviceaccounts",
    }
    request = urllib.request.Request(plane.url + path, headers=headers, method=method)
    context = ssl.create_default_context(cafile=plane.ca)
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            found = answer.headers
    except urllib.error.HTTPError as error:
        with error:
            found = error.headers
    return found["X-Kubernetes-PF-FlowSchema-UID"], found["X-Kubernetes-PF-PriorityLevel-UID"]


def test_the_operators_requests_get_the_priority_that_the_page_gives_them(
    control_plane: ControlPlane, schemas: list[Manifest]
) -> None:
    chart = render({}, NAMESPACE, RELEASE)
    account = of_kind(chart, "ServiceAccount")[0]["metadata"]["name"]
    (lease,) = {
        name
        for role in of_kind(chart, "Role")
        for rule in role["rules"]
        if "leases" in rule["resources"]
        for name in rule.get("resourceNames", [])
    }
    levels = control_plane.request("GET", f"{FLOW_CONTROL}/prioritylevelconfigurations")["items"]
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in [*levels, *schemas]}
    jobs = "/apis/tftraining.dev/v1/tftrainingjobs"
    expected = {
        ("GET", jobs): ("tftraining-operator", "workload-high"),
        ("DELETE", "/api/v1/namespaces/default/pods/none"): ("tftraining-operator", "workload-high"),
        ("GET", f"{LEASES}/{lease}"): ("tftraining-operator-lease", "leader-election"),
        ("PATCH", f"{LEASES}/{lease}"): ("tftraining-operator-lease", "leader-election"),
    }

    def are_placed() -> bool:
        return all(
            placed(control_plane, account, *request) == (uids[schema], uids[level])
            for request, (schema, level) in expected.items()
        )

    wait_until(are_placed, "the API server goes by the new schemas")
    assert placed(control_plane, "another", "GET", jobs)[0] not in {uids[each["metadata"]["name"]] for each in schemas}
