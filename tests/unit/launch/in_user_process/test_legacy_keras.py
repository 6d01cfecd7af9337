"""When legacy Keras is requested and granted."""

from __future__ import annotations

import importlib.util

import pytest

from tftraining.launch.in_user_process import legacy_keras


def test_legacy_keras_is_requested_for_two_or_more_trainers() -> None:
    assert legacy_keras.request({}, 1) == {}
    assert legacy_keras.request({legacy_keras.VARIABLE: "0"}, 2) == {}
    assert legacy_keras.request({}, 2) == {legacy_keras.REQUEST: "1"}


@pytest.mark.parametrize("there", [True, False])
def test_legacy_keras_is_granted_if_tf_keras_can_be_imported(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there and name == "tf_keras" else None)
    environment = legacy_keras.request({}, 2)
    assert legacy_keras.apply(environment) == there
    assert environment == ({legacy_keras.VARIABLE: "1"} if there else legacy_keras.request({}, 2)), (
        "another Python may grant it"
    )


def test_the_users_own_setting_stays() -> None:
    environment = {legacy_keras.REQUEST: "1", legacy_keras.VARIABLE: "0"}
    assert not legacy_keras.apply(environment)
    assert environment == {legacy_keras.VARIABLE: "0"}
