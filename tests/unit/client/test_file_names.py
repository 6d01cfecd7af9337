"""What a side of a copy means, and where its files go."""

import pytest

from tftraining_client.errors import UserError
from tftraining_client.files.names import Remote, in_storage, place, remote


@pytest.mark.parametrize(
    ("text", "drives", "found"),
    [
        ("digits:models/final.keras", False, Remote("digits", "models/final.keras")),
        ("digits:", True, Remote("digits", "")),
        ("tftrainingjob.tftraining.dev/a:/b:c", False, Remote("tftrainingjob.tftraining.dev/a", "/b:c")),
        ("team/digits:a", False, Remote("team/digits", "a")),
        ("./digits:a", False, None),
        ("/tmp/digits:a", False, None),
        ("a_b:c", False, None),
        ("digits", False, None),
        (":a", False, None),
        ("c:a", False, Remote("c", "a")),
        ("c:\\a", True, None),
        ("C:/a", True, None),
        ("digits:a\nb", False, Remote("digits", "a\nb")),
    ],
)
def test_a_side_with_the_name_of_a_job_is_in_the_cluster(text: str, drives: bool, found: Remote | None) -> None:
    assert remote(text, drives) == found


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("", "/training/digits"),
        (".", "/training/digits"),
        ("models/final.keras", "/training/digits/models/final.keras"),
        ("../other/a", "/training/other/a"),
        ("/training", "/training"),
        ("/training/a/", "/training/a"),
        ("//training/a", "/training/a"),
    ],
)
def test_a_path_is_relative_to_the_directory_of_the_job(path: str, whole: str) -> None:
    assert in_storage(path, "/training/digits", "/training") == whole
    assert in_storage(path, "/training/digits", "/training/") == whole


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../..", "../../training2/a", "/training/../etc", "/", "/training2", "a\0b"]
)
def test_no_path_leaves_the_volume(path: str) -> None:
    with pytest.raises(UserError, match="is not in the storage of the job: a path is relative to /training/digits"):
        in_storage(path, "/training/digits", "/training")


@pytest.mark.parametrize(
    ("source", "kind", "target", "target_kind", "goes"),
    [
        ("models/final.keras", "file", ".", "directory", "./final.keras"),
        ("final.keras", "file", "other.keras", "missing", "other.keras"),
        ("final.keras", "file", "other.keras", "file", "other.keras"),
        ("final.keras", "file", "new/", "missing", "new/final.keras"),
        ("models/", "directory", "out", "directory", "out/models"),
        ("models", "directory", "out", "missing", "out"),
        ("models", "directory", "out/", "missing", "out/"),
        (".", "directory", "out", "directory", "out"),
        ("", "directory", "out", "directory", "out"),
        ("data/..", "directory", "out", "directory", "out"),
        ("a", "file", "broken", "broken", "broken"),
    ],
)
def test_files_go_where_cp_puts_them(source: str, kind: str, target: str, target_kind: str, goes: str) -> None:
    assert place(source, kind, target, target_kind) == goes


@pytest.mark.parametrize(("kind", "target"), [("directory", "file"), ("file", "file/")])
def test_a_file_is_no_directory(kind: str, target: str) -> None:
    with pytest.raises(UserError, match=rf"^{target} is a file, not a directory$"):
        place("a", kind, target, "file")
