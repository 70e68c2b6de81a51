"""``mask``: replacement of the characters of a text, by character class."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from penstock.errors import DataError

_YOUNG = (
    (0x1C89, 0x1C8A), (0x2C2F, 0x2C2F), (0x2C5F, 0x2C5F), (0xA7C0, 0xA7C1), (0xA7CB, 0xA7DC), (0x10570, 0x105BC),
    (0x10D40, 0x10D85), (0x116D0, 0x116E3), (0x11BF0, 0x11BF9), (0x11DE0, 0x11DE9), (0x11F50, 0x11F59),
    (0x16AC0, 0x16AC9), (0x16D70, 0x16D79), (0x16EA0, 0x16ED3), (0x1CCF0, 0x1CCF9), (0x1DF00, 0x1DF2A),
    (0x1E4F0, 0x1E4F9), (0x1E5F1, 0x1E5FA),
)  # fmt: skip
"""Letters with case, and digits, added after Unicode 13. Only some Java versions know them as such."""


@dataclass(frozen=True)
class Masking:
    """Replacements of upper-case letters, lower-case letters, digits and other characters. None keeps the character.

    Calling it masks a text.

    Raises:
        DataError: the text has a letter or digit that only some Java versions know.
    """

    upper: str | None
    lower: str | None
    digit: str | None
    other: str | None

    def __call__(self, text: str) -> str:
        return "".join(map(self._masked, text))

    def _masked(self, character: str) -> str:
        if character > "\u1c88" and any(low <= ord(character) <= high for low, high in _YOUNG):
            raise DataError(f"mask: {character!r} is a letter or digit in some Java versions only; replace() it first")
        kind = unicodedata.category(character)
        mark = {"Lu": self.upper, "Ll": self.lower, "Nd": self.digit}.get(kind, self.other)
        return character if mark is None else mark
