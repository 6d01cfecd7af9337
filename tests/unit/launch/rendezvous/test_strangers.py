"""Which of too many connections of strangers is closed."""

from __future__ import annotations

from tftraining.launch.rendezvous.strangers import Strangers


def test_the_address_with_the_most_connections_loses_its_oldest() -> None:
    strangers: Strangers[str] = Strangers()
    for port, name in enumerate(("first", "second", "third")):
        assert strangers.add(name, ("10.0.0.1", port), 4) is None
    assert strangers.add("other", ("10.0.0.9", 1), 4) is None
    assert strangers.add("one too many", ("10.0.0.9", 2), 4) == "first"
    assert list(strangers) == ["second", "third", "other", "one too many"]
    assert strangers.add("of a third", ("10.0.0.8", 1), 4) == "second", "the most, not the last address"
