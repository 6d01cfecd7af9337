"""TF_CONFIG built by the launcher, and a TF_CONFIG that is too long for a new process."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftraining.launch.config.settings import SettingsError, read, with_tf_config
from tftraining.launch.in_user_process import long_tf_config
from tftraining.launch.in_user_process.long_tf_config import PACKED, pack
from tftraining.launch.in_user_process.shared.tf_config import LONGEST, NAME, Cluster, size, size_of, text

ROLES = ("chief", "worker", "ps")
CLUSTERS = st.lists(st.tuples(st.integers(0, 1300), st.sampled_from(["%d:1", "a-%d.b:2222", "x%d"])), max_size=3)


@given(CLUSTERS, st.sampled_from([*ROLES, "evaluator"]), st.integers(0, 2000))
def test_the_size_of_tf_config_is_computed_without_building_it(
    counts: list[tuple[int, str]], role: str, index: int
) -> None:
    cluster: Cluster = tuple((name, *each) for name, each in zip(ROLES, counts, strict=False))
    assert size_of(cluster, role, index) == size(text(cluster, role, index))


def told(**launcher: object) -> dict[str, str]:
    return {"A": "b", "TFTRAINING_LAUNCHER": json.dumps(launcher)}


def test_tf_config_is_built_from_the_address_pattern() -> None:
    task = {"type": "ps", "index": 1}
    environment = told(cluster={"chief": [1, "c-%d:1"], "ps": [3, "p-%d:2"]}, task=task)
    made = with_tf_config(environment)
    assert json.loads(made.pop(NAME)) == {
        "cluster": {"chief": ["c-0:1"], "ps": ["p-0:2", "p-1:2", "p-2:2"]},
        "task": task,
    }
    assert made == environment


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": "{}"}, told(), told(cluster=None), told(task={})])
def test_the_tf_config_of_an_older_operator_stays_unchanged(environment: dict[str, str]) -> None:
    assert with_tf_config(environment) == environment


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster": {"worker": 3}},
        {"cluster": {"worker": [3, "w%d"]}},
        {"cluster": [], "task": {"type": "worker", "index": 0}},
        {"cluster": {"worker": ["many", "w%d"]}, "task": {"type": "worker", "index": 0}},
        {"cluster": {"worker": [3, "w%d"]}, "task": {"type": "worker"}},
    ],
)
def test_an_invalid_address_pattern_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="TFTRAINING_LAUNCHER: cluster"):
        with_tf_config(told(**wrong))


def test_settings_that_are_no_json_raise_when_they_are_read() -> None:
    with pytest.raises(SettingsError, match="TFTRAINING_LAUNCHER is not JSON"):
        with_tf_config({"TFTRAINING_LAUNCHER": "{"})
    with pytest.raises(SettingsError, match="TF_CONFIG is not set"):
        read(with_tf_config({}))


def filled(length: int) -> dict[str, str]:
    """An environment whose TF_CONFIG takes so many bytes."""
    return {"A": "b", NAME: "x" * (length - len(f"{NAME}=") - 1)}


def test_only_a_tf_config_that_is_too_long_is_packed() -> None:
    assert pack({"A": "b"}) == {"A": "b"}
    assert pack(filled(LONGEST)) == filled(LONGEST)
    short = pack(filled(LONGEST + 1))
    assert set(short) == {"A", PACKED} and len(short[PACKED]) < 1000
    assert pack(short) == short


def test_the_largest_gangs_can_be_packed() -> None:
    domain = f"{'j' * 40}.{'n' * 63}.svc:2222"
    cluster = tuple((role, 10_000, f"{'j' * 40}-{role}-%d.{domain}") for role in ("worker", "ps"))
    config = text(cluster, "worker", 9999)
    assert size(config) > 25 * LONGEST > 25 * len(pack({NAME: config})[PACKED])


@pytest.mark.parametrize("key", [str, str.encode])
def test_child_processes_get_no_tf_config_that_is_too_long(key: Callable[[str], str | bytes]) -> None:
    environment = {key(name): key(value) for name, value in filled(LONGEST + 1).items()}
    assert long_tf_config._exported(environment) == {key("A"): key("b")}
    fits = {key(name): key(value) for name, value in filled(LONGEST).items()}
    assert long_tf_config._exported(fits) is fits
    assert len(environment) == 2, "the caller's own stays as it is"


@pytest.mark.parametrize("odd", [None, 3, [("A", "b")], {3: 4}])
def test_an_env_argument_that_is_no_mapping_stays_unchanged(odd: object) -> None:
    assert long_tf_config._exported(odd) is odd
