"""The quick paths, each with the function of one value that it has to agree with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.functions.casts import fast_numbers as numbers
from penstock.functions.casts import text_numbers
from penstock.functions.casts.text_times import date_texts, parse_date, parse_timestamp, wall_time_texts
from penstock.functions.core.fast_path import ColumnFunction, FastResult
from penstock.functions.core.vectors import to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.patterns import patterns
from penstock.functions.patterns.java_patterns import translate
from penstock.functions.patterns.re2_patterns import re2_pattern
from penstock.functions.text import encodings, strings
from penstock.functions.text import fast_texts as texts
from penstock.functions.times import fast_formatting as writing
from penstock.functions.times import fast_parsing as reading
from penstock.functions.times.clock_fields import clock_fields
from penstock.functions.times.formatting import formatted
from penstock.functions.times.parsing import parse_by_pattern
from tests.support.functions.expression_cases_patterns import SAFE
from tests.support.functions.fast_path_values import days, longs, numerals, times_written, walls, words

TEXT, INT, LONG = pa.string(), pa.int32(), pa.int64()
PARTS = pa.list_(pa.field("element", TEXT, nullable=False))
ZONES = [None, *map(Zone, ("UTC", "America/New_York", "Pacific/Apia", "+05:30"))]


@dataclass(frozen=True)
class Case:
    """``sure``: the share of the values, at least, that the quick path vouches for."""

    name: str
    quick: ColumnFunction
    exact: Callable[..., object]
    values: Callable[[], Sequence[object]]
    argument: pa.DataType
    result: pa.DataType
    sure: float = 0.9

    def __str__(self) -> str:
        return self.name


FORMS = {
    "yyyy-MM-dd HH:mm:ss": "{0:04}-{1:02}-{2:02} {3:02}:{4:02}:{5:02}",
    "yyyyMMdd'T'HHmm": "{0:04}{1:02}{2:02}T{3:02}{4:02}",
    "yyyyMMddHHmmss": "{0:04}{1:02}{2:02}{3:02}{4:02}{5:02}", "ddMMyyyy": "{2:02}{1:02}{0:04}", "HHmm": "{3:02}{4:02}",
    "yyyy-MM-dd'T'HH:mm:ss[.SSS]": "{0:04}-{1:02}-{2:02}T{3:02}:{4:02}:{5:02}.{7:03}", "LL.yyyy": "{1:02}.{0:04}",
    "yyyy-MM-dd[ HH:mm[:ss]]": "{0:04}-{1:02}-{2:02} {3:02}:{4:02}", "SSSss": "{5:03}{4:02}",
    "dd/MM/yyyy HH:mm:ss.SSSSSSSSS": "{2:02}/{1:02}/{0:04} {3:02}:{4:02}:{5:02}.{6:09}",
}  # fmt: skip
FORMS |= {
    "yyyy-MM-dd'T'HH:mm:ssXXX": "{0:04}-{1:02}-{2:02}T{3:02}:{4:02}:{5:02}+{3:02}:{4:02}", "HHmmX": "{3:02}{4:02}Z",
    "yyyy-MM-dd HH:mm:ss[.SSSXXXXX]": "{0:04}-{1:02}-{2:02} {3:02}:{4:02}:{5:02}.{7:03}-{3:02}:{4:02}",
    "yyyyZZZZZ": "{0:04}+{1:02}:{2:02}", "dd.MM.yyyyxxx": "{2:02}.{1:02}.{0:04}-{3:02}:{4:02}",
}  # fmt: skip
ISO = "{0:04}-{1:02}-{2:02} {3:02}:{4:02}:{5:02}"
ISO_FORMS = [ISO, ISO.replace(" ", "T"), ISO[:-7], ISO[:-14], ISO[:-21], "{0}-{1}-{2} {3}:{4}:{5}", ISO[:-7] + "Z"]
ISO_FORMS += [
    ISO + end
    for end in (
        ".{6:06}",
        ".{6}",
        ".{6:06}Z",
        "Z",
        ".{6}Z",
        ".",
        "+01:00",
        "-{3:02}:{4:02}",
        ".{7}+{3:02}:{2:02}",
        " UTC",
        ".{6:010}",
    )
]


def isos() -> list[str]:
    return [text for form in ISO_FORMS for text in times_written(form, 150)]


def times_read() -> list[Case]:
    found = [Case("dates", reading.read_dates, parse_date, isos, TEXT, INT, 0.02)]
    for zone in ZONES:
        name = zone.name if zone else "no zone"
        exact: Callable[..., object] = partial(parse_timestamp, zone)
        found.append(
            Case(f"times in {name}", partial(reading.read_timestamps, zone), exact, isos, TEXT, LONG, 0.25)
        )  # fmt: skip
        for pattern, form in FORMS.items():
            quick, exact = partial(reading.read_by_pattern, pattern, zone), partial(parse_by_pattern, pattern, zone)
            found.append(Case(f"{pattern} in {name}", quick, exact, partial(times_written, form), TEXT, LONG, 0.3))
    return found


def _of_vector(write: Callable[..., FastResult | None]) -> ColumnFunction:
    return lambda array, rows: write(to_vector(array), rows)


def _of_one(texts_of: Callable[[pa.Array], pa.Array]) -> Callable[[int], object]:
    return lambda value: texts_of(pa.array([value], LONG))[0].as_py()


def times_written_back() -> list[Case]:
    found = [Case("date", _of_vector(writing.write_dates), _of_one(date_texts), days, LONG, TEXT)]
    for values, sure in ((walls, 0.9), (lambda: [value // 10**6 * 10**6 for value in walls()], 0.9)):
        exact = _of_one(wall_time_texts)
        found.append(Case("wall time", _of_vector(writing.write_wall_times), exact, values, LONG, TEXT, sure))
    for pattern in (
        "yyyy-MM-dd HH:mm",
        "yy MMM LL E EEE a hh KK kk ss",
        "HHmm[ss].SSS 'é日'",
        "SSSSSSSSS S dd.MM",
        "HH",
    ):
        quick = _of_vector(partial(writing.write_by_pattern, pattern))
        exact = _of_one(lambda array, pattern=pattern: formatted(pattern, clock_fields(to_vector(array), ZONES[1])))
        found.append(Case(f"by {pattern}", quick, exact, walls, LONG, TEXT))
    return found


INT_MIN, INT_MAX = -(2**31), 2**31 - 1
CONSTANTS: list[tuple[str, Callable[..., FastResult | None], Callable[..., object], list[tuple[object, ...]]]] = [
    ("substring", texts.substring, strings.substring, [
        (p, n) for p in (-10, -3, -1, 0, 1, 3, 9, INT_MAX, INT_MIN) for n in (-1, 0, 1, 4, INT_MAX)
    ]),
    ("replace", texts.replace, strings.replace, [
        ("a", ""), ("", "x"), ("ab", "é"), ("aa", "a"), ("é", "ab"), ("\0", "x"),
    ]),
    ("repeat", texts.repeat, strings.repeat, [(n,) for n in (-1, 0, 1, 3)]),
    ("lpad", partial(texts.pad, True), partial(strings.pad, True), [
        (n, padding) for n in (-1, 0, 3, 8) for padding in ("", "x", "é")
    ]),
    ("rpad", partial(texts.pad, False), partial(strings.pad, False), [(5, "😀"), (0, "x"), (4, "")]),
    ("trim", partial(texts.trim_characters, "both"), partial(strings.trim_characters, "both"), [("ab é",), ("",)]),
    ("ltrim", partial(texts.trim_characters, "left"), partial(strings.trim_characters, "left"), [("a-b",)]),
    ("rtrim", partial(texts.trim_characters, "right"), partial(strings.trim_characters, "right"), [("]^\\a",)]),
    ("translate", texts.translate, strings.translate, [("ab", "xy"), ("aab,", "xyz"), ("ab ", "z\0"), ("a", "")]),
    ("substring_index", texts.substring_index, strings.substring_index, [
        (",", n) for n in (1, 2, 3, 20, -1, -2, -3, -20, INT_MAX, INT_MIN)
    ]),
]  # fmt: skip
ANY_CASE = partial(words, "abAB zZ")
PLAIN = partial(words, "abab ,,")
LIKE = ("a_%", "%b", "_", "%", "", "a,%é", "%\\%%", "\\__", "%\n_", "".join(map(chr, [*range(37), 91, 94, 0x20AC])))


def _behind(function: Callable[..., object], given: tuple[object, ...]) -> Callable[[str], object]:
    return lambda text: function(text, *given)


def texts_changed() -> list[Case]:
    found = [
        Case(f"{name} {given}", partial(quick, *given), _behind(exact, given), PLAIN, TEXT, TEXT)
        for name, quick, exact, constants in CONSTANTS
        for given in constants
    ]
    found += [
        Case("upper", texts.upper, strings.upper, ANY_CASE, TEXT, TEXT, 0.7),
        Case("lower", texts.lower, strings.lower, ANY_CASE, TEXT, TEXT, 0.7),
        Case("initcap", texts.initcap, strings.initcap, ANY_CASE, TEXT, TEXT, 0.7),
        Case("reverse", texts.reverse, strings.reverse, ANY_CASE, TEXT, TEXT),
        Case("hex of text", texts.hexadecimal, encodings.hex_of_text, ANY_CASE, TEXT, TEXT),
    ]
    for given in ((start, part) for start in (1, 2, 5) for part in ("a", "ab", ",", "é")):
        quick, exact = partial(texts.locate, *given), partial(strings.locate, given[1], start=given[0])
        found.append(Case(f"locate {given}", quick, exact, PLAIN, TEXT, INT, 0.7))
    for separator, limit in ((",", -1), (",", 0), (",", 1), (",", 2), ("ab", -1), ("é", -1), (",,", 3)):
        quick, exact = partial(texts.split, separator, limit, PARTS), partial(patterns.split, separator, limit)
        found.append(Case(f"split {separator} {limit}", quick, exact, PLAIN, TEXT, PARTS))
    for pattern in LIKE:
        quick = partial(texts.matches, patterns.like_to_re2(pattern, "\\"))
        values = partial(words, "abab ,,", pattern)
        found.append(Case(f"like {pattern!r}", quick, partial(patterns.like, pattern, "\\"), values, TEXT, pa.bool_()))
    return found


EXTRACTED = [(pattern, group) for pattern in SAFE for group in range(translate(pattern).compiled.groups + 1)]
EXTRACTED += [("(&|^)a=([^&]*)", 2), (r"([^,]*),(\w|é)?", 2), ("(a)|(b)", 1), ("(?:a|(b)){1,2}", 0)]
EXTRACTED += [("(,|, )+?(a*)", 2)]


def patterns_found() -> list[Case]:
    found = []
    for pattern, group in EXTRACTED:
        re2 = re2_pattern(pattern, group)
        if re2 is None or group in translate(pattern).ambiguous_groups:
            continue
        values = partial(words, "abab c,,\n.é", "a=", "&a=b", "=a=&a=b&", "\r\n", "aa\n")
        quick, exact = partial(texts.regexp_extract, re2), partial(patterns.regexp_extract, pattern, group)
        found.append(Case(f"group {group} of {pattern}", quick, exact, values, TEXT, TEXT, 1))
        if not group:
            quick, exact = partial(texts.matches, re2), partial(patterns.rlike, pattern)
            found.append(Case(f"rlike {pattern}", quick, exact, values, TEXT, pa.bool_(), 1))
    return found


def numbers_of_texts() -> list[Case]:
    found = [
        Case("text of long", numbers.write_integers, str, longs, LONG, TEXT, 1),
        Case("hex of long", numbers.write_hexadecimal, encodings.hex_of_integer, longs, LONG, TEXT, 1),
    ]
    for target in (pa.int8(), pa.int16(), INT, LONG):
        for ansi in (True, False):
            exact: Callable[..., object] = partial(text_numbers.parse_integer, target.bit_width, ansi)
            quick = partial(numbers.read_integers, target)
            found.append(Case(f"{target} of text, {ansi}", quick, exact, numerals, TEXT, target, 0.01))
    for target, exact in ((pa.float64(), text_numbers.parse_double), (pa.float32(), text_numbers.parse_float)):
        found.append(
            Case(f"{target} of text", partial(numbers.read_floats, target), exact, numerals, TEXT, target, 0.3)
        )  # fmt: skip
    return found


CASES = times_read() + times_written_back() + texts_changed() + patterns_found() + numbers_of_texts()
