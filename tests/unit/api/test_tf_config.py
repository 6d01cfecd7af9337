"""TF_CONFIG for every mix of roles: each process learns who its peers are and which of them it is."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining.launch.config.settings import with_tf_config
from tftraining.launch.in_user_process.shared.tf_config import LONGEST, size
from tftraining.launch.roles import GANG_ROLES, RoleName
from tftraining_api.manifests.pod import pod
from tftraining_api.manifests.tf_config import tf_config
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Key, Replica, address
from tftraining_api.model.spec import JobSpec
from tftraining_api.model.tf_config import IN_MANIFEST


def config(job: JobBuilder, role: RoleName, index: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(tf_config(*job.parsed(), Replica(role, index)))
    return result


def at(role: str, *indices: int, port: int = 2222) -> list[str]:
    return [f"mnist-{role}-{index}.mnist.ml.svc:{port}" for index in indices]


MIXES: list[tuple[str, JobBuilder, dict[str, list[str]]]] = [
    ("workers", a_job().workers(3), {"worker": at("worker", 0, 1, 2)}),
    ("one worker", a_job().workers(1), {"worker": at("worker", 0)}),
    ("chief", a_job().without("worker").chief(), {"chief": at("chief", 0)}),
    ("chief and workers", a_job().chief(), {"chief": at("chief", 0), "worker": at("worker", 0, 1)}),
    ("chief and no worker", a_job().chief().workers(0), {"chief": at("chief", 0)}),
    (
        "parameter servers",
        a_job().chief().role("ps", replicas=2),
        {"chief": at("chief", 0), "worker": at("worker", 0, 1), "ps": at("ps", 0, 1)},
    ),
    ("evaluator", a_job().role("evaluator"), {"worker": at("worker", 0, 1)}),
    (
        "ports",
        a_job().role("worker", port=3333).chief(),
        {"chief": at("chief", 0), "worker": at("worker", 0, 1, port=3333)},
    ),
]


@pytest.mark.parametrize(("job", "cluster"), [mix[1:] for mix in MIXES], ids=[mix[0] for mix in MIXES])
def test_the_cluster(job: JobBuilder, cluster: dict[str, list[str]]) -> None:
    role: RoleName = "chief" if "chief" in cluster else "worker"
    assert config(job, role) == {"cluster": cluster, "task": {"type": role, "index": 0}}


@pytest.mark.parametrize(("role", "index"), [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 1), ("evaluator", 0)])
def test_everybody_sees_the_same_cluster_and_itself(role: RoleName, index: int) -> None:
    job = a_job().chief().role("ps", replicas=2).role("evaluator")
    mine = config(job, role, index)
    assert mine["task"] == {"type": role, "index": index}
    assert mine["cluster"] == config(job, "chief")["cluster"]
    assert "evaluator" not in mine["cluster"]


def test_the_chief_is_the_task_named_so_otherwise_worker_0() -> None:
    assert a_job().chief().parsed()[1].chief == Replica("chief", 0)
    assert a_job().parsed()[1].chief == Replica("worker", 0)


# --- who makes it


def variables(job: JobBuilder, replica: Replica) -> dict[str, str]:
    """The environment of the replica's training container, as the kubelet makes it of the pod."""
    env = pod(*job.parsed(), replica, "operator")["spec"]["containers"][0]["env"]
    return {each["name"]: each.get("value", "").replace("$$(", "$(") for each in env}


def as_before(job: JobBuilder, replica: Replica) -> str:
    """The text that stood in every manifest when no launcher could make it."""
    raw = job.raw()
    key, spec = Key(raw["metadata"]["namespace"], raw["metadata"]["name"]), msgspec.convert(raw["spec"], JobSpec)
    cluster = {
        role: [address(key, Replica(role, index), own.port) for index in range(own.replicas)]
        for role in GANG_ROLES
        if (own := spec.role(role)) is not None and own.replicas
    }
    return json.dumps({"cluster": cluster, "task": {"type": replica.role, "index": replica.index}})


COUNTS = st.one_of(st.integers(0, 12), st.integers(0, 1200))
PORTS = st.integers(1, 65535)
NAMES = st.sampled_from(["m", "mnist", "mnist-worker-0", "a-very-long-name-of-a-job-that-some-pipeline-has-made"])


@st.composite
def jobs(draw: st.DrawFn, launched: bool) -> JobBuilder:
    """Jobs of all roles, names and sizes."""
    job = (a_launched_job() if launched else a_job()).named(draw(NAMES)).role("evaluator")
    job.role("chief", replicas=draw(st.integers(0, 1)), port=draw(PORTS))
    for role in ("worker", "ps"):
        job.role(role, replicas=draw(COUNTS), port=draw(PORTS))
    return job


