"""When legacy Keras is requested and granted, and when the hooks leave Keras 3 as it is."""

from __future__ import annotations

import importlib.util

import pytest

from tftraining.launch.in_user_process.legacy_keras import (
    LEGACY,
    OWN,
    PATCHES,
    REQUEST,
    UNPATCHED,
    VARIABLE,
    apply,
    request,
)


@pytest.mark.parametrize("gang", [1, 2])
def test_a_program_with_its_own_keras_is_asked_nothing(gang: int) -> None:
    assert request({}, gang, OWN) == {}
    assert request({}, gang, UNPATCHED) == {PATCHES: UNPATCHED}


def test_legacy_keras_is_requested_for_two_or_more_trainers_and_nothing_is_patched() -> None:
    assert request({}, 1, LEGACY) == request({VARIABLE: "0"}, 2, LEGACY) == {PATCHES: UNPATCHED}
    assert request({}, 2, LEGACY) == {PATCHES: UNPATCHED, REQUEST: "1"}


@pytest.mark.parametrize("there", [True, False])
def test_legacy_keras_is_granted_if_tf_keras_can_be_imported(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there and name == "tf_keras" else None)
    environment = {REQUEST: "1"}
    assert apply(environment) == there
    assert environment == ({VARIABLE: "1"} if there else {REQUEST: "1"}), "another Python may grant it"


def test_the_users_own_setting_stays() -> None:
    environment = {REQUEST: "1", VARIABLE: "0"}
    assert not apply(environment)
    assert environment == {VARIABLE: "0"}
