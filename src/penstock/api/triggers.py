"""``trigger(...)``: how often results become visible, and if the query ends by itself."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.config import LEAST_INTERVAL_MS, duration_ms
from penstock.errors import ConfigError
from penstock.spark.errors import ArgumentError, ArgumentTypeError, WrongSetting, empty_text

INTERVALS = ("processingTime", "continuous", "realTime")
ONE_RUNS = ("availableNow", "once")
KINDS = (*INTERVALS, *ONE_RUNS)

_UNIT_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_TERM = re.compile(r"([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s+([a-z]+?)s?(?:\s+|$)")


@dataclass(frozen=True)
class Trigger:
    """Trigger of a query.

    Attributes:
        interval: the checkpoint interval in Penstock's notation. Results become visible this often. None: the query's
            option applies.
        until_available: read the rows that are available when the query starts, commit them and end.
    """

    interval: str | None = None
    until_available: bool = False


def parse_trigger(given: dict[str, Any]) -> Trigger:
    """Parse the arguments of ``DataStreamWriter.trigger``. Arguments that are None are ignored.

    Raises:
        ArgumentTypeError: an argument is unknown.
        ArgumentError: none or several are given, or one has a value of the wrong type or below the least interval.
        WrongSetting: the text is not an interval, or the interval is negative.
    """
    unknown = sorted(set(given) - set(KINDS))
    if unknown:
        raise ArgumentTypeError(f"trigger has no argument {unknown[0]}: give exactly one trigger of {', '.join(KINDS)}")
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise ArgumentError(f"give exactly one trigger of {', '.join(KINDS)}", "ONLY_ALLOW_SINGLE_TRIGGER", {})
    name, value = next(iter(chosen.items()))
    if name in ONE_RUNS:
        if value is not True:
            raise ArgumentError(
                f"trigger({name}={value!r}): only True is allowed; leave the trigger out otherwise",
                "VALUE_NOT_ALLOWED",
                {"arg_name": name, "allowed_values": "[True]"},
            )
        return Trigger(until_available=True)
    if not isinstance(value, str) or not value.strip():
        raise empty_text(name, value, "; write for example '5 seconds'")
    interval_ms = _interval_ms(name, value)
    if 0 < interval_ms < LEAST_INTERVAL_MS:
        raise ArgumentError(
            f"trigger({name}={value!r}): must be {LEAST_INTERVAL_MS} milliseconds or longer, or 0 for the shortest"
        )
    return Trigger(interval=f"{interval_ms or LEAST_INTERVAL_MS}ms")


def _interval_ms(name: str, text: str) -> int:
    """Return the milliseconds of an interval.

    The notation is Spark's (``1 minute 30 seconds``, ``interval 5 seconds``) or that of Penstock's options (``90s``).
    """
    left = text.strip().lower()
    left = re.sub(r"^interval\s+", "", left)
    total_us, offset = Decimal(0), 0
    while (term := _TERM.match(left, offset)) is not None and _is_term(term[2], term[3]):
        total_us += Decimal(f"{term[1]}{term[2]}") * _UNIT_US[term[3]]
        offset = term.end()
    if offset == 0:
        with suppress(ConfigError):
            return duration_ms(name, text)
    if offset < len(left):
        raise WrongSetting(f"trigger({name}={text!r}) is not an interval; write for example '5 seconds'")
    if total_us < 0:
        raise WrongSetting(f"trigger({name}={text!r}): the interval must not be negative")
    return int(total_us // 1_000)


def _is_term(number: str, unit: str) -> bool:
    """Return True for a number with a known unit. Only seconds may have fractions, as in Spark."""
    return unit in _UNIT_US and ("." not in number or unit == "second")
