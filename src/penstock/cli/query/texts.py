"""What a service tells, in words and numbers that a terminal can show."""

from __future__ import annotations

import re

MAX_LINE = 2000


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """``text`` without anything that would steer a terminal: what is not printable is a blank."""
    line = "".join(character if character.isprintable() else " " for character in text[: limit + 1]).strip()
    return line if len(text) <= limit else f"{line[: limit - 1]}…"


def lines_of(text: str) -> list[str]:
    """Several lines, such as a traceback; tabs are four blanks."""
    return [one_line(line.expandtabs(4).rstrip()) if line.strip() else "" for line in text.splitlines()]


def rate_text(per_second: float) -> str:
    """``950``, ``12.3k``, ``1.2M``: six characters at most."""
    if per_second < 9.95:
        return f"{per_second:.1f}".removesuffix(".0")
    value = per_second
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if value >= 99.95 or not unit else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def time_text(ms: float) -> str:
    """How long something took: ``85 ms``, ``1.2 s``, ``3.5 min``."""
    for limit, unit, divisor in ((999.5, "ms", 1), (99_950, "s", 1000), (5_970_000, "min", 60_000)):
        if ms < limit:
            return f"{ms:.0f} ms" if divisor == 1 else f"{ms / divisor:.1f} {unit}"
    return f"{ms / 3_600_000:.1f} h"


def exact_text(ms: int) -> str:
    """A setting, which is not rounded: ``10s``, ``1500ms``, as options are written."""
    for unit, divisor in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % divisor == 0:
            return f"{ms // divisor}{unit}"
    return f"{ms}ms"


def short_vertex(name: str) -> str:
    """``Watermark (at, 1 hour) -> Project [a, b] -> Filter x`` as ``Watermark > Filter``: a screen is narrow."""
    words = [re.split(r"[ \[(]", operator.strip(), maxsplit=1)[0] for operator in name.split(" -> ")]
    telling = [word for word in words if word != "Project"]
    return one_line(" > ".join(telling or words))
