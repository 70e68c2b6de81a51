"""``trigger(...)``: how often results become visible, and whether the query ends by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import ConfigError, NotYet

KINDS = ("processingTime", "once", "continuous", "availableNow", "realTime")

_UNITS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h"}


@dataclass(frozen=True)
class Trigger:
    """What Spark calls a trigger.

    Attributes:
        interval: the checkpoint interval in Penstock's spelling (results become visible that often); None: the
            query's option counts.
        until_available: read what is there when the query starts, commit it and end.
    """

    interval: str | None = None
    until_available: bool = False


def parse_trigger(given: dict[str, Any]) -> Trigger:
    """The arguments of ``DataStreamWriter.trigger``; those that are None do not count.

    Raises:
        ConfigError: none or several, an unknown one, or one of the wrong type.
        NotYet: one of Spark's other triggers.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1 or not set(chosen) <= set(KINDS):
        raise ConfigError(f"give exactly one trigger of {', '.join(KINDS)}")
    name, value = next(iter(chosen.items()))
    if name != "processingTime":
        raise NotYet(f"trigger({name}=...) is not run yet; use trigger(processingTime='1 second') and stop()")
    if not isinstance(value, str):
        raise ConfigError(f"processingTime={value!r} is not a text; write for example '5 seconds'")
    return Trigger(interval=_spark_interval(value))


def _spark_interval(text: str) -> str:
    """Spark's ``5 seconds`` in Penstock's spelling; ``0 seconds`` (as fast as possible) is a millisecond."""
    number, _, unit = text.strip().lower().removeprefix("interval ").partition(" ")
    short = _UNITS.get(unit.strip().rstrip("s"), unit.strip())
    return "1ms" if number == "0" else f"{number}{short}"
