"""`tftj run` with a program that only pretends to train: the road to the end, kills, deaths of launchers, and every way
to be stopped. After each of them no process and no file of the run is left."""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.client.local_run import Run, manifest
from tests.support.launchers.gang import STANDIN as LOSER
from tftraining_client.commands.plot import read_history


def test_the_road_to_the_end(tmp_path: Path) -> None:
    with Run(tmp_path, manifest("3", "0.05")) as run:
        assert run.wait() == 0
        log = run.log
    assert re.search(r"^tftj     \| digits: 2 replicas on this machine, ", log)
    for line in ("worker-0 | begins after epoch 0", "worker-1 | begins after epoch 0"):
        assert line in log.splitlines()
    head, trained, metrics, time, *rest, curves = log.splitlines()[-9:]
    assert re.fullmatch(r"digits: Succeeded in \d+\.\d s", head)
    assert re.fullmatch(r"  trained   epoch \d of 3, step \d+", trained)  # as it was seen last, on a busy machine
    assert re.fullmatch(r"  metrics   accuracy \d\.\d+, loss \d\.\d+", metrics)
    assert re.fullmatch(r"  time      \d+\.\d % of \d+\.\d s trained; start \d+\.\d s", time)
    assert rest == [
        "  restarts  none",
        "  cleanup   1 temporary save directory removed",
        f"  model     {run.job / 'model'}",
        f"  directory {run.job}",
    ]
    plot = shlex.split(curves.removeprefix("  curves    "))
    assert plot[-2:] == ["plot", str(run.job)]
    shown = subprocess.run(plot, capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and "loss: " in shown.stdout, shown.stderr
    history = read_history(run.job)
    assert [point.epoch for point in history.metrics["loss"]][-1] == 3 and history.restarts == []
    assert not (run.job / "workertemp_1").exists()
    assert (run.job / "model").is_dir()


def test_what_the_command_line_changes_and_what_of_it_is_not_used(tmp_path: Path) -> None:
    container = "spec.template.spec.containers[0]"
    changes = [f"{container}.command=[python, -c, print('another program')]", "spec.storage=null"]
    changes += [f"{container}.resources.limits.cpu=1", "spec.template.spec.nodeSelector.disk=fast"]
    options = [word for change in changes for word in ("--set", change)]
    with Run(tmp_path, manifest("3", "0.05"), *options, "--kill", "worker-1@step=3") as run:
        assert run.wait() == 0
        log = run.log
    assert "worker-0 | another program" in log.splitlines() and "begins after epoch" not in log
    assert "cannot validate the new field spec.template.spec.nodeSelector without a cluster; keeping it" in log
    assert re.search(r"--workdir \S+ is ignored: the job has no spec.storage", log), log
    assert "--kill worker-1@step=3 was not executed: no step was reported" in log


@pytest.mark.parametrize("member", ["worker-1", pytest.param("worker-0", marks=pytest.mark.slow_fault)])
def test_a_kill_costs_the_epoch_that_it_hits(tmp_path: Path, member: str) -> None:
    with Run(tmp_path, manifest("4", "0.3"), "--kill", f"{member}@epoch=3") as run:
        assert run.wait() == 0
        log = run.log
    assert f"SIGKILL for the program of {member} (--kill {member}@epoch=3)" in log
    assert log.count("begins after epoch 2") == 2, log
    assert re.search(
        rf"restarts  1, \d\.\d s without training\n +{member} was killed \(SIGKILL\), resumed from epoch 2,", log
    )
    (row,) = (line for line in log.splitlines() if line.startswith("  time "))
    lost = dict(re.findall(r"(start|restarts in place|lost steps) (\d+\.\d) s", row))
    share, total = map(float, re.findall(r"(\d+\.\d) % of (\d+\.\d) s trained", row)[0])
    assert len(lost) == 3 and total * (1 - share / 100) == pytest.approx(sum(map(float, lost.values())), abs=0.3)


def test_with_min_replicas_a_worker_whose_launcher_is_back_in_time_is_waited_for(tmp_path: Path) -> None:
    """Until the lease of the launcher that was killed is over nobody may go on, and its successor is there by then."""
    job = manifest("20", "0.05", workers=3, minReplicas=2)
    job["spec"]["launcher"]["memberTimeoutSeconds"] = 12
    with Run(tmp_path, job, "--kill", "pod/worker-1@epoch=3") as run:
        assert run.wait() == 0
        log = run.log
    assert "SIGKILL for the launcher of worker-1 (--kill pod/worker-1@epoch=3)" in log
    second = [line.partition(" ")[0] for line in log.splitlines() if line.endswith("| tftraining: round 2 starts")]
    assert sorted(second) == ["worker-0", "worker-1", "worker-2"], log
    # On a busy machine its last heartbeat may be older than a second.
    how = r"worker-1('s launcher disconnected| sent no heartbeat for \d+\.\d s)"
    assert re.search(rf"{how}, resumed from epoch \d+, \d+\.\d s without training", log), log
    assert "restarts  1, " in log


@pytest.mark.parametrize("mode", ["InPlace", pytest.param("Recreate", marks=pytest.mark.slow_fault)])
def test_all_workers_are_waited_for_where_the_job_says_so(tmp_path: Path, mode: str) -> None:
    job = manifest("2", "0.02", "--late", successPolicy="AllWorkers", restartPolicy={"mode": mode})
    if mode == "Recreate":
        del job["spec"]["launcher"]["warmStart"]  # works only with launchers
    with Run(tmp_path, job) as run:
        assert run.wait() == 0
        log = run.log
    assert "worker-1 | done at last" in log
    assert re.search(r"^digits: Succeeded in ", log, re.MULTILINE), log


@pytest.mark.slow_fault
def test_several_kills_and_one_that_never_comes(tmp_path: Path) -> None:
    kills = ("--kill", "worker-1@step=3", "--kill", "worker-0@step=12", "--kill", "worker-0@epoch=9")
    with Run(tmp_path, manifest("4", "0.1"), *kills) as run:
        assert run.wait() == 0
        log = run.log
    assert "restarts  2, " in log
    assert "--kill worker-0@epoch=9 was not executed: the job ended at epoch " in log


def test_an_exception_in_the_first_lines_ends_the_job_at_its_third_start(tmp_path: Path) -> None:
    """Without wait, and without any step: in a few seconds where the machine has nothing else to do."""
    program = "import os\nwords = {}\nwords['batch_size']"
    command = "spec.template.spec.containers[0].command=" + yaml.safe_dump(["python", "-c", program], width=1000)
    with Run(tmp_path, manifest(), "--set", command) as run:
        assert run.wait() == 1
        log = run.log
    words = r"SameFailure: worker-\d: KeyError: 'batch_size' \(<string>, line 3\); the same"
    took = re.search(rf"digits: Failed after (\d+\.\d) s: {words}", log)
    assert took is not None, log
    assert float(took[1]) < 60, "the least that the failures of a job in a cluster lie apart"


def test_a_command_that_cannot_be_repeated_gets_a_clean_container_after_a_kill(tmp_path: Path) -> None:
    job = manifest("3", "0.1")
    container = job["spec"]["template"]["spec"]["containers"][0]
    script = " ".join(["mkdir $TMPDIR/src && exec", *container["command"]])
    container["command"] = ["sh", "-c", script]
    with Run(tmp_path, job, "--kill", "worker-1@step=3") as run:
        assert run.wait() == 0
        log = run.log
    assert re.search(r"worker-\d failed 2 times in a row before .*; starting it with an empty TMPDIR", log), log
    assert re.search(r"^digits: Succeeded in ", log, re.MULTILINE), log


def test_a_program_that_fails_for_good(tmp_path: Path) -> None:
    job = manifest("4", "0.02", "--fail", "7", restartPolicy={"maxRestarts": 1, "budgetReset": "Never"})
    with Run(tmp_path, job) as run:
        assert run.wait() == 1
        log = run.log
    assert re.search(r"^worker-[01] \| no more of this", log, re.MULTILINE), log
    assert re.search(r"^digits: Failed after .* failed with exit code 7", log, re.MULTILINE), log
    assert re.search(r"^  restarts  1(,|$)", log, re.MULTILINE), "the second failure ended the job"
    assert "Traceback" not in log


@pytest.mark.parametrize("whole", [False, True])
def test_the_traceback_of_the_first_failure_is_the_one_that_is_shown(tmp_path: Path, whole: bool) -> None:
    job = manifest(restartPolicy={"maxRestarts": 0})
    job["spec"]["template"]["spec"]["containers"][0]["command"][1:] = [
        str(LOSER),
        "$(TFTRAINING_DIR)",
        "--epochs",
        "1000",
    ]
    (tmp_path / "work/digits").mkdir(parents=True)
    (tmp_path / "work/digits/order-worker-0").write_text("lose worker-1")
    with Run(tmp_path, job, *(["--env", "TFTRAINING_FULL_TRACEBACKS=1"] if whole else [])) as run:
        assert run.wait() == 1
        assert "worker-1 | ValueError: boom\n" in run.log
        assert ("worker-0 | Traceback (most recent call last):\n" in run.log) == whole
        assert ("worker-0 | tftraining: this program failed because of worker-1; " in run.log) != whole
        assert "worker-0 | closing\n" in run.log


def test_a_restart_is_told_with_the_exception_behind_it(tmp_path: Path) -> None:
    job = manifest("4", "0.05", "--raise", "3", restartPolicy={"maxRestarts": 1, "sameFailureLimit": 0})
    with Run(tmp_path, job) as run:
        assert run.wait() == 1
        log = run.log
    assert re.search(r"^tftj     \| worker-1: ValueError: boom; ", log, re.MULTILINE), log
    assert re.search(
        r"^digits: Failed after .* MaxRestartsExceeded: worker-1: ValueError: boom; no restarts left", log, re.M
    )


@pytest.mark.slow_fault
def test_the_same_exception_again_and_again_ends_the_run(tmp_path: Path) -> None:
    """As a newcomer has it: no field is set, and there would be ten restarts."""
    with Run(tmp_path, manifest("4", "1", "--raise", "3")) as run:
        assert run.wait() == 1
        log = run.log
    found = re.search(r"^digits: Failed after ([\d.]+) s: SameFailure: worker-1: ValueError: boom; the same", log, re.M)
    assert found, log
    assert float(found[1]) < 60  # no wait between these failures, as on a cluster
    assert log.count("Traceback") < 10


@pytest.mark.parametrize("member", ["worker-1", pytest.param("worker-0", marks=pytest.mark.slow_fault)])
def test_a_launcher_that_dies_is_started_again(tmp_path: Path, member: str) -> None:
    with Run(tmp_path, manifest("6", "0.2", "--children")) as run:
        run.wait_for(r"epoch [2-4]/6")
        os.kill(run.launcher(member), signal.SIGKILL)
        assert run.wait() == 0
        log = run.log
    assert f"the launcher of {member} exited with 137; restarting it" in log
    assert re.search("trained   epoch [56] of 6", log)


def test_a_launcher_that_cannot_live_ends_the_job(tmp_path: Path) -> None:
    """A variable of the job's own that the launcher's Python cannot live with."""
    with Run(tmp_path, manifest("3", "0.05"), "--env", "PYTHONHOME=/nowhere") as run:
        assert run.wait() == 1
    assert re.search(
        r"Failed after .*: LauncherFailed: the launcher of worker-[01] exits at once, with 1$", run.log, re.M
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow_fault),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow_fault),
    ],
)
def test_stopped_by_a_signal(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with Run(tmp_path, manifest("100", "0.1", "--children", "--deaf")) as run:
        run.wait_for(r"epoch \d+/100")
        run.process.send_signal(number)
        assert run.wait() == code
        log = run.log
    assert "stopped; all processes of the job have ended" in log
    assert "Traceback" not in log


def test_stopped_before_anything_runs(tmp_path: Path) -> None:
    with Run(tmp_path, manifest("100", "0.1")) as run:
        run.wait_for("on this machine")
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert "Traceback" not in run.log


def test_asked_twice_to_stop_it_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    job = manifest("100", "0.1", "--deaf", launcher={"warmStart": False, "terminationGraceSeconds": 300})
    with Run(tmp_path, job) as run:
        run.wait_for(r"epoch \d+/100")
        run.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            run.process.wait(0.5)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130


def test_killed_itself_it_leaves_nothing_running(tmp_path: Path) -> None:
    with Run(tmp_path, manifest("100", "0.1")) as run:
        run.wait_for(r"epoch \d+/100")
        run.process.kill()
        run.process.wait()
        deadline = time.monotonic() + 60
        while run.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert run.processes() == []


def test_whoever_reads_the_output_goes_away(tmp_path: Path) -> None:
    with Run(tmp_path, manifest("1", "0")) as run:
        assert run.wait() == 0
    words = [sys.executable, "-m", "tftraining_client", "run", str(tmp_path / "job.yaml"), "--workdir", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_the_terminal_goes_away(tmp_path: Path) -> None:
    """SIGHUP, and errors from every write."""
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest("100", "0.1")))
    here, there = pty.openpty()
    words = [sys.executable, "-m", "tftraining_client", "run", "job.yaml", "--workdir", "work"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"}
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdin=there, stdout=there, stderr=there, start_new_session=True
    )
    os.close(there)
    seen = b""
    while b"on this machine" not in seen:
        seen += os.read(here, 65536)
    os.close(here)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) in (129, 141)
    assert {each.name for each in tmp_path.iterdir()} <= {"job.yaml", "work"}


