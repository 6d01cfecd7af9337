"""`tftj cp` and `tftj ls`: the files in the storage of a job."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.cluster_options import plain_name
from tftraining_client.commands.output import Column, note, print_json, print_raw, print_table, say
from tftraining_client.commands.progress import amount, shown
from tftraining_client.errors import UserError
from tftraining_client.files.names import REASONS, SIDES, Entry, Plan, Remote, place, plan, remote
from tftraining_client.files.serve import DIRECTORY, FILE, MISSING, kind_of, walk

COLUMNS = Column("SIZE"), Column("MODIFIED"), Column("NAME")
WINDOWS = os.name == "nt"
FORBIDDEN = "\\:" if WINDOWS else ""
LAST = 253402300799  # in the year 9999


async def copy(client: AsyncClient, source: str, target: str) -> int:
    """Copy one side to the other; 1 if something was left out."""
    here, there = remote(source, WINDOWS), remote(target, WINDOWS)
    if here is not None and there is None:
        return await _download(client, here, _local(target))
    if there is not None and here is None:
        return await _upload(client, _local(source), there)
    raise UserError(SIDES if here is None else f"{SIDES}: two jobs copy by way of this machine")


def _local(path: str) -> str:
    return path.replace("\\", "/") if WINDOWS else path


async def _upload(client: AsyncClient, source: str, target: Remote) -> int:
    entries = await asyncio.to_thread(_entries, source)
    async with client.files(plain_name(target.job)) as files:
        top = files.absolute(target.path)
        (found,) = await files.list(top, 0)
        slash = "/" if target.path.endswith("/") and top != "/" else ""
        copied = plan(source, entries, place(source, entries[0].kind, top + slash, found.kind))
        with shown("copy") as progress:
            await files.upload(copied, progress)
        return _report(copied, files.left_out, f"{target.job}:{target.path}")


async def _download(client: AsyncClient, source: Remote, target: str) -> int:
    async with client.files(plain_name(source.job)) as files:
        top = files.absolute(source.path)
        entries = await files.list(top, None)
        _check_there(entries, top, source)
        kind, _ = kind_of(Path(target), None)
        copied = plan(top, entries, place(source.path, entries[0].kind, target, kind), FORBIDDEN)
        with shown("copy") as progress:
            await files.download(copied, progress)
        return _report(copied, files.left_out, target)


def _entries(path: str) -> list[Entry]:
    """The files of this machine at the path and below."""
    found = [Entry(*each) for each in walk(Path(path))]
    if found[0].kind not in (FILE, DIRECTORY):
        raise UserError(f"{path} cannot be copied: {REASONS[found[0].kind].replace('it is gone', 'no such file')}")
    return found


def _check_there(entries: Sequence[Entry], top: str, source: Remote) -> None:
    if not entries or entries[0].kind == MISSING:
        raise UserError(
            f"the storage of job {source.job} has no {top}; `tftj ls {source.job}:` lists the job's own directory"
        )


def _report(copied: Plan, lost: Sequence[str], target: str) -> int:
    """Tell what was copied and what was not; the exit code."""
    for each in (*copied.left_out, *lost):
        note(each)
    count = len(copied.files) - len(lost)
    say(f"{count} file{'s' * (count != 1)} ({amount(copied.size)}) copied to {target}")
    return 1 if copied.left_out or lost else 0


async def list_files(client: AsyncClient, named: str, output: str | None) -> int:
    """Print the file, or those of the directory."""
    source = remote(named) or Remote(named, "")
    async with client.files(plain_name(source.job)) as files:
        top = files.absolute(source.path)
        entries = await files.list(top, 1)
    _check_there(entries, top, source)
    own, *below = entries
    if own.kind != DIRECTORY:
        below = [own._replace(name=top.rpartition("/")[2])]
    if output is not None:
        document = {"path": top, "files": [_object(each) for each in below]}
        print_json(document) if output == "json" else print_raw(document, output)
    elif below:
        print_table(COLUMNS, [_row(each) for each in below])
    else:
        note(f"{top} is empty")
    return 0


def _row(entry: Entry) -> list[tuple[str, str]]:
    ends = {FILE: "", DIRECTORY: "/"}
    name = entry.name + ends.get(entry.kind, f" ({REASONS.get(entry.kind, entry.kind)})")
    size = str(entry.size) if entry.kind == FILE else "-"
    return [(size.rjust(12), ""), (f"{_time(entry).astimezone():%Y-%m-%d %H:%M:%S}", ""), (name, "")]


def _object(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "type": entry.kind,
        "size": entry.size,
        "modified": f"{_time(entry):%Y-%m-%dT%H:%M:%SZ}",
    }


def _time(entry: Entry) -> datetime:
    return datetime.fromtimestamp(min(max(entry.modified, 0), LAST - 86400), UTC)
