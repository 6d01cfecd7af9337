"""Tracebacks of programs that lost a peer: when they are left out of the log, and that nothing else ever is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftraining.launch.failure.traceback_folding import HOLD_BYTES, HOLD_SECONDS, VARIABLE, Folding, wanted

FRAMES = (
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    model.fit(data)\n    ^^^^^^^^^\n'
)
LOST = f"{FRAMES}tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:\n"
GRAPH = """\

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "train.py", line 3, in <module>

Collective ops is aborted by: Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:1:
:{"created":"@1","description":"Error received from peer"}
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [Op:__inference_train_function_1234]
"""
# As the chief of two workers, each with TensorFlow 2.21, printed it when the other one's program had ended by an error.
REAL = """\
Traceback (most recent call last):
  File "/app/boom.py", line 15, in <module>
    m.fit(x, y, batch_size=32, epochs=500, verbose=2, callbacks=[Boom()])
  File "/usr/lib/python3.11/site-packages/tf_keras/src/utils/traceback_utils.py", line 70, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get
    raise self._value
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 48, in mapstar
    return list(map(*args))
           ^^^^^^^^^^^^^^^^
tensorflow.python.framework.errors_impl.UnavailableError: {{function_node __wrapped__CollectiveReduceV2_Nordering_token\
_1_device_/job:worker/replica:0/task:0/device:CPU:0}} Collective ops is aborted by: Error reported from /job:worker/\
task:1: The following tasks are unhealthy (stopped sending heartbeats):
/job:worker/replica:0/task:1
The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. preemption, eviction) to \
debug further.
The error could be from a previous operation. Restart your program to reset. [Op:CollectiveReduceV2] name:
"""
OWN = f"{FRAMES}ValueError: boom\n"
FOLDED = "tftraining: this program failed because of worker-1; omitting its traceback of "


def fold(folding: Folding, text: str, now: float = 0.0) -> str:
    return folding.feed(text.encode(), now).decode()


def settle(folding: Folding) -> str:
    return folding.resolve().decode()


def folded(text: str, *, known: bool = False) -> str:
    """All that is passed on of `text` when another member turns out to have failed, or was `known` to have before."""
    folding = Folding()
    if known:
        assert folding.blame("worker-1") == b""
    passed = fold(folding, text)
    assert folding.blame("worker-1") == b""
    return passed + settle(folding)


def test_a_traceback_of_a_lost_peer_becomes_one_line() -> None:
    for known in (True, False):
        told = folded(f"step 3\n{LOST}{GRAPH}", known=known)
        assert told.splitlines() == [
            "step 3",
            f"{FOLDED}14 lines: UnavailableError: Collective ops is aborted by: Socket closed "
            "(set TFTRAINING_FULL_TRACEBACKS=1 to see it)",
        ]


def test_what_tensorflow_really_prints() -> None:
    told = folded(f"{REAL}bye\n")
    assert told.startswith(f"{FOLDED}14 lines: UnavailableError: Collective ops is aborted by: Error reported")
    assert told.endswith(f" (set {VARIABLE}=1 to see it)\nbye\n")
    assert len(told) < 400


@pytest.mark.parametrize("error", ["ConnectionResetError: [Errno 104] Connection reset by peer", "BrokenPipeError: x"])
def test_errors_of_the_interpreters_own_that_mean_the_same(error: str) -> None:
    assert folded(f"{FRAMES}{error}\n") == f"{FOLDED}5 lines: {error} (set {VARIABLE}=1 to see it)\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    folding = Folding()
    folding.blame("worker-1")
    folding.feed(FRAMES.encode() + b"BrokenPipeError: \xff\n", 0.0)
    assert settle(folding) == f"{FOLDED}5 lines: BrokenPipeError: \ufffd (set {VARIABLE}=1 to see it)\n"


def test_errors_of_the_program_itself_are_passed_on_at_once() -> None:
    folding = Folding()
    folding.blame("worker-1")
    assert fold(folding, OWN) == OWN
    assert folding.until is None
    assert fold(folding, f"{FRAMES}KeyError\n") == f"{FRAMES}KeyError\n"


def test_what_comes_after_is_kept_but_for_tensorflows_complaints() -> None:
    complaint = "E0000 00:00:1795341519.346484     869 coordination_service_agent.cc:316] Socket closed\n"
    older = "2024-01-01 10:00:00.123456: W tensorflow/core/x.cc:12] Local rendezvous is aborting\n"
    after = "closing the summary writer\nI0000 00:00:1795341519.346484     869 x.cc:3] an information\n"
    told = folded(f"{LOST}{GRAPH}{complaint}{older}{after}")
    assert told.startswith(f"{FOLDED}16 lines")
    assert told.endswith(f"to see it)\n{after}")
    assert folded(f"{LOST}{GRAPH}{complaint}{after}").startswith(f"{FOLDED}15 lines")
    assert folded(f"{LOST}{GRAPH}unfinished").endswith("to see it)\nunfinished")


def test_a_chain_is_one_traceback() -> None:
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    told = folded(f"{LOST}{during}{LOST}{GRAPH}{cause}{FRAMES}RuntimeError: the training has failed\nbye\n")
    assert told.startswith(f"{FOLDED}30 lines: RuntimeError: the training has failed")
    assert told.endswith(")\nbye\n")
    assert folded(f"{OWN}{during}{LOST}").startswith(f"{OWN}{during}{FOLDED}5 lines")  # its own error is shown


def test_another_traceback_after_it_is_kept() -> None:
    assert folded(LOST + OWN).endswith(f"to see it)\n{OWN}")


def test_it_is_held_back_until_it_is_known_whose_failure_it_is() -> None:
    folding = Folding()
    assert fold(folding, f"step 3\n{LOST}", 7.0) == "step 3\n"
    assert folding.until == 7.0 + HOLD_SECONDS
    assert folding.tick(7.0 + HOLD_SECONDS - 0.01) == b""
    assert folding.blame("").decode() == LOST
    assert folding.until is None
    assert fold(folding, LOST, 8.0) == ""
    assert folding.tick(8.0 + HOLD_SECONDS).decode() == LOST


def test_a_program_that_is_killed_while_it_prints() -> None:
    for cut in (len(FRAMES) - 3, len(FRAMES), len(LOST) - 4):
        told = folded(LOST[:cut], known=True)
        assert told.startswith(FOLDED)
        assert told.endswith("killed while printing it (set TFTRAINING_FULL_TRACEBACKS=1 to see it)\n")
        folding = Folding()
        assert fold(folding, LOST[:cut]) == ""
        assert settle(folding) == LOST[:cut]


def test_two_processes_that_print_at_the_same_time() -> None:
    mixed = "".join(a + b for a, b in zip(LOST.splitlines(True), OWN.splitlines(True), strict=True))
    for text in (mixed, f"{FRAMES}epoch 3 is over\nUnavailableError: Socket closed\n"):
        assert folded(text) == text


def test_what_only_looks_like_one() -> None:
    for text in ("xTraceback (most recent call last):\n", "ERROR:root:Traceback (most recent call last):\n", "Trace"):
        folding = Folding()
        assert fold(folding, text) == text
    folding = Folding()
    assert fold(folding, "  0%|   | 0/3") + fold(folding, FRAMES) == "  0%|   | 0/3" + FRAMES


def test_no_more_than_so_much_is_held_back() -> None:
    folding = Folding()
    text = LOST + "x" * HOLD_BYTES
    assert fold(folding, text) == text
    assert folding.until is None


def test_a_new_round_blames_nobody() -> None:
    folding = Folding()
    folding.blame("worker-1")
    folding.blame("")
    assert fold(folding, LOST) + settle(folding) == LOST


def test_what_python_really_prints() -> None:
    program = """
