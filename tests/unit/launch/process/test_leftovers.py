"""What of a dead program's leftovers is this member's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tftraining.launch.in_user_process.mounts import Mount, mount_of, parse_mounts
from tftraining.launch.process import leftovers
from tftraining.launch.process.leftovers import OwnPlaces, own_places

POD = "/var/lib/kubelet/pods/4f/volumes"
MOUNTINFO = rf"""
1522 1105 0:331 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a:/b
1530 1522 0:340 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k
1540 1522 8:1 {POD}/kubernetes.io~empty-dir/scratch /scratch rw - ext4 /dev/sda1 rw
1541 1522 0:400 /export /data rw - nfs4 server:/export rw
1542 1522 8:1 {POD}/kubernetes.io~local-volume/x /a\040b rw - ext4 /dev/sda1 rw
1543 1522 8:1 /hidden /twice rw - ext4 /dev/sda1 rw
1544 1522 0:401 / /twice rw - tmpfs tmpfs rw
1545 1522 0:402 / /tmp/mine/mounted rw - nfs4 server:/export rw
""".strip()
MOUNTS = parse_mounts(MOUNTINFO)


def test_the_mounts_of_a_container_are_read() -> None:
    assert MOUNTS[0] == Mount(Path("/"), "/", "overlay")
    assert MOUNTS[4].point == Path("/a b")
    assert mount_of(Path("/twice/x"), MOUNTS) == MOUNTS[6]
    assert mount_of(Path("/scratch"), MOUNTS) == MOUNTS[2]
    assert mount_of(Path("/scratched"), MOUNTS) == MOUNTS[0]
    assert mount_of(Path("/x"), []) is None


IN_A_CONTAINER = OwnPlaces(Path("/tmp"), alone=True)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/tmp/dataset-1", True),
        ("/tmp/a/b/dataset-1", True),
        ("/tmp", False),
        ("/tmpdir/x", False),
        ("/home/x", False),
        ("/tmp/mine", False),  # something is mounted in it
        ("/tmp/mine/mounted", False),
        ("/tmp/mine/mounted/x", False),
        ("/tmp/mine/x", True),
    ],
)
def test_a_temporary_file_is_removed_from_the_containers_own_disk_alone(path: str, own: bool) -> None:
    assert IN_A_CONTAINER.has_temporary(Path(path), MOUNTS) is own


@pytest.mark.parametrize("volume", ["/scratch", "/data", "/a b", "/dev/shm", "/twice"])
def test_a_temporary_directory_on_a_volume_is_left_alone(volume: str) -> None:
    places = OwnPlaces(Path(volume), alone=True)
    assert not places.has_temporary(Path(volume) / "x", MOUNTS)
    assert not places.has_temporary(Path("/tmp/x"), MOUNTS)


def test_nothing_is_removed_if_the_mounts_are_unknown() -> None:
    assert not IN_A_CONTAINER.has_temporary(Path("/tmp/x"), [])
    assert not IN_A_CONTAINER.has_cache(Path("/tmp/x"), [])


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/cache/c", True),
        ("/scratch/c", True),
        ("/dev/shm/c", True),
        ("/data/c", False),
        ("/a b/c", False),
    ],
)
def test_a_cache_is_freed_where_no_other_pod_writes(path: str, own: bool) -> None:
    assert IN_A_CONTAINER.has_cache(Path(path), MOUNTS) is own


def test_under_tftj_run_only_the_replicas_own_directory_counts(tmp_path: Path) -> None:
    own = tmp_path / "worker-1"
    own.mkdir()
    places = own_places({"TMPDIR": str(own)}, tmp_path / "secret", local=True)
    assert places == OwnPlaces(own, alone=False)
    mounts = [Mount(Path("/"), "/", "ext4"), Mount(tmp_path, "/", "tmpfs")]
    for path, expected in ((own / "x", True), (tmp_path / "x", False), (Path("/tmp/x"), False)):
        assert places.has_temporary(path, mounts) is places.has_cache(path, mounts) is expected
    assert own_places({"TMPDIR": "/tmp"}, tmp_path / "secret", local=True) == OwnPlaces(None, alone=False)


def test_the_directory_is_that_of_pythons_tempfile(tmp_path: Path) -> None:
    secret = Path("/etc/key")
    assert own_places({}, secret, local=False).temporary == Path("/tmp")
    assert own_places({"TMPDIR": "/no such", "TMP": str(tmp_path)}, secret, local=False).temporary == tmp_path


def test_a_complete_cache_and_one_without_a_lock_stay(tmp_path: Path) -> None:
    cache = tmp_path / "c"
    incomplete = [tmp_path / "c_0.lockfile", tmp_path / "c_0.data-00000-of-00001.tempstate12"]
    others = [tmp_path / "cc_0.lockfile", tmp_path / "c_0.txt", tmp_path / "c_x.lockfile"]
    for each in (*incomplete, *others):
        each.touch()
    assert leftovers._incomplete_shards(cache) == incomplete
    (tmp_path / "c.index").touch()
    assert leftovers._incomplete_shards(cache) == []
    (tmp_path / "c.index").unlink()
    incomplete[0].unlink()
    assert leftovers._incomplete_shards(cache) == []