@settings(max_examples=100)
@given(st.data(), st.booleans())
def test_a_program_is_told_the_same_whoever_makes_it(data: st.DataObject, launched: bool) -> None:
    job = data.draw(jobs(launched))
    spec = parse_job(job.raw()).spec
    assume(spec is not None)
    assert spec is not None
    replica = data.draw(st.sampled_from([*spec.gang, *spec.evaluators]))
    env = variables(job, replica)
    told = with_tf_config(env)["TF_CONFIG"]
    assert told == as_before(job, replica) == tf_config(*job.parsed(), replica)
    assert ("TF_CONFIG" in env) == (size(told) <= IN_MANIFEST or not launched)


LARGE, LARGER = 1000, 5000


@pytest.mark.parametrize(
    ("job", "stands"),
    [
        (a_launched_job().workers(200), True),
        (a_launched_job().workers(LARGE), False),
        (a_job().workers(LARGE), True),
        (a_launched_job().workers(LARGE).set("launcher.image", "launcher:1"), True),
        (a_launched_job().workers(LARGER).set("launcher.image", "launcher:1"), False),
        (a_launched_job().workers(LARGE).container(args=["--config", "$(TF_CONFIG)"]), True),
        (a_launched_job().workers(LARGE).container(env=[{"name": "A", "value": "<$(TF_CONFIG)>"}]), True),
        (a_launched_job().workers(LARGE).container(env=[{"name": "A", "valueFrom": {}}]), False),
    ],
    ids=["short", "long", "no launcher", "older launcher", "too long for any", "argument", "variable", "no value"],
)
def test_a_long_one_stands_in_the_manifest_only_where_no_launcher_may_make_it(job: JobBuilder, stands: bool) -> None:
    env = variables(job, Replica("worker", 1))
    launcher = json.loads(env.get("TFTRAINING_LAUNCHER", "{}"))
    assert ("TF_CONFIG" in env, "cluster" in launcher) == (stands, not stands)


def test_the_manifest_of_a_pod_does_not_grow_with_the_gang() -> None:
    lengths = [
        len(json.dumps(pod(*a_launched_job().workers(count).parsed(), Replica("worker", 1), "operator")))
        for count in (LARGE, 9 * LARGE)
    ]
    assert lengths[0] == lengths[1]


def test_the_launcher_goes_by_the_operator_whatever_the_image_sets() -> None:
    job, replica = a_launched_job().workers(LARGE), Replica("worker", 1)
    env = {"TF_CONFIG": "of the image", **variables(job, replica)}
    assert with_tf_config(env)["TF_CONFIG"] == as_before(job, replica)


# --- what no process can be told


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job(), "there is no launcher with spec.restartPolicy.mode: Recreate"),
        (a_launched_job().container(command=["bash", "-c"], args=["python x.py"]), "the command (bash -c python x.py)"),
        (a_launched_job().container(command=["python"], args=["-I", "x.py"]), "the command (python -I x.py)"),
        (a_launched_job().container(args=["$(TF_CONFIG)"]), "the template refers to $(TF_CONFIG)"),
    ],
)
def test_one_that_cannot_be_set_makes_the_job_invalid(job: JobBuilder, said: str) -> None:
    assert parse_job(job.workers(2).raw()).problem is None
    length = size(as_before(a_job().workers(LARGER), Replica("worker", LARGER - 1)))
    cluster = SimulatedCluster(job.workers(LARGER)).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.pods) == ("Failed", "InvalidSpec", [])
    message = cluster.status.message or ""
    assert message.startswith(
        f"TF_CONFIG of worker-4999 would have {length} bytes, more than the {LONGEST} that Linux allows "
    )
    assert said in message


def test_the_role_whose_command_cannot_be_told_is_named() -> None:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["./serve"]}]}}
    job = a_launched_job().workers(LARGER).chief().role("ps", template=template)
    problem = parse_job(job.raw()).problem
    assert problem is not None and problem.message.startswith("TF_CONFIG of ps-0 ")
    assert parse_job(a_launched_job().workers(LARGER).chief().role("ps").raw()).problem is None


@pytest.mark.parametrize(("port", "length"), [(22, LONGEST), (222, LONGEST + 1)])
def test_the_limit_is_kept_to_the_byte(port: int, length: int) -> None:
    job = a_job().named("m" * 10).workers(2695).role("ps", port=port)
    assert size(as_before(job, Replica("worker", 2694))) == length
    problem = parse_job(job.raw()).problem
    assert (problem is None) == (length == LONGEST)
    assert problem is None or f" {length} bytes" in problem.message


def test_a_gang_that_outgrows_what_its_command_can_be_told_trains_on_as_it_is() -> None:
    cluster = SimulatedCluster(a_launched_job().container(command=["bash", "train.sh"])).run()
    before = cluster.pods
    cluster.api.edit("replicaSpecs.worker.replicas", LARGER)
    cluster.run()
    condition = cluster.status.condition("Unreadable")
    assert condition is not None and "TF_CONFIG of worker-4999" in condition.message
    assert (cluster.status.phase, cluster.pods) == ("Running", before)
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "3/3")
    assert cluster.status.condition("Unreadable") is None
