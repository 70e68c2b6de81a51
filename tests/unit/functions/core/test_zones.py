"""The tables of time zones against ``zoneinfo``, from which they are made by looking every few days only."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest

from penstock.functions.core.zones import Zone
from tests.support.effort import one_in

NOT_JAVA = {"Factory", "localtime"}
SHORT_STAYS = ("Africa/Freetown", "America/Noronha", "Asia/Gaza", "Africa/Tunis", "Europe/Vienna", "Africa/Casablanca")
OTHERS = one_in(60, sorted(available_timezones() - NOT_JAVA - set(SHORT_STAYS)))
DAY_S = 86_400


def seconds_of(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def zoneinfos(zone: ZoneInfo, second: int) -> int:
    delta = datetime.fromtimestamp(second, zone).utcoffset()
    assert delta is not None
    return int(delta.total_seconds()) * 1_000_000


@pytest.mark.parametrize("name", [*SHORT_STAYS, *OTHERS])
def test_offsets_are_those_of_zoneinfo(name: str) -> None:
    """Every day from 1850 to 2100, and from then on once a week."""
    days = [*range(seconds_of(1850), seconds_of(2101), DAY_S), *range(seconds_of(2101), seconds_of(2501), 7 * DAY_S)]
    zone = ZoneInfo(name)
    expected = [zoneinfos(zone, day) for day in days]
    assert Zone(name).offsets(np.array(days) * 1_000_000).tolist() == expected


@pytest.mark.parametrize("name", ["Africa/Freetown", "Australia/Lord_Howe", "Pacific/Apia", "America/New_York"])
def test_a_transition_is_where_zoneinfo_has_it_to_the_second(name: str) -> None:
    zone, table = ZoneInfo(name), Zone(name)
    days = range(seconds_of(1900), seconds_of(2040), DAY_S)
    offsets = table.offsets(np.array(days) * 1_000_000)
    changing = [days[number] for number in np.flatnonzero(np.diff(offsets))]
    assert changing
    for day in changing[:: max(1, len(changing) // 5)]:
        seconds = range(day, day + DAY_S + 1, 1)
        assert table.offsets(np.array(seconds) * 1_000_000).tolist() == [zoneinfos(zone, each) for each in seconds]
