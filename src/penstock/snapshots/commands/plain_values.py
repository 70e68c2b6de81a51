"""Column values and source positions as plain JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable

from penstock.model.plain import Plain

MAX_LINE_LENGTH = 120
"""Maximum number of characters of a position on one line."""


def plain_value(value: object) -> Plain:
    """Return the value as a JSON value: bytes become hex digits, unknown types become their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has neither NaN nor the infinities.
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return str(value)


def one_line(value: Plain) -> str:
    """Return the beginning of a state or position as compact JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MAX_LINE_LENGTH else text[: MAX_LINE_LENGTH - 3] + "..."


def known_minimum(values: Iterable[int | None]) -> int | None:
    """Return the least value that is not None; None if there is none."""
    return min((value for value in values if value is not None), default=None)
