"""Values of any column as JSON can say them, and positions as one line can."""

from __future__ import annotations

import json
from collections.abc import Iterable

from penstock.model.plain import Plain

LINE = 120
"""Characters of a position that are shown."""


def plain(value: object) -> Plain:
    """Numbers, texts, lists and dicts as they are; bytes as hex digits, everything else as it prints."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON knows neither NaN nor the infinities
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def one_line(value: Plain) -> str:
    """The beginning of a state or position, as compact JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= LINE else text[: LINE - 3] + "..."


def minimum(values: Iterable[int | None]) -> int | None:
    """The least of those that are known; None if none is."""
    return min((value for value in values if value is not None), default=None)
