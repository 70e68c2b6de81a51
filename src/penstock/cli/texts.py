"""Texts of the command line: names, sizes, rates, ages and times in a form for terminals."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US

MAX_LINE = 2000


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Return the text with a blank for each unprintable character, because it could control the terminal.

    A text of more than ``limit`` characters is cut and ends with an ellipsis.
    """
    line = "".join(character if character.isprintable() else " " for character in text[: limit + 1]).strip()
    return line if len(text) <= limit else f"{line[: limit - 1]}…"


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, such as a traceback, each as ``one_line`` does. Tab stops are four columns apart."""
    return [one_line(line.expandtabs(4).rstrip()) if line.strip() else "" for line in text.splitlines()]


def rate_text(per_second: float) -> str:
    """Return a rate in at most six characters: ``950``, ``12.3k``, ``1.2M``."""
    if per_second < 9.95:
        return f"{per_second:.1f}".removesuffix(".0")
    value = per_second
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if value >= 99.95 or not unit else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def time_text(ms: float) -> str:
    """Return a duration: ``85 ms``, ``1.2 s``, ``3.5 min``."""
    for limit, unit, divisor in ((999.5, "ms", 1), (99_950, "s", 1000), (5_970_000, "min", 60_000)):
        if ms < limit:
            return f"{ms:.0f} ms" if divisor == 1 else f"{ms / divisor:.1f} {unit}"
    return f"{ms / 3_600_000:.1f} h"


def exact_text(ms: int) -> str:
    """Return a duration as options are written, without rounding: ``10s``, ``1500ms``."""
    for unit, divisor in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % divisor == 0:
            return f"{ms // divisor}{unit}"
    return f"{ms}ms"


def short_vertex(name: str) -> str:
    """Shorten ``Watermark (at, 1 hour) -> Project [a, b] -> Filter x`` to ``Watermark > Filter``."""
    words = [re.split(r"[ \[(]", operator.strip(), maxsplit=1)[0] for operator in name.split(" -> ")]
    telling = [word for word in words if word != "Project"]
    return one_line(" > ".join(telling or words))


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size: int) -> str:
    """Return a number of bytes as text: ``1.5 MiB``."""
    value = float(size)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def age_text(seconds: float) -> str:
    """Return an age, rounded to one unit: ``3 min``, ``2 h``."""
    for limit, unit, divisor in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def watermark_text(watermark_us: int | None) -> str:
    """Return the watermark as text, in UTC."""
    if watermark_us is None:
        return "none yet"
    if watermark_us == START_OF_TIME_US:
        return "start of time"
    if watermark_us == END_OF_TIME_US:
        return "end of time"
    try:
        return datetime.fromtimestamp(watermark_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{watermark_us} us"
