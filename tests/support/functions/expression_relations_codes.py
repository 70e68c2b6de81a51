"""Edge values of texts that stand for others: base64, hexadecimal, URLs; and bytes of any character set."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

import random

import pyarrow as pa

# fmt: off
CODES = [
    None, "", "YQ==", "YWI=", "YWJj", "YW Jj\r\n", "YQ", "YWI", "Y", "=", "YQ=", "YQ=a", "YQ==YQ==", "YWI=x", "Y=", "Y===",
    "YWJjZA", "é", "YWJ!j", "====", "a===", "YQ= =", "00", "0a", "0A1", "xyz", "0g", "1", "0 1", "DEADBEEF", "a+b%20c", "%41%42",
    "%zz", "%4", "%", "a%C3%A9", "%C3", "%E2%82", "%ED%A0%80", "%+f", "%-1", "%-0", "%\uff11\uff12", "100%", "%F0%9F%98%80",
    "%c3%28z", "a~b*c-d_e.f g", "http://a.b/c?d=e&f=g#h", "\u00fc\U0001f600", "1,2,3", "79927398713", "4111111111111111",
    "4111111111111112", "0", "\u0661", "12a", "Tymczak", "Pfister", "Honeyman", "Robert", "Rupert", "Ashcraft", "O'Hara", "1abc",
    "\u00e9abc", "jackson", "Lee\u00e9d", "a-b c", "hello WORLD", "o'neil mc_donald", "\ufb01n \u01c6a \u0149b", "\u0130zmir \u0131",
    "tab\there", "a  b", " lead", "\u03a3\u0391\u03a3 \u03c3\u03b1\u03c3", "3com x2y", "'quoted' \\ it's",
]
BYTES = [
    None, b"", b"a", b"abc", b"\xe9", "\u00e9".encode(), "\u65e5".encode("utf-16-be"), "\u65e5a".encode("utf-16"), b"\xd8\x00",
    b"\xff\xfe", b"\xfe\xff\x00a", b"\x00\x00\x00a", b"\xff\xfea\x00", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xc0\x80",
    "\U0001f600".encode("utf-16-be"), b"\xf5\x80\x80\x80", b"\x00\x00\xfe\xff\x00\x00\x00b", b"abc" * 40, b"\x80", b"ab\x00",
]
# fmt: on
COUNTS = [None, 0, 1, -1, 2, 3, 5, 255, 256, 65, 2147483647, -2147483648, 100]
NUMBERS = [
    None, 0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.125, -0.001, 1234567.891, 1e15, 1e22, -1e-7, 0.285, 1.005, 123456789.987654321,
    float("nan"), float("inf"), float("-inf"), 1.7976931348623157e308, 5e-324, 999999.9999995, 0.05, 4.35,
]  # fmt: skip


def codes() -> pa.Table:
    """Columns ``s``, ``q`` (texts), ``b``, ``c`` (bytes), ``n`` (counts), ``l`` (large ones), ``d`` (doubles)."""
    n = 132

    def cycle(values: list[object], step: int, data_type: pa.DataType) -> pa.Array:
        return pa.array([values[i * step % len(values)] for i in range(n)], data_type)

    return pa.table(
        {
            "id": pa.array(range(n), pa.int32()),
            "s": cycle(CODES, 1, pa.string()),
            "q": cycle(CODES, 7, pa.string()),
            "b": cycle(BYTES, 1, pa.binary()),
            "c": cycle(BYTES, 5, pa.binary()),
            "n": cycle(COUNTS, 1, pa.int32()),
            "l": cycle([None, 0, -1, 2**63 - 1, -(2**63), 255, -256, 1234567, 4294967296], 1, pa.int64()),
            "d": cycle(NUMBERS, 1, pa.float64()),
        }
    )


def fields() -> pa.Table:
    """Columns ``s`` and ``p``: texts made of what CSV quotes, escapes or drops."""
    chance = random.Random(3)
    texts = [None, *("".join(chance.choices(" \",\\#\n\ra|\t\0é';:", k=chance.randrange(7))) for _ in range(200))]
    return pa.table(
        {
            "id": pa.array(range(len(texts)), pa.int32()),
            "s": pa.array(texts, pa.string()),
            "p": pa.array(texts[::-1], pa.string()),
        }
    )
