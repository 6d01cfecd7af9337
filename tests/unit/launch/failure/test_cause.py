"""The cause in a message of TensorFlow and Keras; docs/troubleshooting.md has those of real programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftraining.launch.failure.cause import cause_of, fatal_line, is_below, is_noise
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.same_failure import key_of
from tftraining.launch.failure_and_restart_messages import describe
from tftraining.launch.process.output import OutputTail

NO_GPU = "E0000 00:00:1795720604.320147     814 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error"
OF_THE_RUNTIME = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795720604.1 814 port.cc:153] oneDNN custom operations are on. You may see slightly different results",
    "2026-11-26 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the compiler flags.",
    "2026-11-26 10:00:00.123456: E external/local_xla/xla/cuda/cuda_driver.cc:152] failed call to cuInit",
    NO_GPU,
)
KERAS_2_IN_A_LAYER = """
    File "/train.py", line 40, in train_step
        y = self(x)

    ValueError: Exception encountered when calling layer "own" (type Own).
    
    in user code:
    
        File "/train.py", line 12, in call  *
            return tf.matmul(t, t)
    
        ValueError: Dimensions must be equal, but are 8 and 4
    
    
    Call arguments received by layer "own" (type Own):
      • t=tf.Tensor(shape=(4, 8), dtype=float32)
"""  # noqa: W293
SEVERAL = """

Detected at node a/b defined at (most recent call last):
<stack traces unavailable>
2 root error(s) found.
  (0) INVALID_ARGUMENT:  Incompatible shapes: [4,8] vs. [4,7]
\t [[{{node a/b}}]]
\t [[RemoteCall]]
  (1) CANCELLED:  Function was cancelled before it was started
0 successful operations. [Op:__inference_train_function_5]"""
LOST_PEER = """

Detected at node CollectiveReduceV2 defined at (most recent call last):
<stack traces unavailable>
Collective ops is aborted by: Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling /tensorflow.Worker/X:
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [Op:__inference_train_function_5]"""


@pytest.mark.parametrize(
    ("head", "rest", "cause"),
    [
        ("ValueError: in user code:", KERAS_2_IN_A_LAYER, "ValueError: Dimensions must be equal, but are 8 and 4"),
        (
            "InvalidArgumentError: Graph execution error:",
            SEVERAL,
            "InvalidArgumentError: Incompatible shapes: [4,8] vs. [4,7] (at a/b)",
        ),
        (
            "UnavailableError: Graph execution error:",
            LOST_PEER,
            "UnavailableError: Collective ops is aborted by: Socket closed (at CollectiveReduceV2)",
        ),
        (
            "RuntimeError: Could not automatically infer the output shape / dtype of 'own'.",
            "\nError encountered:\n\nIncompatible shapes: [4,8] vs. [4,7]\nbye",
            "RuntimeError: Incompatible shapes: [4,8] vs. [4,7]",
        ),
        (
            "InvalidArgumentError: {{function_node x}} : Tensor had NaN values",
            "",
            "InvalidArgumentError: Tensor had NaN values",
        ),
        ("ValueError: one", "\ntwo\nthree: four", "ValueError: one"),
        (
            "ValueError: same number.'x' sizes: 64",
            "\n'y' sizes: 50\n",
            "ValueError: same number.'x' sizes: 64, 'y' sizes: 50",
        ),
        ("ValueError: these differ:", "\n  a: 1\n  b: 2\n\nbye", "ValueError: these differ: a: 1 b: 2"),
        ("ValueError: of shape (16, 5), not [2, 3, 4]", "", "ValueError: of shape (16, 5), not [2, 3, 4]"),
        ("ValueError: got [[1. 2.", " [3. 4.]] here", "ValueError: got […] here"),
        ("ValueError: in user code:", '\n    File "/train.py", line 4, in f', "ValueError: in user code:"),
    ],
)
def test_the_cause_is_told_and_not_the_frame(head: str, rest: str, cause: str) -> None:
    assert cause_of(head, rest.split("\n")) == cause


def test_two_errors_of_the_graph_are_two_failures() -> None:
    labels = "\nReceived a label value of 12 outside the valid range of [0, 10).  Label values: {}\n\t [[{{node x}}]]"
    told = [
        cause_of("InvalidArgumentError: Graph execution error:", rest.split("\n"))
        for rest in (SEVERAL, labels.replace("{}", "0 12"), labels.replace("{}", "12 7 3"))
    ]
    keys = [key_of(Exit(1, None, exception=each), "1/5") for each in told]
    assert keys[0] != keys[1] and keys[1] == keys[2], "the other labels of the batch make no other failure"


def test_no_line_of_the_runtime_is_a_cause_or_in_the_tail() -> None:
    assert all(map(is_noise, OF_THE_RUNTIME))
    tail = OutputTail()
    tail.feed(2, "\n".join(("epoch 1", *OF_THE_RUNTIME, "")).encode())
    assert tail.lines() == ("epoch 1",)
    assert describe("worker-1", Exit(3, None, OF_THE_RUNTIME)) == "worker-1 failed with exit code 3"


def test_an_error_in_the_log_of_the_runtime_stays_in_the_tail_and_is_no_cause() -> None:
    line = "E0000 00:00:1795720604.3 814 coordination_service_agent.cc:725] Polled an error: UNAVAILABLE"
    assert not is_noise(line)
    assert describe("worker-1", Exit(3, None, ("words", line))) == "worker-1 failed with exit code 3: words"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "F0000 00:00:1795720604.574000   31559 tensor_shape.cc:201] Check failed: size >= 0",
            "Check failed: size >= 0",
        ),
        ("2026-11-26 10:00:00.1: F tensorflow/core/x.cc:12] Check failed: a", "Check failed: a"),
        ("Fatal Python error: Segmentation fault", "Fatal Python error: Segmentation fault"),
        ("terminate called after throwing an instance of 'std::bad_alloc'",) * 2,
    ],
)
def test_a_program_that_ends_itself_by_a_signal_tells_why(line: str, told: str) -> None:
    assert fatal_line(("epoch 1", line, "*** Check failure stack trace: ***")) == told
    assert describe("worker-1", Exit(None, 6, (line,))) == f"worker-1 was killed (SIGABRT): {told}"
    assert describe("worker-1", Exit(None, 9, (line,))) == "worker-1 was killed (SIGKILL)", "it comes from outside"


@given(st.text(max_size=300), st.lists(st.text(max_size=80), max_size=20))
def test_it_never_raises(text: str, rest: list[str]) -> None:
    for frame in ("in user code:", "Graph execution error:", "Exception encountered when calling", text):
        assert cause_of(f"ValueError: {frame}", [text, f"    ValueError: {frame}", *rest]).startswith("ValueError")


@pytest.mark.parametrize(
    ("level", "hidden"), [("", 0), ("none", 0), ("0", 0), ("1", 4), ("2", 4), ("3", 6)], ids=lambda each: f"{each!r}"
)
def test_the_level_of_the_log_hides_what_it_asks_for(level: str, hidden: int) -> None:
    of_the_program = ("I1126 10:00:00.123456 140 train.py:12] epoch 3", "I am here", "E: no such file")
    lines = (*OF_THE_RUNTIME, "F0000 00:00:1.1 8 a.cc:1] Check failed", *of_the_program)
    assert [line for line in of_the_program if is_noise(line)] == []
    assert sum(is_below(line, level) for line in lines) == hidden
