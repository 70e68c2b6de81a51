"""Lines of CSV, ordinary and not, that ``from_csv`` is compared on."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

import os
import random

import pyarrow as pa

from tests.support.functions.expression_relations import MOMENTS, NUMERALS

_LINES = int(os.environ.get("PENSTOCK_CSV_LINES", "400"))

# fmt: off
LINES = [
    None, "", " ", "   ", "\n", "\r\n", "\r", "1,a", "1,a\n", "1,a\r\n", "1\n,a", '"1\n2",a', '"x\r\ny",2', "#x,1", ",", '"',
    " 1 , a ", "1,2,3", "x,a", '"1",""', "1,", "a\\,b,c", '"a\\"b",1', '1,"a\n', "\n1,a", "  \n1,a", '1,"a"\n', "a\rb,c",
    "\ufeff1,a", '"a" ,b', '"a"\t,b', '"a" b,c', '1,"a"b,c', '"a""b,1', '"a\\",1', '"1" ,b', "\u0660\u0661,x", "1;2;3", "'a;b';c",
    '"1,234",2', '"1,2,3"', "Inf,-Inf,NaN", "NULL,nan,1", "true,falſe,TRUE", "a,b,c,d,e,f,g,h",
    "26/08/2015,26/08/2015 03:04", "2024-01-02,2024-01-02 03:04:05.5,2024-01-02T03:04:05", "GMT2024-01-02,GMT2024-01-02,GMT2024-01-02",
]
# fmt: on


def lines() -> pa.Table:
    """Column ``s``: the lines above, and others made of what CSV knows; ``PENSTOCK_CSV_LINES`` says how many of these."""
    chance = random.Random(6)
    made = ["".join(chance.choices("ab1\",,\\' ;\n\r\t", k=chance.randrange(1, 14))) for _ in range(_LINES)]
    return _table([*LINES, *made])


def line_fields() -> pa.Table:
    """Column ``s``: every text that is a number, boolean, date or timestamp, or nearly."""
    decimals = ["0e9999999999", "\U0001d7cf", "1.5e-2147483648", "1e2147483648", "1,2,3", ",1", "1e5", "Inf", "-Inf"]
    return _table([text for text in (*NUMERALS, *MOMENTS, *decimals) if not text or "|" not in text])


def _table(texts: list[str | None]) -> pa.Table:
    return pa.table({"id": pa.array(range(len(texts)), pa.int32()), "s": pa.array(texts, pa.string())})
