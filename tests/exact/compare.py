"""Compares a disturbed run of a cell with the undisturbed one, and judges the differences by what was promised.

Pure but for reading the two directories. A difference that nobody was told about is the defect that tests.exact looks
for; one that the program has told, by the kind of its resumption, is allowed as far as that kind goes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.exact.cells import ANEW, EPOCH, JUST_PROGRAM, PARTS, STORAGE, Cell, Expected, expected, keeps

# What holds even where the order of the examples, and with it each value, may be another one.
ALWAYS = frozenset({"failed", "batches", "totals", "count", "examples-total", "position", "violation"})
ROUNDING = 1e-6
_FRACTION = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")

Differ = Callable[[object, object], bool]


@dataclass(frozen=True)
class Difference:
    """One difference: its class, and in words."""

    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


@dataclass
class Verdict:
    """What became of a cell. `silent`: differences that nobody was told about; `kinds`: promises below the design's."""

    cell: Cell
    said: list[str] = field(default_factory=list)  # at each kill, the kind that the program had told
    reasons: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    kills: int = 0
    exact: bool = False
    silent: list[Difference] = field(default_factory=list)
    told: list[Difference] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.silent and not self.kinds

    def lines(self) -> list[str]:
        """For people."""
        where = ", ".join(self.resumed) or "nowhere"
        end = "exact" if self.exact else "other values, as said" if not self.silent else "DIFFERENT"
        head = f"{'OK' if self.good else 'NOT OK'} {self.kills} kills, said {self.said}, resumed at {where}: {end}"
        told = [f"  said: {reason}" for reason in dict.fromkeys(self.reasons) if reason]
        return [head, *told, *(f"  silent {each}" for each in self.silent), *(f"  kind {each}" for each in self.kinds)]


def judge(cell: Cell, undisturbed: Path, disturbed: Path, failed: str) -> Verdict:
    """The verdict on the run in `disturbed`; `failed`: how it failed, "" if it ended by itself."""
    verdict = Verdict(cell)
    killed = sorted((int(path.read_text().split()[0]), path.name) for path in disturbed.glob("killed-*"))
    verdict.kills = len(killed)
    told = [_json(disturbed / f"{name.replace('killed', 'told')}.json") for _, name in killed]
    verdict.said = [str(each.get("resumesAt") or "") for each in told]
    verdict.reasons = [_reason(each) for each in told]
    verdict.resumed = [_where(line) for line in _lines(disturbed, "resumed")[1:]]
    # A new pod, and each member behind the restored end of a fit, gets its part of the totals.
    shares = cell.workers > 1 and (cell.shape in PARTS or any(kill.what != JUST_PROGRAM for kill in cell.kills))
    differ = _differ_by_more_than_rounding if shares else _differ
    found = [Difference("failed", failed)] if failed else differences(undisturbed, disturbed, differ)
    found += _positions(verdict) + [
        Difference("violation", str(each["violation"])) for each in told if each.get("violation")
    ]
    verdict.exact = not found
    begin = f"epoch {int(cell.shape == 'initial-epoch')} batch 0"
    promised, starts_over = expected(cell), any(at.endswith(begin) for at in verdict.resumed)
    for each in found:
        (verdict.told if _allowed(each, verdict.said, promised, told, starts_over) else verdict.silent).append(each)
    verdict.kinds = [
        f"{said} told, {promised.kind} promised"
        for said in dict.fromkeys(each for each, why in zip(verdict.said, verdict.reasons, strict=True) if _own(why))
        if said and not keeps(said, promised.kind)
    ]
    return verdict


def _allowed(
    each: Difference, said: list[str], promised: Expected, told: Sequence[Mapping[str, Any]], starts_over: bool
) -> bool:
    """Whether somebody was told that this may differ. `starts_over`: a restart found neither copy nor backup."""
    if promised.resized and each.what not in ALWAYS - {"count"} | ({"examples"} if promised.once else set()):
        return True  # the sums over another number of workers have other roundings, and each counts its own steps
    if promised.drawn and each.what not in ALWAYS | ({"examples"} if promised.once else set()):
        return True  # each job draws an order of its own
    named = {name for report in told for name in report.get("beginsAnew") or ()}
    counts = {"totals", "count"} if promised.unsized else {"totals", "count", "batches"} if promised.stops else set()
    stored = STORAGE in said and "callbacks" in named and (each.what in counts or each.what not in ALWAYS)
    # docs/memory-backups.md says it of CSVLogger(append=True).
    if stored or (each.what == "file" and "rows-more-" in each.text and starts_over):
        return True
    anew = any(name in each for name in promised.anew for each in named)
    other = not promised.same and (not said or EPOCH in said or STORAGE in said)  # also if no kill came about
    loose = anew or other or ANEW in said
    if not loose or each.what in {"failed", "violation", "position"}:
        return False
    if each.what == "examples":
        return ANEW in said or not promised.once
    return promised.stops or each.what not in ALWAYS


