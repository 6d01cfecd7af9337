"""`tftj dashboard` on a real API server: what its streams tell, to whom, and at which price."""

import asyncio
import signal
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane.test_client import VIEW, service_account, tftj
from tests.support.client.cluster_objects import HISTORY
from tests.support.client.dashboard import Dashboard
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.manifests import minimal
from tftraining_client import AsyncClient, Client
from tftraining_client.commands.dashboard.feeds import Feeds

EVENTS = {"apiGroups": [""], "resources": ["events", "pods/log"], "verbs": ["get", "list", "watch"]}


def row(message: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((each for each in message.get("jobs", ()) if each["name"] == name), {})
    return found


def is_another(uid: str, message: dict[str, Any]) -> bool:
    # The first message of a stream can come before the list: it knows no job, and none that is gone.
    return message["job"] is not None and not message["gone"] and message["job"]["uid"] != uid


def has_mark(text: str, message: dict[str, Any]) -> bool:
    return message["job"] is not None and text in [mark["text"] for mark in message["job"]["timeline"]]


def test_jobs_pods_and_events_are_followed_until_the_job_is_gone(
    control_plane: ControlPlane, new_job: NewJob, namespace: str, garbage_collection: None
) -> None:
    job = new_job()
    with Dashboard(control_plane.kubeconfig, "-n", namespace) as dashboard:
        with dashboard.stream("api/jobs") as jobs, dashboard.stream(f"api/jobs/{namespace}/job") as one:
            first = jobs.wait_for(lambda each: each["listed"], "the list")
            assert (first["namespace"], first["context"], first["problem"]) == (namespace, "plane", "")
            job.run()
            jobs.wait_for(lambda each: row(each, "job").get("phase") == "Running", "the job runs")
            seen = one.wait_for(lambda each: each["job"] and each["job"]["phase"] == "Running", "the job runs")
            ready = one.wait_for(
                lambda each: each["job"] and each["job"]["roles"][0]["ready"] == 2, "both pods are ready"
            )
            assert [pod["replica"] for pod in ready["job"]["roles"][0]["pods"]] == ["worker-0", "worker-1"]
            assert (seen["gone"], seen["problem"]) == ("", "")
            one.wait_for(lambda each: each["job"] and each["job"]["events"], "an event")
            for suspend, text in ((True, "suspended"), (False, "resumed after a suspension")):
                job.patch({"spec": {"runPolicy": {"suspend": suspend}}})
                seen = one.wait_for(partial(has_mark, text), text)
            assert seen["job"]["begin"] == seen["job"]["created"]
            job.delete()
            jobs.wait_for(lambda each: f"{namespace}/job" in each["gone"], "the job is gone from the list")
            gone = one.wait_for(lambda each: each["gone"], "the job is gone")
            assert gone["gone"] == "job job was deleted while it was followed" and gone["job"]["name"] == "job"
            control_plane.request(
                "POST", f"/apis/tftraining.dev/v1/namespaces/{namespace}/tftrainingjobs", minimal("job")
            )
            again = one.wait_for(partial(is_another, gone["job"]["uid"]), "the new job")
            assert again["problem"] == ""
        with dashboard.stream(f"api/jobs/{namespace}/jop") as unknown:
            told = unknown.wait_for(lambda each: each["gone"], "the job is unknown")
            assert told["gone"].startswith(f"no job jop in namespace {namespace}") and told["job"] is None
        dashboard.process.send_signal(signal.SIGINT)
        assert dashboard.process.wait(60) == 130
        assert dashboard.process.stderr is not None and "Traceback" not in dashboard.process.stderr.read()


def test_only_the_page_with_the_token_gets_an_answer(control_plane: ControlPlane, namespace: str) -> None:
    with Dashboard(control_plane.kubeconfig, "-n", namespace) as dashboard:
        assert dashboard.url.startswith("http://127.0.0.1:") and len(dashboard.path) > 40
        code, headers, text = dashboard.ask()
        assert code == 200 and "<title>TFTrainingJobs</title>" in text
        assert "default-src 'none'" in headers["Content-Security-Policy"] and "unsafe" not in str(headers)
        assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
        for name in ("dashboard.js", "curves.js", "dashboard.css"):
            assert dashboard.ask(f"static/{name}")[0] == 200 and f"static/{name}" in text
        assert dashboard.ask("static/..%2fserver.py")[0] == 404
        wrong = dashboard.ask("/")
        assert (wrong[0], wrong[2]) == (
            403,
            "Open the address that `tftj dashboard` has printed: it contains the token.\n",
        )
        assert "default-src 'none'" in wrong[1]["Content-Security-Policy"]
        assert dashboard.ask(f"/{'x' * 43}/api/jobs")[0] == 403
        assert dashboard.ask("api/jobs", Host=f"rebound.example:{dashboard.host.rpartition(':')[2]}")[0] == 403
        assert dashboard.ask("api/jobs", Origin="http://other.example")[0] == 403
        assert dashboard.ask("api/retry", "POST")[0] == 403
        assert dashboard.ask("api/retry", "POST", Origin=f"http://{dashboard.host}")[0] == 204
        assert dashboard.ask("api/jobs", "DELETE", Origin=f"http://{dashboard.host}")[0] == 405
        taken = tftj(control_plane.kubeconfig, "dashboard", "--port", dashboard.host.rpartition(":")[2])
        assert taken.returncode == 2 and taken.stderr.endswith("Address already in use; choose another --port\n"), taken


def test_a_viewer_sees_one_namespace(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    viewer = service_account(control_plane, namespace, [*VIEW, EVENTS], tmp_path)
    control_plane.create_namespace(f"{namespace}-other")
    for each in (namespace, f"{namespace}-other"):
        jobs = f"/apis/tftraining.dev/v1/namespaces/{each}/tftrainingjobs"
        control_plane.request("POST", jobs, minimal(f"job-of-{each}"))
    with Dashboard(viewer) as dashboard:
        with dashboard.stream("api/jobs") as stream:
            listed = stream.wait_for(lambda each: each["jobs"], "the list")
            assert [each["key"] for each in listed["jobs"]] == [f"{namespace}/job-of-{namespace}"]
        for path in ("", "/logs"):
            refused = dashboard.ask(f"api/jobs/{namespace}-other/job-of-{namespace}-other{path}")
            assert (refused[0], refused[2]) == (403, f"this dashboard is about namespace {namespace}\n")
    everywhere = tftj(viewer, "dashboard", "-A")
    assert everywhere.returncode == 2 and everywhere.stdout == ""
    assert "may not list tftrainingjobs.tftraining.dev in all namespaces" in everywhere.stderr


def test_the_status_of_another_controller_is_drawn_too(control_plane: ControlPlane, namespace: str) -> None:
    # The operator leaves such a job alone, so the test can write the status.
    jobs = f"/apis/tftraining.dev/v1/namespaces/{namespace}/tftrainingjobs"
    job = minimal("job")
    job["spec"]["runPolicy"] = {"managedBy": "tests.example/dashboard"}
    control_plane.request("POST", jobs, job)
    with Dashboard(control_plane.kubeconfig, "-n", namespace) as dashboard:
        with dashboard.stream(f"api/jobs/{namespace}/job") as one:
            one.wait_for(lambda each: each["job"], "the job")
            change = {"status": {"phase": "Running", "history": HISTORY}}
            control_plane.request("PATCH", f"{jobs}/job/status", change, "application/merge-patch+json")
            seen = one.wait_for(lambda each: each["job"] and each["job"]["curves"], "a curve")["job"]
            (curve,) = seen["curves"]
            assert (curve["points"], curve["restarts"]) == ([[1, 2], [2, 1]], [1])
            assert [each["text"] for each in seen["timeline"]] == ["Killed at step 1"]
            # A finished job may be deleted, and created again, too.
            control_plane.request(
                "PATCH", f"{jobs}/job/status", {"status": {"phase": "Succeeded"}}, "application/merge-patch+json"
            )
            one.wait_for(lambda each: each["job"] and each["job"]["phase"] == "Succeeded", "the end")
            control_plane.request("DELETE", f"{jobs}/job")
            one.wait_for(lambda each: each["gone"], "the job is gone")
            control_plane.request("POST", jobs, job)
            one.wait_for(partial(is_another, seen["uid"]), "the new job")
        with dashboard.stream(f"api/jobs/{namespace}/none/logs") as log:
            assert "no job none" in str(log.wait_for(lambda each: each["end"], "the end")["lines"])
        for index in ("x", "1" * 5000):
            assert dashboard.ask(f"api/jobs/{namespace}/job/logs?index={index}")[0] == 400


@pytest.mark.slow_fault
def test_a_lost_api_server_is_told_until_it_is_back(control_plane: ControlPlane, namespace: str) -> None:
    with Dashboard(control_plane.kubeconfig, "-n", namespace) as dashboard, dashboard.stream("api/jobs") as jobs:
        jobs.wait_for(lambda each: each["listed"], "the list")
        control_plane.restart_apiserver(down_seconds=1.0)
        lost = jobs.wait_for(lambda each: each["problem"], "the problem")
        assert "the API server" in lost["problem"] and not lost["broken"]
        wait_until(lambda: jobs.messages[-1]["problem"] == "", "the connection is back")
        with Client(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as client:
            client.submit(minimal("after"))
        jobs.wait_for(lambda each: row(each, "after"), "the new job")


def test_refused_credentials_are_told_and_new_ones_are_tried(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    viewer = service_account(control_plane, namespace, [*VIEW, EVENTS], tmp_path)
    with Dashboard(viewer) as dashboard, dashboard.stream("api/jobs") as jobs:
        jobs.wait_for(lambda each: each["listed"], "the list")
        # The token ends with its account; the watch ends with the server.
        control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/person")
        control_plane.restart_apiserver()
        told = jobs.wait_for(lambda each: each["broken"], "the refusal")
        assert told["problem"] == "the API server refuses the credentials of context plane: log in again"
        fresh = yaml.safe_load(control_plane.kubeconfig.read_text())
        fresh["contexts"][0]["context"]["namespace"] = namespace
        viewer.write_text(yaml.safe_dump(fresh))
        assert dashboard.ask("api/retry", "POST", Origin=f"http://{dashboard.host}")[0] == 204
        wait_until(lambda: jobs.messages[-1] if not jobs.messages[-1]["problem"] else None, "the connection is back")
        with Client(kubeconfig=str(viewer), namespace=namespace) as client:
            client.submit(minimal("after"))
        jobs.wait_for(lambda each: row(each, "after"), "the new job")


@pytest.mark.parametrize("pages", [1, 3])
def test_an_idle_dashboard_costs_no_request_and_pages_share_the_watches(
    control_plane: ControlPlane, namespace: str, pages: int
) -> None:
    async def requests() -> tuple[int, int]:
        async with AsyncClient(kubeconfig=str(control_plane.kubeconfig), namespace=namespace) as client:
            await client.submit(minimal("idle"))
            api = (await client.connection()).api
            before = api.requests.total()
            async with Feeds(client, namespace, "plane") as feeds, AsyncExitStack() as stack:
                looks = [await stack.enter_async_context(feeds.of_job(namespace, "idle")) for _ in range(pages)]
                await asyncio.wait_for(looks[0][1].wait(), 60)
                await asyncio.sleep(1)
                assert looks[0][0].job is not None and feeds.jobs.listed
                open_now = api.requests.total()
                await asyncio.sleep(2)
                return open_now - before, api.requests.total() - open_now

    # A list and a watch of the jobs; the job, and a list and a watch each of the job, its pods and its events.
    assert asyncio.run(requests()) == (2 + 1 + 6, 0)
