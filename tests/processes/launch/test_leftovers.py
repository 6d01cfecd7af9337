"""A restart in the same container meets nothing that the killed program has left, and removes nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.launchers.harness import Lab
from tftraining.launch.process.leftovers import OwnPlaces
from tftraining.launch.process.program import Program

MAKES = """
import os, signal, subprocess, sys, tempfile
from tempfile import mkdtemp
kept = tempfile.NamedTemporaryFile(delete=False)
made = [mkdtemp(prefix='data-'), tempfile.mkstemp()[1], kept.name, tempfile.TemporaryDirectory().name]
open(made[0] + '/part', 'w').close()
os.symlink(os.environ['OUT'] + '/work', made[0] + '/link')
elsewhere = tempfile.mkdtemp(dir=os.environ['OUT'])
os.rename(tempfile.mkstemp()[1], tempfile.gettempdir() + '/renamed')
replaced = tempfile.mkdtemp()
os.rmdir(replaced)
os.symlink(os.environ['OUT'] + '/work', replaced)
open(tempfile.gettempdir() + '/by-hand', 'w').close()
subprocess.run([sys.executable, '-c', 'import tempfile; tempfile.mkdtemp(prefix="child-")'], check=True)
print(sorted(os.listdir(tempfile.gettempdir())).__len__(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("warm", [False, True])
async def test_a_restart_meets_no_temporary_file_of_the_dead_program(lab: Lab, warm: bool) -> None:
    temporary = lab.directory / "temporary"
    temporary.mkdir()
    (temporary / "of another").touch()
    lab.extra["TMPDIR"] = str(temporary)
    lab.script(MAKES)
    command = ("python", "script.py")
    program = Program(
        command, warm=warm, grace=5, directory=lab.directory, own=OwnPlaces(temporary.resolve(), alone=False)
    )
    lab.programs.append(program)
    await program.prepare(lab.environment())
    counts = [(await lab.go(program)).lines for _ in range(3)]
    assert program.mode == ("warm" if warm else "plain: spec.launcher.warmStart is false")
    # The first count, and what stays each time: the link that took the place of a directory.
    assert counts == [("8",), ("9",), ("10",)]
    await program.close()
    left = {each.name for each in temporary.iterdir()}
    assert {"of another", "renamed", "by-hand"} < left
    assert len([name for name in left if name.startswith("data-")]) == 1, "that of the last failure"
    assert len([each for each in lab.directory.iterdir() if each.name.startswith("tmp")]) == 3, "not below TMPDIR"
    assert (lab.work / "script.py").exists(), "no link is followed"


SHARES = """
import glob, os, signal
from multiprocessing import shared_memory
mine = shared_memory.SharedMemory(create=True, size=1000, name=os.environ['NAME'])
other = shared_memory.SharedMemory(create=True, size=1000)
attached = shared_memory.SharedMemory(name=os.environ['NAME'] + '-other')
again = shared_memory.SharedMemory(create=True, size=1000, name=os.environ['NAME'] + '-again')
again.unlink()
os.close(os.open('/dev/shm/' + os.environ['NAME'] + '-again', os.O_CREAT))
print(other.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("warm", [False, True])
async def test_a_restart_meets_no_shared_memory_of_the_dead_program(lab: Lab, warm: bool) -> None:
    name, shared = f"tests-{os.getpid()}", Path("/dev/shm")
    others = [shared / f"{name}-other", shared / f"{name}-again"]
    others[0].write_bytes(bytes(1000))
    lab.extra["NAME"] = name
    lab.script(SHARES)
    program = lab.make("python", "script.py", warm=warm)
    await program.prepare(lab.environment())
    made = []
    try:
        for _ in range(2):
            made.append(shared / (await lab.go(program)).lines[0])  # a name that exists would be an error
            others[1].unlink()
        others[1].touch()
        assert [each.exists() for each in (*made, *others, shared / name)] == [False, True, True, True, True]
    finally:
        for each in (*made, *others, shared / name):
            each.unlink(missing_ok=True)


CACHES = """
import os, signal, sys
import tensorflow as tf
cache = os.environ['CACHE']
data = tf.data.Dataset.range(100).cache(cache)
for number, _ in enumerate(data):
    if number == 9 and not os.path.exists(cache + '.killed'):
        open(cache + '.killed', 'w').close()
        os.kill(os.getpid(), signal.SIGKILL)
print('all of it', sorted(os.listdir(os.path.dirname(cache))), flush=True)
"""


@pytest.mark.parametrize("own", [True, False])
async def test_a_cache_in_a_file_survives_a_kill_in_its_first_pass(
    lab: Lab, own: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    place = lab.directory / "cache"
    place.mkdir()
    (lab.work / "script.py").write_text(CACHES)
    places = OwnPlaces(lab.directory.resolve() if own else None, alone=False)
    program = Program((sys.executable, "script.py"), warm=False, grace=5, directory=lab.directory, own=places)
    lab.programs.append(program)
    env = {**os.environ, "CACHE": str(place / "c"), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    for expected in (None, 0 if own else 1):
        lab.ended.clear()
        await program.start(env, lab.on_exit)
        assert (await lab.end(program, 120)).code == expected
    await program.close()
    shown = capfd.readouterr()
    assert ("all of it ['c.data-00000-of-00001', 'c.index', 'c.killed']" in shown.out) is own
    told = f"removed the lock and the incomplete shards of the cache {place.resolve() / 'c'}"
    kept = f"the lock of the cache {place.resolve() / 'c'} stays, for another member may hold it; if none does, remove "
    assert (told in shown.err, kept in shown.err) == (own, not own)


def test_a_name_that_leads_upwards_is_no_name(tmp_path: Path) -> None:
    from tftraining.launch.process.leftovers import Leftovers  # noqa: PLC0415

    inner = tmp_path / "inner/deeper"
    inner.mkdir(parents=True)
    Leftovers(OwnPlaces(tmp_path.resolve(), alone=False), print)._remove(
        [b"t", b"t.", b"t" + bytes(inner / ".."), b"tinner", b"t" + bytes(tmp_path)]
    )
    assert inner.is_dir()
