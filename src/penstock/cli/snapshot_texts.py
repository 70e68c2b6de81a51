"""Sizes, ages and times as the tables of ``penstock snapshot`` print them."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size: int) -> str:
    """``1.5 MiB``."""
    value = float(size)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def age_text(seconds: float) -> str:
    """``3 min``, ``2 h``: one number is enough."""
    for limit, unit, divisor in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def watermark_text(watermark_us: int | None) -> str:
    """In UTC."""
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
