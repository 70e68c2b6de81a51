"""``upper`` and ``lower`` with the mappings of Spark's ICU, whatever Unicode version this Python knows."""

from __future__ import annotations

# Lower -> upper case of letters that came after Unicode 14 (Python 3.11); newer Pythons map them alike themselves.
_LATE_PAIRS = {
    0x019B: 0xA7DC, 0x0264: 0xA7CB, 0x1C8A: 0x1C89, 0xA7CD: 0xA7CC, 0xA7CF: 0xA7CE, 0xA7D3: 0xA7D2, 0xA7D5: 0xA7D4,
    0xA7DB: 0xA7DA,
    **{0x10D70 + i: 0x10D50 + i for i in range(22)},
    **{0x16EBB + i: 0x16EA0 + i for i in range(25)},
}  # fmt: skip
_LATE_PAIRS_INVERTED = {upper: lower for lower, upper in _LATE_PAIRS.items()}


def upper(text: str) -> str:
    """Full case mapping, locale-free: ``ß`` becomes ``SS``."""
    return text.upper() if text.isascii() else text.translate(_LATE_PAIRS).upper()


def title(letter: str) -> str:
    """One letter's full title case: ``ﬁ`` becomes ``Fi``."""
    return letter.translate(_LATE_PAIRS).title()


def lower(text: str) -> str:
    """Full case mapping, locale-free, with the final sigma."""
    return text.lower() if text.isascii() else text.translate(_LATE_PAIRS_INVERTED).lower()
