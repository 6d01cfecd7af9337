"""Which environments a warm interpreter serves."""

from __future__ import annotations

import pytest

from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.process.warm_start import same_for_imports


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"TF_CONFIG": "other"}, True),
        ({"TFTRAINING_ROUND": "2", "TFTRAINING_PROGRESS": "/x"}, True),
        ({"no_proxy": ".digits.default.svc", "no_grpc_proxy": "a", "NO_PROXY": "b"}, True),
        ({"TF_CPP_MIN_LOG_LEVEL": "2"}, False),
        ({"PYTHONHASHSEED": "0"}, False),
        ({"LD_PRELOAD": "x"}, False),
        ({"HOME": "/"}, False),
        ({legacy_keras.REQUEST: "1"}, False),
    ],
)
def test_variables_that_may_change_between_warm_starts(change: dict[str, str], same: bool) -> None:
    before = {"PATH": "/bin", "TF_CONFIG": "{}"}
    assert same_for_imports(before, {**before, **change}) == same
    assert same_for_imports({**before, **change}, before) == same