def _own(reason: str) -> bool:
    """Whether the reason for a kind is the program's, and not the machine's."""
    return not reason.startswith("memory is short")


def _positions(verdict: Verdict) -> list[Difference]:
    """Resumptions that are not where the program said."""
    pairs = zip(verdict.said, verdict.resumed, strict=False)
    wrong = [(said, at) for said, at in pairs if said in (EPOCH, STORAGE) and not at.endswith("batch 0")]
    return [Difference("position", f"said {said}, resumed at {at}") for said, at in wrong]


def _reason(report: Mapping[str, Any]) -> str:
    told = [str(report.get(name) or "") for name in ("resumesAtReason", "reason", "epochResumed")]
    return "; ".join(dict.fromkeys(filter(None, [*told, ", ".join(report.get("beginsAnew") or ())])))


def _where(line: str) -> str:
    _, part, epoch, batch = line.split()
    return f"part {part} epoch {epoch} batch {batch}" if part != "0" else f"epoch {epoch} batch {batch}"


def differences(undisturbed: Path, disturbed: Path, of_sums: Differ | None = None) -> list[Difference]:
    """All differences between two complete runs; the members of a gang are compared one by one, but what counts on
    each of them is summed up. `of_sums` compares what metrics have summed up."""
    of_sums = of_sums or _differ
    found = _steps(undisturbed, disturbed) + _epochs(undisturbed, disturbed, of_sums)
    for path in sorted(undisturbed.glob("result-*.json")):
        if (other := disturbed / path.name).exists():  # or the gang has fewer members now
            found += _results(_json(path), _json(other), path.stem, of_sums)
    return found


def _steps(undisturbed: Path, disturbed: Path) -> list[Difference]:
    """Batches that were never made, or made behind the end."""
    one, other = (set(_lines(place, "steps")) for place in (undisturbed, disturbed))
    missing, more = sorted(one - other, key=_numbers), sorted(other - one, key=_numbers)
    told = [f"{len(missing)} never made, from {missing[0]}"] if missing else []
    told += [f"{len(more)} too many, from {more[0]}"] if more else []
    return [Difference("batches", ", ".join(told))] if told else []


def _numbers(line: str) -> list[int]:
    return [int(each) for each in line.split()]


def _epochs(undisturbed: Path, disturbed: Path, of_sums: Differ) -> list[Difference]:
    """The first epoch in which each class of values differs."""
    found: dict[str, Difference] = {}
    ones, others = _snapshots(undisturbed), _snapshots(disturbed)
    before: dict[str, tuple[list[float], list[float]]] = {}
    for key, one in ones.items():
        other = others.get(key)
        if other is None:
            found.setdefault("totals", Difference("totals", f"epoch {key} never ended"))
            continue
        part = key.split("-")[0]
        last = before.get(part, ([0] * len(one["seen"]), [0] * len(one["seen"])))
        seen = [round(now - then) for now, then in zip(one["seen"], last[0], strict=True)]
        again = [round(now - then) for now, then in zip(other["seen"], last[1], strict=True)]
        before[part] = one["seen"], other["seen"]
        for name, a, b in [
            ("totals", one["iterations"], other["iterations"]),
            ("count", one["count"], other["count"]),
            ("examples-total", sum(seen), sum(again)),
            ("examples", _often(seen, again, seen), _often(seen, again, again)),
            ("rate", one["rate"], other["rate"]),
            ("logs", one["logs"], other["logs"]),
            ("weights", one["weights"], other["weights"]),
        ]:
            if (of_sums if name == "logs" else _differ)(a, b):
                found.setdefault(name, Difference(name, f"end of epoch {key}: {a} undisturbed, {b} disturbed"))
    return list(found.values())


def _often(seen: list[int], again: list[int], of: list[int]) -> object:
    """How often how many examples were seen, if they are not the same ones."""
    if seen == again:
        return ""
    counted = {number: of.count(number) for number in sorted(set(of))}
    return f"{counted} (times: examples), {sum(a != b for a, b in zip(seen, again, strict=True))} of them others"


def _snapshots(place: Path) -> dict[str, dict[str, Any]]:
    """The notes on the ends of the epochs, in order, by `part-epoch`; what each member counts is summed up."""
    found: dict[str, dict[str, Any]] = {}
    paths = [(match, path) for path in place.glob("epoch-*.json") if (match := re.findall(r"\d+", path.name))]
    for (part, epoch, _), path in sorted((tuple(map(int, match)), path) for match, path in paths):
        told = _json(path)
        key = f"{part}-{epoch}"
        if key in found:
            told = {
                **found[key],
                "seen": [a + b for a, b in zip(found[key]["seen"], told["seen"], strict=True)],
                "count": found[key]["count"] + told["count"],
            }
        found[key] = told
    return found


