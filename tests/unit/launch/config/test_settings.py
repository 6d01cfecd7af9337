"""The launcher's settings from TF_CONFIG and TFTRAINING_LAUNCHER, and their updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.config.settings import JobKey, MemoryBackupSettings, SettingsError, read
from tftraining.launch.config.spec_updates import apply_update

CONFIG = {"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "task": {"type": "worker", "index": 1}}


LAUNCHER: dict[str, Any] = {
    "job": {"namespace": "n", "name": "j", "uid": "u"},
    "attempt": 2,
    "rendezvous": "[::1]:8471",
    "statusPort": 8472,
    "secretFile": "/key",
    "directory": None,
    "budgetReset": "Never",
    "stallTimeoutSeconds": None,
    "ledger": {"podFailures": 3},
}


def environment(config: object = CONFIG, **launcher: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps(config), "TFTRAINING_LAUNCHER": json.dumps({**LAUNCHER, **launcher})}


def test_settings_are_read_once_and_whole() -> None:
    settings = read(environment())
    assert (settings.gang.members, settings.gang.me) == (("worker-0", "worker-1", "ps-0"), "worker-1")
    assert (settings.gang.chief, settings.is_chief, settings.gang.trainers) == (
        "worker-0",
        False,
        ("worker-0", "worker-1"),
    )
    assert (settings.rendezvous, settings.host, settings.directory) == (("::1", 8471), "", None)
    assert (settings.policy.budget_reset, settings.policy.stall_timeout_seconds, settings.ledger.pod_failures) == (
        "Never",
        None,
        3,
    )


@pytest.mark.parametrize(("told", "proven"), [({}, False), ({"proven": False}, False), ({"proven": True}, True)])
def test_an_older_operator_does_not_tell_of_steps(told: dict[str, object], proven: bool) -> None:
    assert read(environment(**told)).proven is proven


def test_orders_change_what_they_name_and_nothing_else() -> None:
    settings = read(environment(budgetReset="Never", successPolicy="AllWorkers"))
    workers = {"workers": len(settings.gang.trainers)}
    assert apply_update(settings, workers) == (settings.gang, settings.policy), "an older operator names fewer"
    _, policy = apply_update(settings, {**workers, "budgetReset": "OnProgress", "successPolicy": "Chief"})
    assert (policy.budget_reset, policy.all_workers) == ("OnProgress", False)


def test_an_evaluator_is_told_of_the_gang_but_not_in_it() -> None:
    settings = read(environment({**CONFIG, "task": {"type": "evaluator", "index": 0}}))
    assert (settings.in_gang, settings.gang.chief) == (False, "worker-0")


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        {"cluster": {"ps": ["a"]}, "task": {"type": "ps", "index": 0}},
        {**CONFIG, "task": {"type": "worker", "index": 5}},
    ],
)
def test_a_wrong_tf_config_is_named(config: object) -> None:
    with pytest.raises(SettingsError, match="TF_CONFIG"):
        read(environment(config))


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"rendezvous": "x"},
            {"statusPort": 99999},
            {"memberTimeoutSeconds": "soon"},
            {"job": {}},
            {"keras": "Keras 4"},
        ),
        {"memoryBackup": ["mode"]},
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="TFTRAINING_LAUNCHER"):
        read(environment(**change))


def test_the_settings_of_backups_in_memory() -> None:
    told = {"mode": "Auto", "maxOverheadPercent": 2.5, "sizeLimit": 10, "memoryLimit": 20, "directory": "/m", "off": ""}
    assert read(environment(memoryBackup=told)).memory_backup == MemoryBackupSettings(
        "Auto", 2.5, "Preferred", 10, 20, Path("/m")
    )
    required = read(environment(memoryBackup={"mode": "Auto", "exactness": "Required"})).memory_backup
    assert required == MemoryBackupSettings(exactness="Required")
    nothing = {"mode": "Auto", "sizeLimit": None, "memoryLimit": None, "directory": None}
    assert read(environment(memoryBackup=nothing)).memory_backup == MemoryBackupSettings()


@pytest.mark.parametrize(
    ("told", "on"),
    [
        ({}, False),
        ({"memoryBackup": None}, False),
        ({"memoryBackup": {"mode": "Off"}}, False),
        ({"memoryBackup": {"mode": "Auto"}}, True),
        ({"memoryBackup": {"mode": "Auto", "off": "a member was OOMKilled"}}, False),
    ],
)
def test_there_are_backups_in_memory_if_the_mode_is_auto_and_nothing_speaks_against_it(
    told: dict[str, object], on: bool
) -> None:
    assert read(environment(**told)).memory_backup.on is on


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"mode": "On"}, "memoryBackup.mode 'On' is neither Auto nor Off"),
        ({"exactness": "Exact"}, "memoryBackup.exactness 'Exact' is neither Preferred nor Required"),
        ({"maxOverheadPercent": 0}, "memoryBackup.maxOverheadPercent must be above 0 and at most 100"),
        ({"maxOverheadPercent": 101}, "memoryBackup.maxOverheadPercent must be above 0 and at most 100"),
        ({"sizeLimit": 0}, "memoryBackup.sizeLimit must be above 0 bytes"),
        ({"memoryLimit": -1}, "memoryBackup.memoryLimit must be above 0 bytes"),
        ({"directory": "memory"}, "memoryBackup.directory memory is not an absolute path"),
    ],
)
def test_a_wrong_field_of_backups_in_memory_is_named(told: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read(environment(memoryBackup={"mode": "Auto", **told}))


def test_the_key_is_the_one_in_the_file_or_the_last_one_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "key"
    settings = read(environment(secretFile=str(file)))
    with pytest.raises(SettingsError, match=f"secretFile {file}: No such file"):
        JobKey(settings)
    file.write_bytes(b"first")
    key = JobKey(settings)
    file.write_bytes(b"second")
    assert key() == b"second"
    file.write_bytes(b"")  # as a crash of the kubelet may leave it
    assert key() == b"second"
    file.unlink()
    assert key() == b"second"
