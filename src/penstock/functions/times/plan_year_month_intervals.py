"""Year-month intervals that a plan computes, as expressions of numbers of months: they have no column format here."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, children, kind
from penstock.functions import Expression, Literal
from penstock.functions.core.strict import Vectorised
from penstock.functions.logic.logic import CaseWhen, Coalesce
from penstock.functions.plan_registry import Translation, refuse
from penstock.functions.times import year_months

MONTHS = year_months.MONTHS
WAYS = "of year-month intervals only make_ym_interval(), constants, products with integers and choices of these are"


def months_of(interval: JavaTree, translation: Translation) -> Expression:
    """The interval's months.

    Raises:
        NotSupported: it is made in another way than from constants, numbers, products with integers and choices.
    """
    name = kind(interval)
    if name == "Literal":
        value = interval.value()
        return Literal(None if value is None else int(value), MONTHS)
    if name in ("If", "CaseWhen"):
        return _choice(interval, translation)
    if name == "Coalesce":
        return Coalesce([months_of(child, translation) for child in children(interval)])
    if name == "UnaryMinus":
        return Vectorised(year_months.negated, [months_of(interval.child(), translation)], MONTHS)
    if name == "MultiplyYMInterval":
        return _product(interval, translation)
    if name != "MakeYMInterval":
        refuse(interval, WAYS)
    return Vectorised(year_months.made, translation.children(interval), MONTHS, bool(interval.nullable()))


def _product(interval: JavaTree, translation: Translation) -> Expression:
    months, factor = children(interval)
    operands = [months_of(months, translation), translation(factor)]
    if not pa.types.is_integer(operands[1].data_type):
        refuse(interval, WAYS)
    return Vectorised(year_months.multiplied, operands, MONTHS)


def _choice(interval: JavaTree, translation: Translation) -> Expression:
    *pairs, last = children(interval)
    if kind(interval) == "CaseWhen" and len(pairs) % 2:
        pairs, last = [*pairs, last], None
    branches = [
        (translation(condition), months_of(value, translation))
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return CaseWhen(branches, None if last is None else months_of(last, translation), MONTHS)
