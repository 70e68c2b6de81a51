"""Plain values for quick paths, and near misses of them. All seeded."""

from __future__ import annotations

import random
from functools import cache

from penstock.functions.times.calendar import MICROS_PER_DAY

ROWS = 600
LONG = 2**63
STRANGE = [*" \tTtZz+-.:/,0159aAzZßİſK_%\\'\0\n\x7f\x80", "é", "日", "😀", "٣", "５", "\u0301"]
ODD_DATES = ((2024, 3, 10), (2024, 11, 3), (2011, 12, 30), (2024, 2, 29))
"""Days on which clocks of New York or Apia skip or repeat something."""


def changed(chance: random.Random, text: str) -> str:
    """A character more, less, or another, mostly once."""
    for _ in range(chance.choice((1, 1, 1, 2))):
        place, kind = chance.randint(0, len(text)), chance.randrange(4)
        behind = place if kind == 0 else place + 1
        text = text[:place] + (chance.choice(STRANGE) if kind != 1 else "") + text[behind:]
    return text


def fields_of_time(chance: random.Random) -> tuple[int, ...]:
    """Year to second, microseconds and milliseconds: mostly of this world; of 30 February too."""
    odd = chance.random() < 0.2
    year = chance.choice((0, 1, 9999, 1582, 1900, 2000, 2100)) if odd else chance.randint(1800, 2600)
    month, day = chance.randint(0 if odd else 1, 13 if odd else 12), chance.randint(0 if odd else 1, 31 if odd else 28)
    hour, minute, second = (chance.randint(0, most + 5 * odd) for most in (23, 59, 59))
    if chance.random() < 0.2:
        year, month, day, hour = *chance.choice(ODD_DATES), 2
    if chance.random() < 0.1:
        year, month, day = chance.choice((1900, 2000, 2023, 2024)), 2, chance.randint(27, 31)
    micros = chance.choice((0, 1, 10, 123456, 999999, chance.randrange(10**6)))
    return year, month, day, hour, minute, second, micros, micros // 1000


@cache
def times_written(form: str, rows: int = ROWS) -> list[str]:
    """Return times written in a Python format of the fields."""
    chance = random.Random(form)
    plain = [form.format(*fields_of_time(chance)) for _ in range(rows)]
    return [changed(chance, text) if chance.random() < 0.4 else text for text in plain]


@cache
def words(plain: str, *more: str) -> list[str]:
    """Texts of those characters, a quarter with strange ones."""
    chance = random.Random(plain)
    found = ["".join(chance.choices(plain, k=chance.randint(0, 9))) for _ in range(ROWS)]
    found = [changed(chance, changed(chance, text)) if chance.random() < 0.25 else text for text in found]
    return [*found, *more]


@cache
def numerals() -> list[str]:
    chance = random.Random(7)
    whole = [str(chance.randrange(-(10**n), 10**n)) for n in chance.choices(range(1, 21), k=ROWS // 2)]
    broken = [f"{chance.choice(whole)[:18]}.{chance.randrange(10**16):0{n}}" for n in chance.choices(range(17), k=ROWS)]
    edges = [str(sign * 2**bits + n) for bits in (7, 8, 15, 31, 53, 63, 64) for n in (-1, 0, 1) for sign in (1, -1)]
    ties = ["16777217", "16777217.0000000000000001", "9007199254740993", "0.1", "-0", "-0.0", "00012", "1e5", "0x1f"]
    ties += [".5", "5.", ".", "-", "+", "", "-.", "+5", "--5", "5-", "1.2.3", "1_000", "Infinity", "NaN", "1f"]
    found = [*whole, *broken, *edges, *ties, "9" * 40, "8" * 19, "-" + "8" * 19]
    return found + [changed(chance, text) for text in found]


@cache
def longs() -> list[int]:
    chance = random.Random(8)
    found = [chance.randrange(-(2**bits), 2**bits) for bits in chance.choices(range(1, 64), k=ROWS)]
    return [*found, 0, LONG - 1, -LONG, *(16**n - d for n in range(16) for d in (0, 1))]


@cache
def walls() -> list[int]:
    """Wall times in microseconds: of years of four digits mostly, at the ends of those, and far away."""
    chance = random.Random(9)
    whole = [chance.randrange(-62_135_596_800, 253_402_300_800) for _ in range(ROWS)]
    found = [second * 10**6 + chance.choice((0, 0, 500_000, 120, chance.randrange(10**6))) for second in whole]
    ends = [
        day * MICROS_PER_DAY + d
        for day in (-719_600, -719_529, -719_163, -719_162, 2_932_896, 2_932_897)
        for d in (-1, 0, 1)
    ]
    return found + ends + [chance.randrange(-LONG // 4, LONG // 4) for _ in range(20)]


@cache
def days() -> list[int]:
    return [wall // MICROS_PER_DAY for wall in walls()]


PATTERN_PARTS = [
    "yyyy", "MM", "dd", "HH", "mm", "ss", "LL", "S", "SSS", "SSSSSSS", "yy", "y", "M", "d", "DDD", "G", "a", "hh", "X",
    "-", "-", ":", " ", ".", "'T'", "'0'", "'1a'", "年", "''", "[", "[", "]",
]  # fmt: skip


def patterns(seed: int, count: int) -> list[str]:
    """Mostly of fields with a fixed width, once each."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        parts = chance.choices(PATTERN_PARTS[:10] if chance.random() < 0.7 else PATTERN_PARTS, k=chance.randint(1, 6))
        parts = list(dict.fromkeys(parts))
        for _ in range(chance.randint(0, 4)):
            parts.insert(chance.randint(0, len(parts)), chance.choice(PATTERN_PARTS[19:]))
        if chance.random() < 0.2:
            parts.append(chance.choice(("X", "XXX", "xxx", "[XXX]", "ZZZZZ", "XXXXX", "XX", "Z")))
        found.append("".join(parts))
    return found


def written_fields(chance: random.Random, width: int, fields: tuple[tuple[str, int, int], ...]) -> list[str]:
    """A text of blanks with such fields at their places, small and often right, or of other digits."""
    text = [" "] * width
    for letter, begin, end in fields:
        if letter == "S" or chance.random() < 0.1:
            digits = "".join(chance.choices("0123456789", k=end - begin))
        else:
            digits = str(chance.randint(1970, 2030) if letter == "y" else chance.randint(0, 19)).zfill(end - begin)
        text[begin:end] = digits
    return text
