"""Every registered expression equals Catalyst's own, bit for bit, on edge values, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

import pytest

from penstock.functions.plan_registry import REGISTRY
from tests.support.effort import one_in
from tests.support.functions.expression_groups import GROUPS
from tests.support.functions.expression_steps import looping

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from tests.support.functions.expression_oracle import Compiled, Relation

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ZONES = ("America/New_York", "America/Sao_Paulo", "+05:30", "Africa/Casablanca", "Pacific/Apia")
RUNS = [(name, ansi) for name, group in GROUPS.items() for ansi in (True, False) if ansi or group.both_modes]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("group", "ansi"), RUNS, ids=[f"{name}-{'ansi' if ansi else 'legacy'}" for name, ansi in RUNS])
def test_equal_to_catalyst(compare: Callable[..., list[str]], group: str, ansi: bool) -> None:
    differences = compare(group, ansi)
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:40])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("zone", ZONES)
def test_equal_to_catalyst_in_time_zone(compare: Callable[..., list[str]], zone: str) -> None:
    groups = ("local time", "moments", "times written by pattern", "times read in zones", "local spans")
    groups += ("intervals of texts",) if zone == "America/New_York" else ()
    differences = [line for group in groups for line in compare(group, False, zone)]
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:40])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("group", GROUPS)
def test_no_built_in_loops_per_row(
    compiled: Callable[..., AbstractContextManager[list[Compiled]]], relation: Callable[[str], Relation], group: str
) -> None:
    """They work on whole columns or on distinct values: for more rows they take no more steps of Python."""
    with compiled(group, not GROUPS[group].both_modes) as cases:
        some = one_in(4, cases)
        found, raising = looping(some, relation(group).batch)
    assert not found
    assert raising < max(len(some), 2), "most raise under ANSI mode only"


def test_java_zones_are_known(spark: SparkSession) -> None:
    names = spark._jvm.java.time.ZoneId.getAvailableZoneIds().toArray()
    assert unknown_zones(sorted(str(name) for name in names)) == []


def unknown_zones(names: list[str]) -> list[str]:
    """Java's zone ids that this machine's time zone database lacks (``SystemV`` is Java's own and obsolete)."""
    known = available_timezones()
    return [name for name in names if name not in known and not name.startswith("SystemV/")]


def test_every_registered_class_is_compared(
    compare: Callable[..., list[str]], relation: Callable[..., Relation]
) -> None:
    seen: set[str] = set()
    for group in GROUPS:
        assert (group, compare(group, True)) == (group, [])
        seen |= relation(group).classes
    assert sorted(set(REGISTRY) - seen - set(CATALYST_INTERNAL)) == []


CATALYST_INTERNAL = ("NormalizeNaNAndZero", "KnownFloatingPointNormalized", "KnownNotNull", "EulerNumber", "Pi")
"""Classes that only the optimizer makes, around keys, or folds; ``test_expression_translation`` compares them."""
