"""A user of one namespace who may create jobs, pods, ConfigMaps and Services there, and nothing else anywhere."""

from typing import Any

from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.jobs import JOBS
from tests.support.control_plane.manifests import Manifest

ACCOUNT = "tenant"
RULES = (
    {"apiGroups": ["tftraining.dev"], "resources": ["tftrainingjobs"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "services", "configmaps"], "verbs": ["*"]},
)


class Tenant:
    """The account, with a token of its own."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self.namespace = namespace
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        core = f"/api/v1/namespaces/{namespace}"
        plane.request("POST", f"{core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        plane.request("POST", f"{roles}/roles", {"metadata": {"name": ACCOUNT}, "rules": RULES})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        binding = {"metadata": {"name": ACCOUNT}, "subjects": [subject], "roleRef": role}
        plane.request("POST", f"{roles}/rolebindings", binding)
        asked = plane.request("POST", f"{core}/serviceaccounts/{ACCOUNT}/token", {"spec": {"expirationSeconds": 3600}})
        self.token: str = asked["status"]["token"]
        plane.wait_until_allowed(namespace, self.token, RULES)

    def send(self, method: str, path: str, body: object = None) -> Manifest:
        """Send a request in the tenant's name; WriteRefused if it is refused."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._plane.request(method, path, body, kind, token=self.token)

    def code(self, method: str, path: str, body: object = None) -> int:
        """The status of the answer to such a request."""
        try:
            self.send(method, path, body)
        except WriteRefused as error:
            return error.code
        return 200

    def core(self, kind: str, name: str = "", namespace: str = "") -> str:
        """The path of a collection or object, in the tenant's namespace unless another is named."""
        return f"/api/v1/namespaces/{namespace or self.namespace}/{kind}" + (f"/{name}" if name else "")

    def job(self, name: str = "", namespace: str = "") -> str:
        """The same of jobs."""
        return JOBS.format(namespace or self.namespace) + (f"/{name}" if name else "")

    def create_pod(self, name: str, labels: dict[str, str], owners: list[dict[str, Any]] | None = None) -> int:
        """Create a pod with these labels and owners; the status of the answer."""
        metadata = {"name": name, "labels": labels, "ownerReferences": owners or []}
        spec = {"containers": [{"name": "tensorflow", "image": "x"}]}
        return self.code("POST", self.core("pods"), {"metadata": metadata, "spec": spec})
