"""The API server's time: from its answers, and from no clock that somebody sets."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest

from tests.support.fake_api_server import Answer, serving
from tftraining_api.kube.server_clock import ServerClock

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
RTT = 0.04


class Server:
    """A server whose clock tells START at second 0 of the machine, `ahead` of that from then on, and a clock that asks
    it."""

    def __init__(self) -> None:
        self.seconds, self.ahead = 0.0, 0.0
        self.clock = ServerClock(lambda: self.seconds)

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds + self.ahead)

    def ask(self, after: float) -> float:
        """Ask after so many seconds; how far the estimate is off then, in seconds."""
        self.seconds += after
        sent, said = self.seconds, self.now + timedelta(seconds=RTT / 2)
        self.seconds += RTT
        self.clock.note(format_datetime(said.replace(microsecond=0), usegmt=True), sent)
        return (self.clock.now() - self.now).total_seconds()


def test_one_answer_is_right_to_a_second_and_more_are_better_and_never_ahead() -> None:
    server = Server()
    off = [server.ask(0.37) for _ in range(40)]
    assert min(off) >= -1 - RTT and max(off) <= 0
    assert off[-1] > -0.1
    server.seconds += 86400  # nobody is asked for a day
    assert abs((server.clock.now() - server.now).total_seconds()) < 0.1


@pytest.mark.parametrize("jump", [3600, -3600, 0.7])
def test_another_server_or_a_server_whose_clock_is_set(jump: float) -> None:
    server = Server()
    for _ in range(40):
        server.ask(0.37)
    server.ahead = jump
    assert abs(server.ask(1)) <= 1 + RTT
    assert abs([server.ask(0.37) for _ in range(40)][-1]) < 0.1


def test_before_the_first_answer_and_after_nonsense_the_own_clock_counts() -> None:
    clock = ServerClock()
    for date in ("", "yesterday", "Mon, 99 Foo 2026 25:00:00 GMT", "0"):
        clock.note(date, 0.0)
        assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 5


async def test_every_answer_counts_but_those_of_pods() -> None:
    noted: list[str] = []
    async with serving() as (fake, api):
        api.clock.note = lambda date, sent: noted.append(date)  # type: ignore[method-assign]
        fake.on("GET /api/v1/nodes", Answer({}))
        fake.on("GET /api/v1/namespaces/ns/pods/a:1/proxy/status", Answer({}))
        await api.request("GET", "/api/v1/nodes")
        await api.read("/api/v1/namespaces/ns/pods/a:1/proxy/status", 99, aiohttp.ClientTimeout(total=5))
        assert len(noted) == 1 and noted[0].endswith("GMT")
