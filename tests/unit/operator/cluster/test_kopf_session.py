"""The pauses before kopf's watches, and that the same credentials keep their session."""

import kopf

from tftraining_operator.cluster.kopf_session import KopfSessions, WatchPauses


def test_watches_that_end_at_once_come_ever_more_slowly_and_one_that_lasts_ends_that() -> None:
    now = 0.0
    pauses = WatchPauses(lambda: now)
    found = []
    for _ in range(9):
        found.append(pauses.next("/jobs"))
        now += found[-1]
    assert found == [0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert pauses.next("/others") == 0
    now += 300
    assert pauses.next("/jobs") == 0


async def test_the_same_credentials_have_one_session_and_new_ones_another() -> None:
    sessions = KopfSessions()
    first = sessions.of(kopf.ConnectionInfo(server="http://a", token="one"))
    assert sessions.of(kopf.ConnectionInfo(server="http://a", token="one")) is first
    assert first.aiohttp_session.headers["Authorization"] == "Bearer one"
    second = sessions.of(kopf.ConnectionInfo(server="http://a", token="two"))
    assert second is not first
    for each in (first, second):
        await each.aiohttp_session.close()
