"""Which of the namespaces to watch are watched: one that was deleted must not stop the work in the others."""

import pytest

from tests.support.fake_api_server import Answer, listing, serving
from tftraining_operator.cluster.namespaces import watchable

FORBIDDEN = Answer({"reason": "Forbidden", "message": "no Role"}, 403)
ABSENT = Answer({"reason": "NotFound", "message": "no such thing"}, 404)
BUSY = Answer({"message": "busy"}, 503)
FINE = listing([], 5)


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        ((FINE, FINE), ("a", "b")),
        ((FORBIDDEN, FINE), ("b",)),
        ((FINE, ABSENT), ("a",)),
        ((BUSY, FINE), ("a", "b")),
        ((FORBIDDEN, ABSENT), ("a", "b")),
    ],
)
async def test_what_cannot_be_listed_is_left_out_unless_nothing_would_remain(
    answers: tuple[Answer, Answer], left: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (fake, api):
        for name, answer in zip("ab", answers, strict=True):
            fake.on(f"GET /apis/tftraining.dev/v1/namespaces/{name}/tftrainingjobs", answer)
        assert await watchable(api, ("a", "b")) == left
    warned = [f"the namespace {name}: " in caplog.text for name in "ab"]
    assert warned == [name not in left for name in "ab"]
