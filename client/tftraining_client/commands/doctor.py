"""`tftj doctor`: what a training needs of the cluster, each with the fix if it is missing."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tftraining_api.kube.api import Api, ApiError, Query
from tftraining_api.model.names import GROUP, LABEL_JOB, PLURAL, VERSION
from tftraining_client.cluster.api_errors import as_user_error
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.connection import Connection
from tftraining_client.cluster.paths import core_path
from tftraining_client.commands.output import hint, is_coloured, print_raw
from tftraining_client.validation.crd import custom_resource, fields
from tftraining_client.visible import visible

Result = Literal["ok", "warning", "failed"]
COLOURS = {"ok": 32, "warning": 33, "failed": 31}
CHART = "helm upgrade --install tftraining charts/tftraining-operator --namespace tftraining-system --create-namespace"
DEFINITION = "kubectl apply --server-side -f crds/tftrainingjobs.yaml"
# Of each Deployment of the chart; app.kubernetes.io/name is the chart's nameOverride.
OPERATOR = "app.kubernetes.io/part-of=tftraining"
NAMESPACES = "TFTRAINING_NAMESPACES"  # the operator's variable
# The rights of a person who trains: group, resource, subresource, verb.
RIGHTS = (
    *((GROUP, PLURAL, "", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    (GROUP, PLURAL, "scale", "patch"),
    ("", "pods", "", "list"),
    ("", "pods", "", "watch"),
    ("", "pods", "log", "get"),
    ("", "events", "", "list"),
)
# Provisioners whose volumes can be mounted for writing on one node only.
ONE_NODE = (
    "disk.csi.azure.com",
    "ebs.csi.aws.com",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/gce-pd",
    "kubernetes.io/no-provisioner",
    "pd.csi.storage.gke.io",
    "rancher.io/local-path",
)
DNS = "k8s-app=kube-dns"
# The reasons of a container that waits for its image.
NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
SCHEDULERS = {
    "scheduling.x-k8s.io": "coscheduling",
    "scheduling.volcano.sh": "Volcano",
    "kueue.x-k8s.io": "Kueue",
}


@dataclass(frozen=True)
class Check:
    """One finding; `fix` is what to do about it."""

    result: Result
    text: str
    fix: str = ""


async def examine(client: AsyncClient, output: str | None) -> int:
    """Print each check; 1 if one has failed, otherwise 0."""
    found = []
    async for check in checks(await client.connection(), await client.own_namespace()):
        found.append(check)
        if output is None:
            print("\n".join(check_lines(check, is_coloured())), flush=True)
    failed = any(check.result == "failed" for check in found)
    if output is None:
        hint(*(("doctor",) if failed else ("submit -f FILE", "list")))
    else:
        print_raw({"checks": [asdict(check) for check in found]}, output)
    return 1 if failed else 0


def check_lines(check: Check, coloured: bool) -> Iterator[str]:
    """The lines of a check."""
    word = f"{check.result:<7}"
    word = f"\x1b[{COLOURS[check.result]}m{word}\x1b[0m" if coloured else word
    yield f"{word}  {visible(check.text)}"
    if check.fix:
        yield f"{'':7}  fix: {visible(check.fix)}"


async def checks(connection: Connection, namespace: str) -> AsyncIterator[Check]:
    """The checks, in the order in which one needs the other. An API server that does not answer ends them."""
    api = connection.api
    try:
        version = await api.request("GET", "/version")
    except ApiError as error:
        told = as_user_error(error, connection.server, connection.context)
        yield Check("failed", str(told), "start the cluster or its VPN, or choose another --context")
        return
    yield Check("ok", f"context {connection.context}: Kubernetes {version.get('gitVersion')} at {connection.server}")
    for examination in (_definition, _operator, _rights, _storage, _dns, _images, _schedulers):
        try:
            yield await examination(api, namespace)
        except ApiError as error:
            told = as_user_error(error, connection.server, connection.context)
            yield Check("warning", f"not checked: {told}")


async def _definition(api: Api, namespace: str) -> Check:
    try:
        installed = await api.request(
            "GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{PLURAL}.{GROUP}"
        )
    except ApiError as error:
        if error.status == 404:
            # Helm restores no definition that is gone in a release that has not changed.
            fix = f"restore it: {DEFINITION}" if await _operators(api) else f"install the operator: {CHART}"
            return Check("failed", f"the cluster does not know {PLURAL}.{GROUP}", fix)
        if error.status != 403:
            raise
        await api.request("GET", f"/apis/{GROUP}/{VERSION}")
        return Check("warning", f"{PLURAL}.{GROUP} is installed; its schema cannot be read without a right of its own")
    operators = await _operators(api)
    return judge_definition(installed, _upgrade(operators[0]) if operators else CHART)


def judge_definition(installed: dict[str, Any], upgrade: str = CHART) -> Check:
    """Compare the fields of the installed definition with those that this client knows; `upgrade` is the command."""
    served = [each for each in installed["spec"]["versions"] if each["name"] == VERSION and each.get("served")]
    if not served:
        return Check("failed", f"{PLURAL}.{GROUP} does not serve {VERSION}", DEFINITION)
    theirs = set(fields(served[0]["schema"]["openAPIV3Schema"]))
    missing = sorted(set(fields(custom_resource().schema)) - theirs)
    if missing:
        names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        return Check(
            "failed",
            f"the installed definition of {PLURAL}.{GROUP} is older than this client: it lacks {names}",
            f"upgrade the operator, whose chart updates the definition: {upgrade}; with crds.install=false: "
            f"{DEFINITION}",
        )
    return Check("ok", f"{PLURAL}.{GROUP}/{VERSION} is installed with all fields that this client knows")


async def _operator(api: Api, namespace: str) -> Check:
    found = await _operators(api)
    if found is None:
        return Check(
            "warning", "the operator cannot be checked without the right to list deployments in all namespaces"
        )
    return judge_operator(found, namespace)


async def _operators(api: Api) -> list[dict[str, Any]] | None:
    """The Deployments of operators; None if the caller may not list them."""
    try:
        found, _ = await api.list("/apis/apps/v1/deployments", _labelled(OPERATOR))
    except ApiError as error:
        if error.status != 403:
            raise
        return None
    return found


def judge_operator(deployments: list[dict[str, Any]], namespace: str) -> Check:
    """Whether one operator that is ready watches the namespace, and its version."""
    if not deployments:
        return Check("failed", "no operator is installed", f"install it: {CHART}")
    watching = [each for each in deployments if namespace in (_watched(each) or (namespace,))]
    if not watching:
        return _unwatched(deployments, namespace)
    names = ", ".join(sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in watching))
    chosen = max(watching, key=lambda each: (each.get("status") or {}).get("readyReplicas") or 0)
    meta = chosen["metadata"]
    version = (meta.get("labels") or {}).get("app.kubernetes.io/version", "of an unknown version")
    where = f"operator {version} ({meta['namespace']}/{meta['name']})"
    if not (chosen.get("status") or {}).get("readyReplicas"):
        return Check(
            "failed", f"{where} is not ready", f"kubectl -n {meta['namespace']} describe deployment {meta['name']}"
        )
    if len(watching) > 1:
        return Check(
            "warning",
            f"{len(watching)} operators watch namespace {namespace}: {names}",
            "leave one of them, or give each namespaces of its own (watchNamespaces of the chart): they work twice",
        )
    return Check("ok", f"{where} is ready, and watches namespace {namespace}")


def _watched(deployment: dict[str, Any]) -> list[str]:
    """The namespaces that the operator watches; none if it watches all."""
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    variables = [each for container in pod.get("containers") or () for each in container.get("env") or ()]
    text = next((each.get("value") or "" for each in variables if each["name"] == NAMESPACES), "")
    return [each.strip() for each in text.split(",") if each.strip()]


def _unwatched(deployments: list[dict[str, Any]], namespace: str) -> Check:
    watched = sorted({each for deployment in deployments for each in _watched(deployment)})
    values = f"'watchNamespaces={{{','.join([*_watched(deployments[0]), namespace])}}}'"
    return Check(
        "failed",
        f"no operator watches namespace {namespace}; watched: {', '.join(watched)}",
        f"use --namespace, or let the operator watch it: {_upgrade(deployments[0])} --set {values}",
    )


def _upgrade(deployment: dict[str, Any]) -> str:
    """The upgrade of the release that the operator belongs to."""
    meta = deployment["metadata"]
    release = (meta.get("labels") or {}).get("app.kubernetes.io/instance", "tftraining")
    return f"helm upgrade {release} charts/tftraining-operator --namespace {meta['namespace']} --reuse-values"


async def _rights(api: Api, namespace: str) -> Check:
    missing = []
    for group, resource, subresource, verb in RIGHTS:
        attributes = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
        attributes |= {"subresource": subresource} if subresource else {}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        if not answer.get("status", {}).get("allowed"):
            missing.append(f"{verb} {resource}{f'/{subresource}' if subresource else ''}")
    if missing:
        fix = "ask for the cluster role edit in the namespace (view is enough to look)"
        return Check("failed", f"in namespace {namespace} you may not {', '.join(missing)}", fix)
    return Check("ok", f"in namespace {namespace} you may submit, follow and change jobs")


async def _storage(api: Api, namespace: str) -> Check:
    classes, _ = await api.list("/apis/storage.k8s.io/v1/storageclasses", [])
    return judge_storage(classes)


def judge_storage(classes: list[dict[str, Any]]) -> Check:
    """Whether a StorageClass may give volumes that several nodes write to."""
    shared = sorted(each["metadata"]["name"] for each in classes if each.get("provisioner") not in ONE_NODE)
    if shared:
        return Check("ok", f"storage classes that may offer ReadWriteMany: {', '.join(shared)}")
    return Check(
        "warning",
        "no storage class is known to offer ReadWriteMany; a gang on several nodes needs it for spec.storage",
        "install a driver for NFS, CephFS, EFS or Filestore, or use one node (examples/storage/one-node.yaml)",
    )


async def _dns(api: Api, namespace: str) -> Check:
    path = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
    try:
        slices, _ = await api.list(path, _labelled(DNS))
    except ApiError as error:
        if error.status != 403:
            raise
        return Check("warning", "DNS cannot be checked without the right to list endpointslices in kube-system")
    return judge_dns(slices)


def judge_dns(slices: list[dict[str, Any]]) -> Check:
    """Whether the cluster's DNS has a server that is ready; the members of a gang find each other by name."""
    ends = [each for found in slices for each in found.get("endpoints") or ()]
    if any((each.get("conditions") or {}).get("ready") is not False for each in ends):
        return Check("ok", "the cluster's DNS (kube-system) is ready")
    return Check(
        "warning",
        "no DNS server is ready in kube-system; the members of a gang find each other by name",
        f"kubectl -n kube-system get pods -l {DNS}",
    )


