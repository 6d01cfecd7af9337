"""How far a reader has to follow a failure through the operator: recorded in the pass that finds it, not guessed."""

from collections.abc import Callable

import pytest

from tests.support.calls import Call, because_of, files, first_row_not_reached, recorded, rows_of
from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.test_node_conditions import break_node
from tests.unit.operator.plan.test_node_loss import on_two_nodes

PLAN = "operator/tftraining_operator/plan/"
OF_MORE = "When more than a program is lost, the operator creates a new pod, and the other launchers wait for it:"

Make = Callable[[], SimulatedCluster]
Fault = Callable[[SimulatedCluster], None]


def in_place() -> SimulatedCluster:
    return SimulatedCluster(a_launched_job()).run()


def recreated() -> SimulatedCluster:
    return SimulatedCluster(a_job()).run()


def crash(cluster: SimulatedCluster) -> None:
    """The program of worker 1 exits with 1; its pod stays."""
    cluster.launchers.crash("worker-1", code=1, signal=None)
    cluster.launcher_report = cluster.launchers.last_report()


def exit_pod(cluster: SimulatedCluster) -> None:
    cluster.exit("worker-1")


def remove_node(cluster: SimulatedCluster) -> None:
    cluster.nodes.remove("node-b")


# The failure; the files with functions that run because of it, two of which account for the time as in each pass with
# news (goodput.py); the most functions on the stack in the planner.
PROGRAM = (in_place, crash, 11, 7)
POD = (in_place, exit_pod, 23, 7)
POD_OF_A_GANG = (recreated, exit_pod, 26, 7)
NODE = (lambda: on_two_nodes(a_launched_job()), remove_node, 18, 7)
CONDITION = (lambda: on_two_nodes(a_launched_job()).wait(60), break_node, 20, 7)


def calls_of(make: Make, fault: Fault) -> list[Call]:
    """The calls that follow from the failure in the pass that finds it."""
    cluster = make()
    with recorded() as calm:
        cluster.plan()
    fault(cluster)
    with recorded() as calls:
        step = cluster.plan()
    assert step.status.phase == "Restarting"
    return because_of(calls, calm)


@pytest.mark.parametrize(("make", "fault", "most", "depth"), [PROGRAM, POD, POD_OF_A_GANG, NODE, CONDITION])
def test_a_failure_crosses_few_files_and_no_call_is_deep(make: Make, fault: Fault, most: int, depth: int) -> None:
    calls = calls_of(make, fault)
    assert 0 < len(files(calls)) <= most, files(calls)
    deepest = max((call for call in calls if call.path.startswith(PLAN)), key=lambda call: len(call.hands))
    assert len(deepest.hands) <= depth, deepest.hands


def test_few_functions_pass_the_context_on() -> None:
    below = [call for call in calls_of(in_place, exit_pod) if "restart_what_failed" in call.hands]
    carriers = {call.name for call in below if "context" in call.arguments.split()}
    assert 0 < len(carriers) <= 2, carriers


@pytest.mark.parametrize(
    ("failure", "named"),
    [
        (PROGRAM, rows_of("## The path of a failure")),
        (POD, rows_of(OF_MORE)[:1]),
        (NODE, rows_of(OF_MORE)[1:2]),
        (CONDITION, rows_of(OF_MORE)[2:3]),
        (POD_OF_A_GANG, rows_of(OF_MORE)[5:6]),
    ],
)
def test_the_page_names_files_that_run(failure: tuple[Make, Fault, int, int], named: list[list[str]]) -> None:
    steps = [[path] for row in named for path in row if path.startswith(PLAN)]
    assert steps and first_row_not_reached(calls_of(*failure[:2]), steps) == []
