"""``format_string`` and ``format_number``: Java's ``Formatter`` and ``DecimalFormat`` for texts and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Context, Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.casts.java_digits import double_text
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.vectors import map_distinct
from penstock.functions.json.text import java_text

Types = pa.types
_DIRECTIVE = re.compile(r"%(?:(\d++)\$)?([-#+ 0,(]*+)(\d++)?(?:\.(\d++))?([a-zA-Z%])")
_WIDE = Context(prec=1200)
_ALLOWED = {"s": "-", "S": "-", "d": "-+ 0,(", "x": "-0", "X": "-0", "o": "-0", "f": "-+ 0,(", "b": "-", "B": "-"}


class UnknownDirective(ValueError):
    """Directive that Java rejects or Penstock does not support."""


@dataclass(frozen=True)
class Directive:
    """``%[flags][width][.precision]conversion`` of one argument. ``argument`` is its zero-based index."""

    argument: int
    flags: str
    width: int
    precision: int | None
    conversion: str


def directives_of(template: str) -> tuple[str | Directive, ...]:
    """Return the literal texts and directives of a format.

    Raises:
        UnknownDirective: a directive is not supported; the message is the directive.
    """
    parts: list[str | Directive] = []
    position = following = 0
    while position < len(template):
        if template[position] != "%":
            end = template.find("%", position)
            end = len(template) if end < 0 else end
            parts.append(template[position:end])
            position = end
            continue
        match = _DIRECTIVE.match(template, position)
        if match is None:
            raise UnknownDirective(template[position:])
        position = match.end()
        if match[5] in "%n":
            if match[0] not in ("%%", "%n"):
                raise UnknownDirective(match[0])
            parts.append("%" if match[5] == "%" else "\n")
            continue
        following += not match[1]
        parts.append(_directive(match, int(match[1]) if match[1] else following))
    return tuple(parts)


def _directive(match: re.Match[str], argument: int) -> Directive:
    flags, conversion = match[2], match[5]
    allowed = _ALLOWED.get(conversion)
    if allowed is None or set(flags) - set(allowed) or len(set(flags)) < len(flags) or argument == 0:
        raise UnknownDirective(match[0])
    if ("-" in flags or "0" in flags) and not match[3]:
        raise UnknownDirective(match[0])
    if ("-" in flags and "0" in flags) or ("+" in flags and " " in flags):
        raise UnknownDirective(match[0])
    if match[4] and conversion not in "sSbBf":
        raise UnknownDirective(match[0])
    return Directive(argument - 1, flags, int(match[3] or 0), int(match[4]) if match[4] else None, conversion)


def writer_of(directive: Directive, data_type: pa.DataType) -> Callable[..., str]:
    """Return the function that writes a non-null value.

    Raises:
        UnknownDirective: the conversion does not apply to the type.
    """
    name = directive.conversion.lower()
    if name == "s":
        plain = _plain_texts(data_type)
    elif name == "b":
        plain = _truth if Types.is_boolean(data_type) else (lambda value: "true")
    elif name == "d" and Types.is_integer(data_type):
        return partial(_signed, directive, lambda value: str(value))
    elif name in "xo" and Types.is_integer(data_type):
        plain = partial(_digits, name, data_type.bit_width)
    elif name == "f" and Types.is_floating(data_type):
        return partial(_float, directive)
    else:
        raise UnknownDirective(f"%{directive.conversion} for {data_type}")
    return partial(_padded, directive, plain)


def _plain_texts(data_type: pa.DataType) -> Callable[..., str]:
    if Types.is_string(data_type) or Types.is_integer(data_type):
        return str
    if Types.is_boolean(data_type):
        return _truth
    if Types.is_float64(data_type):
        return double_text
    raise UnknownDirective(f"%s for {data_type}")


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _digits(conversion: str, bits: int, value: int) -> str:
    return format(value % (1 << bits), conversion)


def _padded(directive: Directive, plain: Callable[..., str], value: object) -> str:
    text = plain(value)
    if directive.precision is not None:
        units = text.encode("utf-16-le")[: 2 * directive.precision]
        text = units.decode("utf-16-le", "surrogatepass")
    if directive.conversion.isupper():
        text = text.upper()
    # Java counts UTF-16 units and writes half of a surrogate pair as a question mark.
    missing = directive.width - len(text.encode("utf-16-le", "surrogatepass")) // 2
    text = java_text(text)
    filler = ("0" if "0" in directive.flags else " ") * missing
    return text + filler if "-" in directive.flags else filler + text


def null_text(directive: Directive) -> str:
    """Return the text that a directive writes for null."""
    if directive.conversion in "bB":
        return _padded(directive, str, "false")
    flags = directive.flags.replace("0", "")
    return _padded(Directive(0, flags, directive.width, directive.precision, directive.conversion), str, "null")


def _float(directive: Directive, value: float) -> str:
    if value != value:
        return _padded(Directive(0, directive.flags.replace("0", ""), directive.width, None, "s"), str, "NaN")
    if abs(value) == float("inf"):
        plain = Directive(0, directive.flags.replace("0", "").replace(",", ""), directive.width, None, "f")
        return _signed(plain, lambda magnitude: "Infinity", value)
    decimal_places = 6 if directive.precision is None else directive.precision
    # Java rounds the shortest digits that represent the double, not the double itself.
    exact = Decimal(double_text(value)).quantize(Decimal(1).scaleb(-decimal_places), ROUND_HALF_UP, _WIDE)
    return _signed(directive, lambda magnitude: f"{magnitude:f}", exact)


def _signed(directive: Directive, write: Callable[..., str], value: int | float | Decimal) -> str:
    negative = value.is_signed() if isinstance(value, Decimal) else value < 0
    flags = directive.flags
    text = write(abs(value) if not isinstance(value, Decimal) else value.copy_abs())
    if "," in flags:
        whole, dot, fraction = text.partition(".")
        text = f"{int(whole):,}{dot}{fraction}"
    before = (
        "(" if negative and "(" in flags else "-" if negative else "+" if "+" in flags else " " if " " in flags else ""
    )
    after = ")" if before == "(" else ""
    if "0" in flags:
        text = text.rjust(directive.width - len(before) - len(after), "0")
    text = before + text + after
    return text.ljust(directive.width) if "-" in flags else text.rjust(directive.width)


class FormatString(Expression):
    """``format_string`` and ``printf``. A null argument is written as ``null``, or ``false`` for ``%b``."""

    data_type = pa.string()
    nullable = False

    def __init__(self, parts: Sequence[str | Directive], children: Sequence[Expression]) -> None:
        self.parts = tuple(parts)
        self.children = tuple(children)

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = [child.evaluate(batch, mask) for child in self.children]
        columns = [self._column(part, arrays, batch.num_rows, mask) for part in self.parts]
        nothing = pa.scalar("", pa.string())
        if not columns:
            return pa.repeat(nothing, batch.num_rows)
        return pc.binary_join_element_wise(*columns, nothing)

    def _column(self, part: str | Directive, arrays: list[pa.Array], rows: int, mask: Mask | None) -> pa.Array:
        if isinstance(part, str):
            return pa.repeat(pa.scalar(part, pa.string()), rows)
        array = arrays[part.argument]
        if Types.is_null(array.type):
            return pa.repeat(pa.scalar(null_text(part), pa.string()), rows)
        texts = map_distinct(writer_of(part, array.type), [array], pa.string(), mask)
        return pc.fill_null(texts, null_text(part))


def format_number(value: int | float | Decimal, decimal_places: int) -> str | None:
    """Write digits in groups of three, rounded half-even to ``decimal_places``; None if these are negative."""
    if decimal_places < 0:
        return None
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return "NaN" if value != value else "∞" if value > 0 else "-∞"
    digits = Decimal(double_text(value)) if isinstance(value, float) else Decimal(value)
    unit = Decimal(1).scaleb(-decimal_places)
    rounded = digits.quantize(unit, ROUND_HALF_EVEN, _WIDE)
    if isinstance(value, float) and abs(_WIDE.subtract(digits, rounded)) * 2 == unit and Decimal(value) != digits:
        # A tie of the shortest digits is not a tie of the double itself.
        up = Decimal(value).copy_abs() > digits.copy_abs()
        rounded = digits.quantize(unit, ROUND_UP if up else ROUND_DOWN, _WIDE)
    return f"{rounded:,f}"
