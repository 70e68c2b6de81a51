"""Fields of CSV and JSON records as dates and timestamps, by the rules of Spark's parsers of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.errors import EvaluationError
from penstock.functions.casts.text_times import parse_date, parse_timestamp
from penstock.functions.core.zones import Zone
from penstock.functions.times.calendar import MICROS_PER_DAY
from penstock.functions.times.parsing import parse_by_pattern

_FAR_EAST, _FAR_WEST = Zone("+18:00"), Zone("-18:00")


@dataclass(frozen=True)
class RecordTimes:
    """How times are written in records; its functions give None for texts that are none.

    They raise EvaluationError for a time of day without a date: Spark adds the current date, so that a restart
    would give another result.

    Attributes:
        zone: of timestamps without one.
        timestamp_format: and its kin: Java patterns; None: ISO 8601 and Spark's older forms.
        passes_over_gmt: a text that is no time may be one without its ``GMT``; not so in casts.
    """

    zone: Zone
    timestamp_format: str | None = None
    ntz_format: str | None = None
    date_format: str | None = None
    passes_over_gmt: bool = True

    def instant(self, text: str) -> int | None:
        """Microseconds since 1970 in UTC."""
        if self.timestamp_format is not None:
            return _by_pattern(self.timestamp_format, self.zone, text)
        return self._with_or_without_gmt(partial(parse_timestamp, self.zone), text)

    def wall_time(self, text: str) -> int | None:
        """Microseconds since 1970 on a wall clock."""
        if self.ntz_format is not None:
            return _by_pattern(self.ntz_format, None, text)
        time = parse_timestamp(None, text)
        # Spark takes no zone here: with one, the time would depend on the zone that is asked for.
        if time is None or parse_timestamp(_FAR_EAST, text) == parse_timestamp(_FAR_WEST, text):
            return None
        return time

    def date(self, text: str) -> int | None:
        """Days since 1970."""
        if self.date_format is not None:
            micros = _by_pattern(self.date_format, None, text)
            return None if micros is None else micros // MICROS_PER_DAY
        return self._with_or_without_gmt(parse_date, text)

    def _with_or_without_gmt(self, parse: Callable[[str], int | None], text: str) -> int | None:
        found = parse(text)
        return parse(text.replace("GMT", "")) if found is None and self.passes_over_gmt else found


def _by_pattern(pattern: str, zone: Zone | None, text: str) -> int | None:
    try:
        return parse_by_pattern(pattern, zone, text)
    except EvaluationError:
        return None