async def _images(api: Api, namespace: str) -> Check:
    pods, _ = await api.list(core_path(namespace, "pods"), _labelled(LABEL_JOB))
    return judge_images(pods, namespace)


def judge_images(pods: list[dict[str, Any]], namespace: str) -> Check:
    """Whether a pod of a job waits for an image that cannot be pulled."""
    waiting = sorted(each for pod in pods for each in _unpulled(pod))
    if not waiting:
        return Check("ok", f"no pod of a job in namespace {namespace} waits for an image that cannot be pulled")
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return Check(
        "failed",
        f"an image cannot be pulled: {waiting[0]}{more}",
        "correct the name of the image, push it to a registry that the nodes reach, or name the registry's Secret in "
        "imagePullSecrets of the pod template",
    )


def _unpulled(pod: dict[str, Any]) -> Iterator[str]:
    status = pod.get("status") or {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        reason = ((each.get("state") or {}).get("waiting") or {}).get("reason")
        if reason in NO_IMAGE:
            yield f"{pod['metadata']['name']}: {each.get('image')} ({reason})"


async def _schedulers(api: Api, namespace: str) -> Check:
    groups = {each["name"] for each in (await api.request("GET", "/apis")).get("groups", ())}
    found = [name for group, name in SCHEDULERS.items() if group in groups]
    return Check("ok", f"gang schedulers and queues: {', '.join(found) if found else 'none (not needed)'}")


def _labelled(selector: str) -> Query:
    return [("labelSelector", selector)]
