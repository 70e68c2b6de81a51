"""Time zones by Java's names and rules, on vectors of microseconds.

A zone is a table of transitions. To find them, the offset is read from ``zoneinfo`` every few days, and each change is
bisected. Before 1800 every zone uses local mean time. Long after the last explicit rule, the rules repeat with the
calendar's cycle of 400 years, so that instants after the table are mapped into it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from penstock.functions.core.vectors import Vector
from penstock.functions.times.calendar import MICROS_PER_DAY, MICROS_PER_SECOND

_EPOCH = datetime(1970, 1, 1)
GREGORIAN_CYCLE = 146_097 * MICROS_PER_DAY
_STEP_S = {(1800, 2101): 3 * 86_400, (2101, 2501): 14 * 86_400}
"""Steps of the scan in seconds, by years. No zone changes its offset and returns to it within a step. The shortest such
period is four days in 1939 (Africa/Freetown) and seven days since 1970. Later rules have only summer and winter time.
"""
_FOLD_TO = int((datetime(2101, 1, 1) - _EPOCH).total_seconds()) * MICROS_PER_SECOND
_FOLD_FROM = int((datetime(2501, 1, 1) - _EPOCH).total_seconds()) * MICROS_PER_SECOND

# Java's ``ZoneId.SHORT_IDS``.
_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
_OFFSET = re.compile(r"([+-])(\d{1,2}|\d{2}:?\d{2}|\d{2}:\d{2}:\d{2}|\d{6})", re.ASCII)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_NOT_JAVA = frozenset(("Factory", "localtime", "posixrules"))


@dataclass(frozen=True)
class _Table:
    """Transition instants and the offset after each. ``offsets[0]`` is the offset before the first transition."""

    instants: Vector
    offsets: Vector

    @cached_property
    def walls(self) -> Vector:
        """First wall time at which the later offset applies. In gaps and overlaps Java uses the earlier offset."""
        walls: Vector = self.instants + np.maximum(self.offsets[:-1], self.offsets[1:])
        return walls


class Zone:
    """Time zone. Only its name is pickled; the table is created in the process that uses it.

    Raises:
        ValueError: the name is not one of Java's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_utc = _fixed_offset(_canonical(name)) == 0
        _table(name)

    def __reduce__(self) -> tuple[type[Zone], tuple[str]]:
        return Zone, (self.name,)

    def offsets(self, micros: Vector) -> Vector:
        """Return the offset from UTC in microseconds at each instant."""
        table = _table(self.name)
        return table.offsets[np.searchsorted(table.instants, _folded(micros), side="right")]

    def to_local(self, micros: Vector) -> Vector:
        """Return the wall-clock microseconds of instants."""
        return micros if self.is_utc else micros + self.offsets(micros)

    def to_instants(self, local: Vector) -> Vector:
        """Return the instants of wall times by the rules of Java's ``ZonedDateTime.of``.

        Wall times in a gap move later by the length of the gap. Ambiguous wall times take the first offset.
        """
        if self.is_utc:
            return local
        table = _table(self.name)
        return local - table.offsets[np.searchsorted(table.walls, _folded(local), side="right")]

    def resolve(self, local: Vector, preferred: Vector) -> Vector:
        """Convert like ``to_instants``, but keep the offset ``preferred`` for ambiguous wall times."""
        kept = local - preferred
        return np.where(self.offsets(kept) == preferred, kept, self.to_instants(local))

    def starts_of_days(self, days: Vector) -> Vector:
        """Return the instants of ``LocalDate.atStartOfDay``: midnight, or the end of a gap that contains midnight."""
        local = days.astype(np.int64) * MICROS_PER_DAY
        if self.is_utc:
            return local
        table = _table(self.name)
        folded = _folded(local)
        after = np.searchsorted(table.walls, folded, side="right")
        instants = local - table.offsets[after]
        if len(table.instants) == 0:
            return instants
        following = np.minimum(after, len(table.instants) - 1)
        begins = table.instants[following] + table.offsets[following]
        in_gap = (after < len(table.instants)) & (begins <= folded) & (folded < table.walls[following])
        return np.where(in_gap, local - folded + table.instants[following], instants)


def _folded(micros: Vector) -> Vector:
    beyond = micros >= _FOLD_FROM
    if not beyond.any():
        return micros
    return np.where(beyond, _FOLD_TO + (micros - _FOLD_TO) % GREGORIAN_CYCLE, micros)


def _canonical(name: str) -> str:
    """Normalize a name like ``SparkDateTimeUtils.getZoneId``.

    Single digits of hours and minutes are padded, and short IDs are replaced.
    """
    name = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1, flags=re.ASCII)
    name = re.sub(r"([+-])(\d\d):(\d)\Z", r"\1\2:0\3", name, flags=re.ASCII)
    return _SHORT_IDS.get(name, name)


def _fixed_offset(name: str) -> int | None:
    """Return the offset from UTC in microseconds of ``Z``, ``+01:00``, ``UTC+1`` and the like; None for a region."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return 0
    for prefix in ("UTC", "GMT", "UT", ""):
        if name.startswith((prefix + "+", prefix + "-")):
            return _parse_offset(name[len(prefix) :])
    return None


def _parse_offset(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an offset from UTC")
    digits = match[2].replace(":", "").zfill(2).ljust(6, "0")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > 18 * 3600:
        raise ValueError(f"{text!r} is not an offset from UTC")
    return (total if match[1] == "+" else -total) * MICROS_PER_SECOND


@lru_cache(maxsize=256)
def _table(name: str) -> _Table:
    canonical = _canonical(name)
    fixed = _fixed_offset(canonical)
    if fixed is not None:
        return _Table(np.zeros(0, np.int64), np.array([fixed], np.int64))
    if not _REGION.fullmatch(canonical) or canonical in _NOT_JAVA or canonical.startswith(("posix/", "right/")):
        raise ValueError(f"{name!r} is not a time zone")
    try:
        zone = ZoneInfo(canonical)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone") from error
    return _scan(zone)


def _scan(zone: ZoneInfo) -> _Table:
    """Return all transitions of the table's years.

    The offset is read at each step. If two neighboring steps differ, the change between them is bisected.
    """

    def offset(second: int) -> timedelta:
        delta = datetime.fromtimestamp(second, zone).utcoffset()
        assert delta is not None
        return delta

    instants: list[int] = []
    since, *later = _steps()
    offsets = [offset(since)]
    for until in later:
        now = offset(until)
        while offsets[-1] != now:
            since = _change(offset, since, until)
            instants.append(since * MICROS_PER_SECOND)
            offsets.append(offset(since))
        since = until
    micros = [int(delta.total_seconds()) * MICROS_PER_SECOND for delta in offsets]
    return _Table(np.array(instants, np.int64), np.array(micros, np.int64))


def _steps() -> list[int]:
    """Return the seconds at which the offset is read, in order."""
    found: list[int] = []
    for years, step in _STEP_S.items():
        low, high = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in years)
        found += range(low, high, step)
    return [*found, high]


def _change(offset: Callable[[int], timedelta], before: int, after: int) -> int:
    """Return a second at which the offset is no longer that of ``before``, but was so one second earlier."""
    held = offset(before)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if offset(middle) == held else (before, middle)
    return after
