"""JSON, CSV and text files with changed bytes, for ``fuzz_files``."""

from __future__ import annotations

import random

_TYPES = (
    "b boolean, y tinyint, i int, l bigint, f float, d double, m decimal(9,3), s string, dt date, ts timestamp,"
    " tn timestamp_ntz, bin binary"
)
_NESTED = ", a array<int>, o struct<x:int,y:string,z:array<string>>, mp map<string,double>, n void"
DDLS = {
    "json": f"{_TYPES}{_NESTED}, _corrupt_record string",
    "json-value": f"{_TYPES}{_NESTED}, _corrupt_record string",
    "csv": f"{_TYPES}, _corrupt_record string",
    "text": "value string",
}
JSON_OPTIONS = [
    {}, {}, {}, {"mode": "DROPMALFORMED"}, {"encoding": "UTF-8"}, {"lineSep": ";"},
    {"encoding": "ISO-8859-1", "lineSep": "\n"}, {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"},
    {"allowUnquotedControlChars": "true", "timeZone": "America/New_York"},
]  # fmt: skip
VALUE_OPTIONS = [{"multiLine": "true"}, {"multiLine": "true", "encoding": "UTF-8"}]
CSV_OPTIONS = [
    {}, {}, {"header": "true"}, {"sep": ";"}, {"escape": '"'}, {"quote": "'"}, {"nullValue": "null", "emptyValue": "E"},
    {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}, {"comment": "#"},
    {"mode": "DROPMALFORMED"}, {"encoding": "ISO-8859-1"}, {"encoding": "US-ASCII", "sep": "\t"},
]  # fmt: skip
TEXT_OPTIONS = [{}, {}, {"lineSep": ";"}, {"lineSep": "ab"}, {"lineSep": "é"}, {"wholetext": "true"}]

_TEXTS = [
    "",
    "a",
    "abc",
    "grüße",
    "😀",
    " x ",
    'q"q',
    "a,b",
    "it's",
    "\\",
    "null",
    "NaN",
    "Infinity",
    "-INF",
    "#",
    "\u2028",
]
_NUMBERS = [
    "0", "1", "-1", "127", "128", "255", "256", "2147483648", "-9223372036854775808", "9223372036854775808", "1.5",
    "-0",
    "-0.0", "1e2", "1E400", "1.0005", "01", "+1", ".5", "5.", "999999.9995", "1_0", "NaN", "٣", "1d",
]  # fmt: skip
_TIMES = [
    "2020-01-02", "2020-02-30", "1500-02-29", "0001-01-01", "+12020-01-01", "2020-01-02 03:04:05",
    "2020-01-02T03:04:05.123Z",
    "2020-01-02 03:04:05.123456+01:00", "2020-03-29 02:30:00 Europe/Berlin", "2020", "18000", "2020-1-2",
    "1900-01-01T00:00",
]  # fmt: skip
_ODD = [
    b"\0", b"\r", b"\n", b"\r\n", b"\t", b"\x0b", b"\x1f", b"\x7f", b"\x80", b"\xa0", b"\xc0\x80", b"\xc3", b"\xe2\x82",
    b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xf8", b"\xff", b"\xfe\xff", b'"',
    b"'",
    b"\\", b"\\u", b"\\ud800", b"\\udc00", b"\\n", b"{", b"}", b"[", b"]", b",", b":", b";", b"#", b"/", b"/*", b" ",
    b"null",
    b"true", b"NaN", b"1", b"0", b"-", b"+", b"e", b".", "ü".encode(), "٣".encode(), "\ufffe".encode(),
    "\u0085".encode(),
]  # fmt: skip


def mutated(chance: random.Random, content: bytes) -> bytes:
    """Return the bytes with up to four changes; one file in ten is unchanged."""
    data = bytearray(content)
    for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 2, 3, 3, 4])):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.choice([1, 1, 2, 8])]
            case 2 | 3:
                data[at:at] = chance.choice(_ODD)
            case 4:
                begin = chance.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + chance.choice([1, 4, 30])]
            case _:
                data[at : at + 1] = chance.choice(_ODD)
    return bytes(data)


def json_lines(chance: random.Random) -> bytes:
    lines = [_record(chance) for _ in range(chance.randrange(1, 5))]
    return mutated(chance, chance.choice(["\n", "\n", "\r\n", ";"]).join(lines).encode())


def json_value(chance: random.Random) -> bytes:
    records = [_record(chance) for _ in range(chance.choice([1, 1, 2]))]
    content = records[0] if len(records) == 1 else f"[{', '.join(records)}]"
    return mutated(chance, content.encode(chance.choice(["utf-8"] * 6 + ["utf-16", "utf-16-be", "utf-32-le"])))


def _record(chance: random.Random) -> str:
    names = [*["b", "y", "i", "l", "f", "d", "m", "s", "dt", "ts", "tn", "bin", "a", "o", "mp", "n", "other"], "S"]
    members = [(name, _member(chance, name)) for name in chance.sample(names, chance.randrange(1, 7))]
    return "{" + ", ".join(f'"{name}": {value}' for name, value in members) + "}"


def _member(chance: random.Random, name: str) -> str:
    if chance.random() < 0.15:
        name = chance.choice("bismo")
    if name == "b":
        return chance.choice(["true", "false", "null", "True", '"true"'])
    if name in "yilfdm":
        number = chance.choice(_NUMBERS)
        return number if chance.random() < 0.8 else f'"{number}"'
    if name in ("dt", "ts", "tn"):
        return f'"{chance.choice(_TIMES)}"'
    if name == "bin":
        return chance.choice(['"QUJD"', '"QUI="', '"QUI"', '" QUJD"', '""', '"QU\\nJD"', "1"])
    if name == "a":
        return f"[{', '.join(_member(chance, 'i') for _ in range(chance.randrange(3)))}]"
    if name == "o":
        items = ", ".join(_member(chance, "s") for _ in range(chance.randrange(3)))
        return f'{{"x": {_member(chance, "i")}, "y": {_member(chance, "s")}, "z": [{items}]}}'
    if name == "mp":
        return f'{{"k": {_member(chance, "d")}, "{chance.choice(["l", "ü", "k"])}": {_member(chance, "d")}}}'
    if chance.random() < 0.2:
        return chance.choice(["1.50e1", "[1, 2 ]", '{"x" : 1}', "true", "-0", "NaN"])
    text = chance.choice(_TEXTS).replace("\\", "\\\\").replace('"', '\\"')
    return f"'{text}'" if chance.random() < 0.1 and "'" not in text else f'"{text}"'


def csv_text(chance: random.Random) -> bytes:
    lines = [_line(chance) for _ in range(chance.randrange(1, 6))]
    return mutated(chance, chance.choice(["\n", "\n", "\r\n"]).join(lines).encode())


def _line(chance: random.Random) -> str:
    kinds = [["true", "FALSE", "t"], *[_NUMBERS] * 6, _TEXTS, *[_TIMES] * 3, _TEXTS]
    texts = ["" if chance.random() < 0.2 else chance.choice(kind) for kind in kinds]
    if chance.random() < 0.1:
        texts = texts[: chance.randrange(len(texts) + 1)]
    quote = chance.choice(['"', '"', '"', "'"])
    quoted = [f"{quote}{text}{quote}" if chance.random() < 0.3 else text for text in texts]
    return chance.choice([",", ",", ",", ";", "\t"]).join(quoted)


def text(chance: random.Random) -> bytes:
    lines = [chance.choice(_TEXTS) for _ in range(chance.randrange(6))]
    return mutated(chance, chance.choice(["\n", "\r\n", "\r", ";", "ab", "é"]).join(lines).encode())
