"""The cache of children: order of news, deletions, lists, and nothing kept of what is gone."""

from datetime import UTC, datetime

from tests.support.fake_api_server import pod
from tftraining_api.model.names import Key
from tftraining_operator.cluster.child_store import ChildStore

KEY = Key("ns", "job")


def names(store: ChildStore) -> set[str]:
    return {child.name for child in store.of(KEY)}


def test_only_news_is_news() -> None:
    store = ChildStore()
    assert store.upsert(pod("a", 5)) == {KEY}
    assert store.upsert(pod("a", 5)) == set()
    assert store.upsert(pod("a", 4)) == set()
    assert store.upsert(pod("a", 6)) == {KEY}


def test_what_was_deleted_does_not_come_back_by_a_late_answer() -> None:
    store = ChildStore()
    assert store.discard(pod("a", 7)) == set()
    assert store.upsert(pod("a", 5)) == set()
    assert names(store) == set()


def test_another_pod_of_the_same_name_replaces_it_and_outlives_its_late_deletion() -> None:
    store = ChildStore()
    store.upsert(pod("a", 5, uid="old"))
    store.upsert(pod("a", 8, uid="new"))
    assert store.discard(pod("a", 7, uid="old")) == set()
    assert store.of(KEY)[0].uid == "new"


def test_a_label_that_is_taken_away_and_given_back() -> None:
    store = ChildStore()
    store.upsert(pod("a", 5))
    assert store.discard(pod("a", 6)) == {KEY}
    assert store.upsert(pod("a", 7)) == {KEY}
    assert names(store) == {"a"}


def test_a_list_synthesises_the_deletions_of_the_gap_but_not_of_what_is_newer() -> None:
    store = ChildStore()
    for each in (pod("kept", 3), pod("lost", 4), pod("just-created", 12), pod("of-another", 5, job="other")):
        store.upsert(each)
    assert store.replace("", [pod("kept", 3)], listed_at=10) == {KEY, Key("ns", "other")}
    assert names(store) == {"kept", "just-created"}
    assert store.of(Key("ns", "other")) == []


def test_a_list_of_one_namespace_says_nothing_of_another() -> None:
    store = ChildStore()
    store.upsert(pod("a", 3))
    assert store.replace("elsewhere", [], listed_at=10) == set()
    assert names(store) == {"a"}


def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    store = ChildStore()
    for index in range(10_000):
        store.upsert(pod("a", index * 3 + 1, uid=f"u{index}", job=f"job-{index}"))
        store.discard(pod("a", index * 3 + 2, uid=f"u{index}", job=f"job-{index}"))
        store.discard(pod("b", index * 3 + 3, uid=f"v{index}", job=f"unknown-{index}"))
    assert store.replace("", [], listed_at=10**9) == set()
    assert len(store._jobs) == len(store._keys) == 0
    assert len(store._deleted) == 4096


def test_a_pod_that_is_labelled_for_another_job_leaves_no_ghost_with_the_first() -> None:
    store, other = ChildStore(), Key("ns", "other")
    store.upsert(pod("a", 5))
    assert store.upsert(pod("a", 6, job="other")) == {KEY, other}
    assert (names(store), len(store.of(other))) == (set(), 1)
    assert store.upsert(pod("a", 5)) == set()
    assert store.discard(pod("a", 7, job="third")) == {other}
    assert store.of(other) == []


def test_a_list_tells_of_a_label_that_was_changed_in_the_gap() -> None:
    store, other = ChildStore(), Key("ns", "other")
    store.upsert(pod("a", 5))
    assert store.replace("", [pod("a", 6, job="other")], listed_at=10) == {KEY, other}
    assert (names(store), len(store.of(other))) == (set(), 1)


def test_the_jobs_on_a_node_are_those_that_have_a_pod_there_now() -> None:
    store, other = ChildStore(), Key("ns", "other")
    store.upsert(pod("a", 1) | {"spec": {}})
    assert store.on_node("n1") == set()
    store.upsert(pod("a", 2) | {"spec": {"nodeName": "n1"}})
    store.upsert(pod("b", 3, job="other") | {"spec": {"nodeName": "n1"}})
    assert store.on_node("n1") == {KEY, other}
    store.upsert(pod("a", 4, job="other") | {"spec": {"nodeName": "n1"}})
    assert store.on_node("n1") == {other}
    store.upsert(pod("b", 5, uid="new", job="other") | {"spec": {"nodeName": "n2"}})
    store.discard(pod("a", 6))
    assert (store.on_node("n1"), store.on_node("n2")) == (set(), {other})
    assert "n1" not in store._nodes


def test_a_silent_node_counts_from_when_this_operator_saw_that() -> None:
    def silent(version: int, ready: str = "False") -> dict[str, object]:
        raw = pod("job-worker-0", version)
        names = {"role": "worker", "index": "0", "attempt": "1"}
        raw["metadata"]["labels"] |= {f"tftraining.dev/{name}": value for name, value in names.items()}
        since = raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        conditions = [
            {"type": "Ready", "status": ready, "lastTransitionTime": since},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": since},
        ]
        return raw | {"status": {"phase": "Running", "conditions": conditions}}

    def noticed() -> object:
        (child,) = store.of(KEY)
        return child.pod and child.pod.silence_noticed_at

    store, days = ChildStore(), iter(range(2, 9))
    store.clock = lambda: datetime(2026, 1, next(days), tzinfo=UTC)
    for version in (5, 6):
        store.upsert(silent(version))
        assert noticed() == datetime(2026, 1, 2, tzinfo=UTC)
    store.upsert(silent(7, "True"))
    assert noticed() is None
    store.upsert(silent(8))
    assert noticed() == datetime(2026, 1, 3, tzinfo=UTC)


def test_a_look_at_one_job_corrects_its_pods_and_a_late_watch_does_not_undo_that() -> None:
    store = ChildStore()
    for raw in (pod("gone", 5), pod("there", 5), pod("newer", 30), pod("of-another", 5, job="other")):
        store.upsert(raw)
    store.replace_job(KEY, [pod("there", 9), pod("unknown", 8)], 20)
    assert names(store) == {"there", "newer", "unknown"} and len(store.of(Key("ns", "other"))) == 1
    assert store.upsert(pod("gone", 7)) == store.upsert(pod("there", 8)) == set()
    assert names(store) == {"there", "newer", "unknown"}
