"""TensorBoard's pod, and the port-forward to it, against a server that speaks Kubernetes' protocol."""

import asyncio
import re
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from tests.support.client.cluster_objects import a_job
from tftraining_api.kube.api import Api, ApiError
from tftraining_client.cluster.helper_pod import placed, volume_of
from tftraining_client.cluster.job_files import BY_BUCKET as COPY_BY_BUCKET
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.port_forward import PROTOCOL, connected, forwarded, received
from tftraining_client.cluster.tensorboard import BY_BUCKET, pod_state
from tftraining_client.errors import PermissionDenied, UserError

PATH = "/api/v1/namespaces/ns/pods/board"


async def kubelet(request: web.Request) -> web.StreamResponse:
    """Answers as a pod whose program shouts each chunk back; 403 for another port."""
    if request.query["ports"] != "6006":
        raise web.HTTPForbidden(text="no")
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    for channel in (0, 1):
        await socket.send_bytes(bytes([channel]) + (6006).to_bytes(2, "little"))
    async for message in socket:
        assert message.data[0] == 0
        if message.data[1:] == b"end":
            await socket.send_bytes(b"\x01connection refused")
        else:
            await socket.send_bytes(b"\x00" + message.data[1:].upper())
    return socket


@pytest.fixture
async def api() -> Any:
    app = web.Application()
    app.router.add_get(f"{PATH}/portforward", kubelet)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api = Api(RESTClientObject(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")))
    yield api
    await api.close()
    await runner.cleanup()


async def test_connections_are_forwarded_at_the_same_time(api: Api) -> None:
    async with asyncio.timeout(20), forwarded(api, PATH, 6006, 0) as (port, _):
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for number, (reader, writer) in enumerate(ends):
            writer.write(f"chunk {number}".encode())
            assert await reader.readexactly(7) == f"CHUNK {number}".encode()
        reader, writer = ends[0]
        writer.write(b"end")
        assert await reader.read() == b"", "an error in the pod ends the connection, not the forwarding"
        for _, writer in ends:
            writer.close()


async def test_a_refusal_ends_the_forwarding(api: Api) -> None:
    async with asyncio.timeout(20), forwarded(api, PATH, 7000, 0) as (port, forward):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(PermissionDenied, match="may not use pods/portforward"):
            await forward.failed


async def test_a_token_that_has_expired_is_renewed_once() -> None:
    refusals: list[int] = []

    async def guarded(request: web.Request) -> web.StreamResponse:
        if len(refusals) < 2:
            refusals.append(401)
            raise web.HTTPUnauthorized
        return await kubelet(request)

    async def renewed() -> bool:
        return len(refusals) == 2

    app = web.Application()
    app.router.add_get(f"{PATH}/portforward", guarded)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    api = Api(RESTClientObject(configuration), refused=renewed)
    with pytest.raises(ApiError, match="401"):
        async with connected(api, PATH, 6006):
            pass
    async with asyncio.timeout(20), connected(api, PATH, 6006) as socket:
        await socket.send_bytes(b"\x00text")
        assert await anext(received(socket)) == b"TEXT"
    assert refusals == [401, 401]
    await api.close()
    await runner.cleanup()


async def test_a_port_that_is_taken_is_told(api: Api) -> None:
    async with forwarded(api, PATH, 6006, 0) as (port, _):
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}: .*; choose another --port"):
            async with forwarded(api, PATH, 6006, port):
                pass


def test_a_job_without_a_shared_storage_is_told() -> None:
    with pytest.raises(UserError, match=r"job digits has no spec\.storage"):
        volume_of(a_job(), "TensorBoard", BY_BUCKET)
    raw = a_job().raw
    raw["spec"] = {**raw["spec"], "storage": {"volume": {"emptyDir": {}}}, "template": {"spec": {"containers": []}}}
    with pytest.raises(UserError, match="belongs to one pod"):
        volume_of(Job.of(raw), "TensorBoard", BY_BUCKET)
    raw["spec"]["storage"] = {"uri": "gs://bucket/team"}
    for words, command in (
        (BY_BUCKET, "run tensorboard --logdir gs://bucket/team/digits with your own"),
        (COPY_BY_BUCKET, "such as gcloud storage cp --recursive gs://bucket/team/digits/PATH ., with your own"),
    ):
        with pytest.raises(UserError, match=re.escape(f"{command} credentials")):
            volume_of(Job.of(raw), "TensorBoard", words)


def status(state: dict[str, Any], ready: bool = False) -> dict[str, Any]:
    container = {"name": "tensorboard", "ready": ready, "state": state}
    return {"status": {"phase": "Pending", "containerStatuses": [container]}}


def test_the_pod_tells_what_it_waits_for_and_why_it_ended() -> None:
    assert pod_state(status({"running": {}}, ready=True)) == ""
    assert pod_state(status({"waiting": {"reason": "ErrImagePull"}})) == "ErrImagePull"
    full = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    assert pod_state({"status": {"phase": "Pending", "conditions": [full]}}) == "0/1 nodes are available"
    ended = {"exitCode": 1, "message": "Traceback\nNo module named tensorboard"}
    with pytest.raises(UserError, match=r"exit code 1: No module named tensorboard; choose an image .* --image"):
        pod_state(status({"terminated": ended}))
    with pytest.raises(UserError, match="DeadlineExceeded"):
        pod_state({"status": {"phase": "Failed", "reason": "DeadlineExceeded"}})


def a_user(phase: str, node: str = "node-1", claim: str = "training") -> dict[str, Any]:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": claim}}]
    return {"metadata": {"name": "user"}, "spec": {"nodeName": node, "volumes": volumes}, "status": {"phase": phase}}


def test_a_pod_goes_to_the_node_of_a_claim_that_one_node_has() -> None:
    manifest = {"metadata": {}, "spec": {"nodeSelector": {"gpu": "yes"}, "affinity": {"podAffinity": {}}}}

    def claim(*modes: str) -> dict[str, Any]:
        return {"metadata": {"name": "training"}, "spec": {"accessModes": list(modes)}}

    spec = placed(manifest, claim("ReadWriteOnce"), [a_user("Succeeded", "node-2"), a_user("Pending")])["spec"]
    assert "node-1" in str(spec["affinity"]) and "node-2" not in str(spec) and list(spec) == ["affinity"]
    for modes, pod in (
        (("ReadWriteOnce", "ReadWriteMany"), a_user("Running")),
        (("ReadWriteOnce",), a_user("Failed")),
        (("ReadWriteOnce",), a_user("Pending", node="")),
        (("ReadWriteOncePod",), a_user("Running", claim="other")),
    ):
        assert placed(manifest, claim(*modes), [pod]) == manifest
    with pytest.raises(UserError, match="the claim training is ReadWriteOncePod, and pod user has it: wait until"):
        placed(manifest, claim("ReadWriteOncePod"), [a_user("Running")])
