"""The warnings of an API server in the log. That a real one's arrive: tests/control_plane/test_apiserver.py."""

import pytest

from tftraining_api.kube.server_warnings import REMEMBERED, ServerWarnings


def test_each_warning_of_an_answer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    warnings = ServerWarnings()
    for _ in range(2):
        warnings.log(['299 - "v1 Old is deprecated, use \\"New\\"", 299 - "unknown field \\\\d"', '299 kube "third"'])
    warnings.log(["110 - stale", '199 - "of a proxy"', "299 - no quotes", ""])
    said = ['v1 Old is deprecated, use "New"', "unknown field \\d", "third"]
    assert caplog.messages == [f"the API server warns: {each}" for each in said]


def test_no_more_warnings_are_remembered_than_that(caplog: pytest.LogCaptureFixture) -> None:
    warnings = ServerWarnings()
    for number in [*range(REMEMBERED), REMEMBERED - 1, REMEMBERED, 0]:
        warnings.log([f'299 - "{number}"'])
    assert len(caplog.messages) == REMEMBERED + 2