def test_not_done_in_time(tmp_path: Path) -> None:
    with Run(tmp_path, manifest("100", "0.1", runPolicy={"activeDeadlineSeconds": 2})) as run:
        assert run.wait() == 1
    assert "DeadlineExceeded: not finished after 2 s (spec.runPolicy.activeDeadlineSeconds)" in run.log


@pytest.mark.slow_fault
def test_a_second_run_goes_on_from_the_first(tmp_path: Path) -> None:
    for epochs, begins in (("2", 0), ("3", 2)):
        with Run(tmp_path, manifest(epochs, "0.02")) as run:
            assert run.wait() == 0
        assert f"worker-0 | begins after epoch {begins}" in run.log
    assert "has files of an earlier run: the training resumes from its backup, if any" in run.log


def test_a_chief_a_parameter_server_and_an_evaluator(tmp_path: Path) -> None:
    roles = {"chief": {}, "worker": {"replicas": 1}, "ps": {}, "evaluator": {}}
    job = manifest("2", "0.5", replicaSpecs=roles, runPolicy={"evaluatorGraceSeconds": 5})
    with Run(tmp_path, job) as run:
        assert run.wait() == 0
    for member in ("chief-0", "worker-0", "ps-0", "evaluator-0"):
        assert f"{member:<11} | begins after epoch 0" in run.log
