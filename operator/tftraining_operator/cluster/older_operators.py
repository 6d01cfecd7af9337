"""Finds running pods of the operator that take no part in the leader election, because their version has none.

Such an operator writes without a lease: the first leader waits until it is gone. The pods of a version with election
carry a label. Never deletes a pod.
"""

from tftraining_api.kube.api import Api
from tftraining_api.model.names import GROUP

LABEL_ELECTION = f"{GROUP}/leader-election"
# An evicted or completed pod may stay for long, and runs nothing.
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


async def older_operator(api: Api, namespace: str, selector: str) -> str:
    """Why no process of this version may lead yet, "" if none runs. `selector` selects the operator's pods by their
    labels; an empty one finds none. Raises ApiError."""
    if not selector:
        return ""
    query = [("labelSelector", f"{selector},!{LABEL_ELECTION}"), ("fieldSelector", RUNNING), ("limit", "1")]
    found = (await api.request("GET", f"/api/v1/namespaces/{namespace}/pods", query=query))["items"]
    if not found:
        return ""
    name = found[0]["metadata"]["name"]
    return (
        f"the operator's pod {name} is of a version without leader election; if its node is lost: "
        f"kubectl delete pod {name} --namespace {namespace} --force"
    )
