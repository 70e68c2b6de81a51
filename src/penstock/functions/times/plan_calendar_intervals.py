"""Timestamps plus calendar intervals, which have no column format here: the gaps of session windows.

An interval may be a constant, a text that is cast, made of numbers, or a choice among such: then each choice is added
where it is made.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.jvm import java_field
from penstock.catalyst.trees import JavaTree, children, data_type, kind
from penstock.functions import Expression, Literal
from penstock.functions.core.strict import Mapped
from penstock.functions.core.zones import Zone
from penstock.functions.logic.logic import CaseWhen, Coalesce
from penstock.functions.plan_registry import Translation, refuse
from penstock.functions.times import temporal
from penstock.functions.times.calendar import MICROS_PER_DAY
from penstock.functions.times.calendar_spans import SPAN, MakeSpan, PlusSpan, parse_span

_DURATION = pa.duration("us")


def is_calendar_interval(tree: JavaTree) -> bool:
    """Whether the expression is of Spark's type of months, days and microseconds."""
    return str(data_type(tree).catalogString()) == "interval"


def plus_interval(start: Expression, interval: JavaTree, translation: Translation, zone: Zone) -> Expression:
    """``start`` plus the interval: months and days on the local calendar, the rest as elapsed time.

    Raises:
        NotSupported: the interval is computed in another way.
    """
    name = kind(interval)
    if name == "Literal":
        return _plus_constant(start, interval.value(), zone)
    if name == "Cast":
        return PlusSpan(start, Mapped(parse_span, (translation(interval.child()),), SPAN), zone)
    if name == "MakeInterval":
        return PlusSpan(start, MakeSpan(translation.children(interval), bool(interval.failOnError())), zone)
    if name == "Coalesce":
        return Coalesce(
            [plus_interval(start, child, translation, zone) for child in children(interval)], start.data_type
        )
    if name not in ("CaseWhen", "If"):
        refuse(interval, "write it as a text, as concat(n, ' seconds'), as make_interval(...), or as a choice of these")
    *pairs, last = children(interval)
    if name == "CaseWhen" and len(pairs) % 2:
        pairs, last = [*pairs, last], None
    branches = [
        (translation(condition), plus_interval(start, value, translation, zone))
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    otherwise = None if last is None else plus_interval(start, last, translation, zone)
    return CaseWhen(branches, otherwise, start.data_type)


def _plus_constant(start: Expression, interval: JavaTree, zone: Zone) -> Expression:
    if interval is None:
        return Literal(None, start.data_type)
    months, days, micros = (int(java_field(interval, name)) for name in ("months", "days", "microseconds"))
    if months:
        start = temporal.AddMonths(start, Literal(months, pa.int32()), zone)
    if days:
        start = temporal.AddDayTime(start, Literal(days * MICROS_PER_DAY, _DURATION), zone)
    if micros:
        start = temporal.AddDayTime(start, Literal(micros, _DURATION), Zone("UTC"))
    return start