def _results(one: dict[str, Any], other: dict[str, Any], where: str, of_sums: Differ) -> list[Difference]:
    found = []
    for number, (a, b) in enumerate(zip(one["parts"], other.get("parts", []), strict=True)):
        for name in ("weights", "optimizer", "metrics", "rate", "late", "table", "score"):
            if name == "optimizer" and len(b[name]) < len(a[name]):
                continue  # this fit trains nothing behind the restart, so they are not built again
            one_value, other_value = a.get(name), b.get(name)
            if name == "metrics" and of_sums is not _differ:
                continue  # digests of each member's part of the totals
            if name == "metrics":  # some of Keras' own neither
                one_value = {each: values for each, values in one_value.items() if other_value.get(each)}
                other_value = {each: values for each, values in other_value.items() if values}
            if _differ(one_value, other_value):
                found.append(Difference(name, f"{where}, part {number}: {_short(one_value, other_value)}"))
        found += _history(a, b, f"{where}, part {number}", of_sums)
        if a["iterations"] != b["iterations"]:
            found.append(Difference("totals", f"{where}, part {number}: {a['iterations']} steps, {b['iterations']}"))
    for name in one["files"].keys() | other["files"].keys():
        a, b = _rows(one["files"].get(name)), _rows(other["files"].get(name))
        if name.startswith("board-") and of_sums is not _differ:
            a, b = _without_batches(a), _without_batches(b)
        if of_sums(a, b):
            found.append(Difference("file", f"{where}, {name}: {_short(a, b)}"))
    return found


def _rows(content: object) -> object:
    """The content of a file; of text the rows, once each if all members of a gang write into one file."""
    return content if not isinstance(content, str) or "\n" not in content else "\n".join(_once(content.splitlines()))


def _without_batches(points: object) -> object:
    """The points of TensorBoard that are the gang's. Those of a batch are a member's, which has its part of the totals
    behind a new pod."""
    return [each for each in points if not str(each[0]).startswith("batch_")] if isinstance(points, list) else points


def _once(rows: list[str]) -> list[str]:
    """Rows without those that another member has written too: each is there as often as the first one, the head."""
    members = max(1, rows.count(rows[0]))
    return [row for number, row in enumerate(rows) if rows[:number].count(row) % members == 0]


def _history(a: dict[str, Any], b: dict[str, Any], where: str, of_sums: Differ) -> list[Difference]:
    """The epochs that the History of the restarted program has, and their values."""
    same = {
        name: [value for epoch, value in zip(a["epochs"], values, strict=False) if epoch in b["epochs"]]
        for name, values in a["history"].items()
    }
    found = []
    if a["epochs"] != b["epochs"]:
        found.append(
            Difference("history-epochs", f"{where}: epochs {a['epochs']} undisturbed, {b['epochs']} disturbed")
        )
    if of_sums({name: values for name, values in same.items() if values}, b["history"]):
        found.append(Difference("history", f"{where}: {same} undisturbed, {b['history']} disturbed"))
    return found


def _short(a: object, b: object) -> str:
    if isinstance(a, list) and isinstance(b, list) and a and isinstance(a[0], list):
        return f"{[each for each in a if each not in b][:4]} undisturbed, {[each for each in b if each not in a][:4]}"
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return f"{sum(_differ(x, y) for x, y in zip(a, b, strict=True))} of {len(a)} differ"
    if isinstance(a, str) and isinstance(b, str) and "\n" in a + b:
        one, other = a.splitlines(), b.splitlines()
        new = [row for row in other if row not in one]
        return f"{len(one)} rows undisturbed, {len(other)} disturbed, others: {new[:2]}"
    return f"{str(a)[:100]} undisturbed, {str(b)[:100]} disturbed"


def _differ_by_more_than_rounding(a: object, b: object) -> bool:
    """As `_differ`, where a new pod has got its part of a total: numbers are equal but for the roundings of a sum."""
    one, other = (json.dumps(each, sort_keys=True) for each in (a, b))
    pairs = zip(_FRACTION.findall(one), _FRACTION.findall(other), strict=False)
    near = all(math.isclose(float(x), float(y), rel_tol=ROUNDING) for x, y in pairs)
    return not near or _FRACTION.sub("", one) != _FRACTION.sub("", other)


def _differ(a: object, b: object) -> bool:
    return json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True)  # NaN is equal to NaN here


def _lines(place: Path, name: str) -> list[str]:
    """The notes of the first member."""
    path = place / f"{name}-0"
    return path.read_text().splitlines() if path.exists() else []


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
