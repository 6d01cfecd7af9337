"""The digest and the summary of what replicas hold alike: what shows in them, and what does not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tftraining.launch.gang.replica_values import Comparison, compare, summary_of
from tftraining.launch.in_user_process.memory_backup import replica_digest
from tftraining.launch.in_user_process.memory_backup.replica_digest import ReplicaDigests

SHAPES = {"kernel": (300, 120), "bias": (7,), "rate": (), "table": (1017, 16)}


def values(**changed: Any) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    found = {name: draw.normal(0, 0.05, shape).astype("float32") for name, shape in SHAPES.items()}
    return {**found, "steps": np.array(3000, "int64"), **changed}


def replicas(arrays: dict[str, Any]) -> ReplicaDigests:
    return ReplicaDigests([(name, [array]) for name, array in arrays.items()])


def judge(*told: dict[str, Any]) -> Comparison:
    groups = {f"{place}": [(f"worker-{place}", 0)] for place in range(len(told))}
    summaries = {f"worker-{place}": summary_of(replicas(each).summary()) for place, each in enumerate(told)}
    found = compare(groups, {name: each for name, each in summaries.items() if each is not None}, several=True)
    assert found is not None
    return found


def flipped(arrays: dict[str, Any], name: str, place: int, bit: int) -> dict[str, Any]:
    changed = arrays[name].copy()
    words = changed.reshape(-1).view(f"uint{8 * changed.itemsize}")
    words[place] ^= np.array(1, words.dtype) << np.array(bit, words.dtype)
    return {**arrays, name: changed}


def test_each_flipped_bit_changes_the_digest() -> None:
    arrays, draw = values(), random.Random(1)
    digest = replicas(arrays).digests()
    assert replicas({name: each.copy() for name, each in arrays.items()}).digests() == digest
    for name, array in arrays.items():
        for _ in range(60):
            other = flipped(arrays, name, draw.randrange(array.size), draw.randrange(8 * array.itemsize))
            assert replicas(other).digests() != digest


def test_values_that_change_places_change_the_digest() -> None:
    arrays = values()
    digest = replicas(arrays).digests()
    for step in (1, 2, 16, 512, 1024):
        flat = arrays["kernel"].copy().reshape(-1)
        flat[[0, step]] = flat[[step, 0]]
        assert replicas({**arrays, "kernel": flat.reshape(300, 120)}).digests() != digest
    assert replicas({**arrays, "kernel": -arrays["kernel"]}).digests() != digest


def test_an_exponent_shows_and_names_the_variable() -> None:
    arrays = values()
    for name, place in (("kernel", 20_000), ("bias", 6), ("rate", 0), ("table", 16_000)):
        for bit in (30, 29):
            found = judge(arrays, arrays, flipped(arrays, name, place, bit))
            assert (found.differs, found.words) == (
                True,
                f"at step 0 worker-2 holds other values than the rest: {name}",
            )


def test_whole_numbers_show_by_any_bit() -> None:
    for bit in (0, 40, 63):
        assert (
            "worker-2 holds other values than the rest: steps"
            in judge(values(), values(), flipped(values(), "steps", 0, bit)).words
        )


@pytest.mark.parametrize("towards_zero", [False, True])
def test_the_rounding_errors_of_a_million_steps_do_not(towards_zero: bool) -> None:
    """Each value lies a ten-thousandth of itself off, all to one side or each to its own."""
    arrays, draw = values(), np.random.default_rng(2)
    off: dict[str, Any] = {}
    for name in SHAPES:
        error = np.full(arrays[name].shape, 1e-4) if towards_zero else draw.normal(0, 1e-4, arrays[name].shape)
        off[name] = (arrays[name] * (1 - error)).astype("float32")
    found = judge(arrays, {**arrays, **off})
    assert not found.differs, found.words


def test_values_without_a_number_of_their_own_kind_are_compared() -> None:
    kinds = ["float16", "float64", "complex64", "bool", "uint8"]
    arrays = {kind: (np.arange(2000) % 7).astype(kind) for kind in kinds}
    for kind in kinds:
        bit = {"bool": 0, "float64": 62, "complex64": 30, "float16": 14}.get(kind, 3)
        odd = {**arrays, kind: arrays[kind].copy()}
        odd[kind].view("uint8")[np.dtype(kind).itemsize * 3 + bit // 8] ^= 1 << bit % 8
        assert f"than the rest: {kind}" in judge(arrays, arrays, odd).words


def test_a_value_that_is_no_number_shows() -> None:
    odd = values()
    odd["kernel"][3, 3] = np.nan
    assert "worker-1 holds other values than the rest: kernel" in judge(values(), odd, values()).words


def test_zeros_and_numbers_too_small_for_some_processors_are_equal() -> None:
    small = values(bias=np.full(7, 1e-40, "float32"))
    assert not judge(values(bias=np.zeros(7, "float32")), small).differs


def test_a_summary_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"layer-{place}/kernel": np.full(3, 0.5 + place, "float32") for place in range(5000)}
    told = replicas(many).summary()
    assert len(told["values"]) + len(told["names"]) < 50_000
    summary = summary_of({"step": 1, **told})
    assert summary is not None and len(summary.cells[0]) == len(summary.names) <= 2 * replica_digest.CELLS
    found = judge(many, many, flipped(many, "layer-4321/kernel", 1, 29)).words
    assert "layer-432" in found, "a neighbour in its cell"
    counted = {**many, **{f"count-{place}": np.array(1000 + place) for place in range(3000)}}
    rounded = {
        name: (each * 1.00001).astype(each.dtype) if "count" not in name else each for name, each in counted.items()
    }
    assert not judge(counted, rounded).differs, "whole numbers share no cell with others"
    assert "count-" in judge(counted, counted, flipped(counted, "count-7", 0, 0)).words
    monkeypatch.setattr(replica_digest, "NAMES", 10)
    assert replicas(many).summary()["names"] == ""


def test_replicas_of_one_member_share_what_is_not_replicated() -> None:
    kernel = np.ones((4, 4), "float32")
    both = ReplicaDigests([("kernel", [kernel, kernel * 2]), ("step", [np.array(3)])])
    assert both.count == 2 and len(set(both.digests())) == 2
    assert len(set(ReplicaDigests([("kernel", [kernel, kernel.copy()]), ("step", [np.array(3)])]).digests())) == 1
    summary = summary_of({"step": 1, **both.summary()})
    assert summary is not None and len(summary.cells) == 2


def test_nothing_to_compare() -> None:
    nothing = ReplicaDigests([])
    assert (nothing.count, nothing.digests()) == (0, [])