class UnavailableError(Exception): pass
def f(n): return f(n - 1) if n else g()
def g():
    try: 1 / 0
    except ZeroDivisionError as error: raise UnavailableError('Socket closed\\n\\t [[{{node x}}]]') from error
try: f(9)
except UnavailableError: raise ConnectionError
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    told = folded(done.stderr.decode())
    assert "ZeroDivisionError: division by zero\n" in told  # of its own, so it is kept
    assert told.count(FOLDED) == 1
    assert " lines: ConnectionError (" in told.splitlines()[-1]


@pytest.mark.parametrize(("value", "folds"), [(None, True), ("", True), ("0", True), ("1", False), ("true", False)])
def test_who_wants_them_all(value: str | None, folds: bool) -> None:
    assert wanted({} if value is None else {VARIABLE: value}) is folds


PIECES = [
    *LOST.splitlines(True),
    *GRAPH.splitlines(True),
    *OWN.splitlines(True),
    FRAMES,
    LOST,
    "step 3\n",
    "50%\r",
    "x",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=30).map("".join)


@given(TEXTS, st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1)), max_size=40))
def test_any_text_of_an_ordinary_run_comes_out_unchanged(text: str, pieces: list[tuple[int, float]]) -> None:
    """In whatever pieces it comes, in its order, and nothing of it later than HOLD_SECONDS."""
    data, folding, now, passed, fed = text.encode(), Folding(), 0.0, b"", b""
    for size, wait in [*pieces, (len(data), 0.0)]:
        now += wait
        passed += folding.tick(now)
        piece = data[len(fed) : len(fed) + size]
        passed, fed = passed + folding.feed(piece, now), fed + piece
        assert fed.startswith(passed)
        assert passed == fed if folding.until is None else now < folding.until <= now + HOLD_SECONDS
    assert passed + folding.resolve() == data


@given(TEXTS, st.lists(st.integers(1, 60), max_size=40))
def test_what_is_left_out_is_a_piece_of_what_was_said(text: str, sizes: list[int]) -> None:
    """Whoever is blamed: every line that comes out was in the text, in that order, or is the launcher's own."""
    data, folding, passed, fed = text.encode(), Folding(), b"", 0
    folding.blame("worker-1")
    for size in [*sizes, len(data)]:
        passed += folding.feed(data[fed : fed + size], 0.0)
        fed += size
    passed += folding.resolve()
    rest = iter(data.split(b"\n"))
    for line in passed.split(b"\n"):
        assert line.startswith(FOLDED.encode()) or line in rest or line == b""
