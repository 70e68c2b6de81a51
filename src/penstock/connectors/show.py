"""Formatting of rows as a text table, as ``DataFrame.show`` prints them."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.connectors.files.text.sink_texts import cast_texts
from penstock.functions.core.zones import Zone


def render_table(table: pa.Table, num_rows: int, truncate: int, time_zone: str) -> str:
    """Format at most ``num_rows`` rows as Spark's ``showString`` does.

    Args:
        table: the rows.
        num_rows: limit for the rows; a last line says if there are more.
        truncate: maximum number of characters of a cell; 0: no limit. Column names are never truncated.
        time_zone: time zone of timestamps.
    """
    zone = Zone(time_zone)
    rows = table.slice(0, num_rows)
    columns = [[cell_text(value, column.type, zone) for value in column] for column in rows.columns]
    rows = [[_escaped(name) for name in table.column_names]]
    rows += [[_cut(_escaped(cell), truncate) for cell in cells] for cells in zip(*columns, strict=True)]
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(table.column_names))]
    rule = "+" + "+".join("-" * width for width in widths) + "+\n"
    lines = [_line(row, widths, left=truncate == 0) for row in rows]
    text = rule + lines[0] + rule + "".join(lines[1:]) + rule
    if table.num_rows > num_rows:
        text += f"only showing top {num_rows} row{'s' if num_rows > 1 else ''}"
    return text


def cell_text(scalar: pa.Scalar, kind: pa.DataType, zone: Zone) -> str:
    """Convert one value to text as Spark's cast to string does; null becomes ``NULL``."""
    if not scalar.is_valid:
        return "NULL"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(cell_text(scalar[field.name], field.type, zone) for field in kind) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(cell_text(item, kind.value_type, zone) for item in scalar.values) + "]"
    if pa.types.is_map(kind):
        keys, items = scalar.values.field(0), scalar.values.field(1)
        pairs = zip(keys, items, strict=True)
        entries = (f"{cell_text(k, kind.key_type, zone)} -> {cell_text(v, kind.item_type, zone)}" for k, v in pairs)
        return "{" + ", ".join(entries) + "}"
    return _plain_text(scalar, kind, zone)


def _plain_text(scalar: pa.Scalar, kind: pa.DataType, zone: Zone) -> str:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return str(cast_texts(pa.repeat(scalar, 1), zone, ansi=True)[0])
    value = scalar.as_py()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value, single=pa.types.is_float32(kind))
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return "[" + " ".join(f"{byte:02X}" for byte in value) + "]"
    return str(value)


def _java_double(value: float, single: bool) -> str:
    """Format a number like Java's ``Double.toString``: plain between 1e-3 and 1e7, otherwise in scientific notation.

    The digits are the shortest that identify the number, as in Java since release 19.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits = Decimal(str(np.float32(value)) if single else repr(value))
    if digits == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    if Decimal("1e-3") <= abs(digits) < Decimal("1e7"):
        plain = f"{digits:f}"
        return plain if "." in plain else f"{plain}.0"
    sign, numerals, _ = digits.normalize().as_tuple()
    mantissa = "".join(str(n) for n in numerals)
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{digits.adjusted()}"


def _escaped(cell: str) -> str:
    for raw, escaped in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f"), ("\b", "\\b")):
        cell = cell.replace(raw, escaped)
    return cell


def _cut(cell: str, truncate: int) -> str:
    if truncate <= 0 or len(cell) <= truncate:
        return cell
    return cell[:truncate] if truncate < 4 else cell[: truncate - 3] + "..."


def _line(cells: list[str], widths: list[int], left: bool) -> str:
    pad = str.ljust if left else str.rjust
    return "|" + "|".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True)) + "|\n"
