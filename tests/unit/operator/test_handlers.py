"""What goes wrong in a handler of kopf: it is said, and nothing waits for kopf's minute."""

import logging
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from tftraining_operator import handlers

CALLED: Any = handlers  # kopf's types want the arguments that kopf gives, and the handlers take some of them


def memo(**fields: object) -> Any:
    return kopf.Memo(settings=None, lost_lease=None, watch_jobs=None, **fields)


async def test_credentials_that_cannot_be_read_are_read_again_soon(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def torn(**_: object) -> None:
        raise TypeError("token: secret")

    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: None)
    monkeypatch.setattr(kopf, "login_with_kubeconfig", torn)
    with pytest.raises(kopf.TemporaryError) as raised:
        await CALLED.login(memo(operator=SimpleNamespace()))
    assert raised.value.delay == handlers.LOGIN_PAUSE <= 1
    assert "cannot read the credentials (TypeError)" in caplog.text and "secret" not in caplog.text


async def test_a_fault_at_the_start_ends_the_process_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tftraining_operator.runtime.Operator.start", broken)
    with pytest.raises(kopf.PermanentError, match="a fault at the start"):
        await CALLED.start(kopf.OperatorSettings(), memo())
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]


async def test_a_fault_at_the_end_does_not_hold_it_up(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise KeyError("x")

    await CALLED.stop(memo(operator=SimpleNamespace(stop=broken)))
    assert "has not ended cleanly" in caplog.text
