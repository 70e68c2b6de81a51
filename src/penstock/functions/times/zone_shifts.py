"""Conversions of wall times between zones: ``from_utc_timestamp``, ``to_utc_timestamp``, ``convert_timezone``."""

from __future__ import annotations

import pyarrow as pa

from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, by_distinct_key, from_vector, to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.times.temporal import check_local_range


def zone_named(name: str) -> Zone:
    """Return the zone with this name.

    Raises:
        EvaluationError: there is no such zone.
    """
    try:
        return Zone(name)
    except ValueError:
        raise failures.unknown_zone(name) from None


class ShiftUtc(Strict):
    """``from_utc_timestamp`` and ``to_utc_timestamp``.

    The wall time of a zone is represented as a timestamp that has these digits in UTC.

    Args:
        moment: the instant or, if ``to_utc`` is set, the wall time. It is evaluated before the zone.
        zone: the name of the zone.
        to_utc: convert from wall time to instant, instead of the reverse.
    """

    def __init__(self, moment: Expression, zone: Expression, to_utc: bool) -> None:
        super().__init__((moment, zone), moment.data_type)
        self.to_utc = to_utc

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros = to_vector(arrays[0])

        def shifted(name: object, selected: Mask) -> pa.Array:
            zone = zone_named(str(name))
            shift = zone.to_instants if self.to_utc else zone.to_local
            return from_vector(shift(check_local_range(zone, micros, selected)), self.data_type, selected)

        return by_distinct_key(arrays[1], rows, shifted, self.data_type)


class ConvertTimezone(Strict):
    """``convert_timezone``: the wall time in ``target_zone`` at the instant when it is ``wall`` in ``source_zone``."""

    def __init__(self, source_zone: Expression, target_zone: Expression, wall: Expression) -> None:
        super().__init__((source_zone, target_zone, wall), wall.data_type)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        wall = to_vector(arrays[2])

        def from_zone(name: object, selected: Mask) -> pa.Array:
            source = zone_named(str(name))
            instants = source.to_instants(check_local_range(source, wall, selected))
            return by_distinct_key(
                arrays[1], selected, lambda target, rows: self._local_times(str(target), instants, rows), self.data_type
            )

        return by_distinct_key(arrays[0], rows, from_zone, self.data_type)

    def _local_times(self, name: str, instants: Vector, rows: Mask) -> pa.Array:
        zone = zone_named(name)
        return from_vector(zone.to_local(check_local_range(zone, instants, rows)), self.data_type, rows)
