"""CSV functions that read and write lines."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, option
from penstock.functions import Expression
from penstock.functions.casts.plan import named_zone, require_known_digits
from penstock.functions.core.record_fields import FloatNames, TextRules
from penstock.functions.csv.lines import CsvDialect
from penstock.functions.csv.reading import CsvOptions, FromCsv
from penstock.functions.csv.writing import CsvRules, ToCsv
from penstock.functions.json.plan import (
    AREA,
    DATE_LETTERS,
    fails_fast,
    flag,
    options_of,
    pattern_option,
    record_times,
)
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.times.plan import java_zone_id

_OPTIONS = {"sep", "delimiter", "nullvalue", "timestampformat", "timestampntzformat", "dateformat", "timezone"}


@catalyst("StructsToCsv", area=AREA, forms="`to_csv`",
          limits="of at least two fields, atomic, no binaries or intervals; the options "
          + ", ".join(sorted(_OPTIONS)))  # fmt: skip
def to_csv(tree: JavaTree, translation: Translation) -> Expression:
    require_known_digits(tree)
    options = options_of(tree, tree.options())
    if unknown := sorted(set(options) - _OPTIONS):
        refuse(tree, f"the option {unknown[0]} is not supported")
    if translation.conf.time_parser_policy == "LEGACY":
        refuse(tree, "set spark.sql.legacy.timeParserPolicy to CORRECTED; the older parser is not there")
    child = translation(tree.child())
    for field in child.data_type:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_duration(field.type):
            refuse(tree, f"the field {field.name}: cast it to a string first")
    if child.data_type.num_fields < 2:
        refuse(tree, "Spark fails for a single null field; give it two fields, or write the field itself")
    separator = _separator(tree, options)
    date_format = pattern_option(tree, options, "dateformat", parsing=False) or "yyyy-MM-dd"
    if any(letter.isalpha() and letter not in DATE_LETTERS for letter in date_format):
        refuse(tree, f"the option dateFormat with the pattern {date_format!r}: only letters of dates are supported")
    zone = named_zone(options.get("timezone") or str(option(tree.timeZoneId()) or translation.conf.time_zone))
    rules = CsvRules(
        separator=separator,
        null_text=options.get("nullvalue", ""),
        zone=zone,
        zone_id=java_zone_id(zone),
        timestamp_format=pattern_option(tree, options, "timestampformat", parsing=False)
        or "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXXXX]",
        ntz_format=pattern_option(tree, options, "timestampntzformat", parsing=False) or "yyyy-MM-dd'T'HH:mm:ss[.SSS]",
        date_format=date_format,
    )
    return ToCsv(child, rules, bool(tree.nullable()))


def _separator(tree: JavaTree, options: dict[str, str]) -> str:
    separator = options.get("sep", options.get("delimiter", ","))
    if len(separator) != 1 or separator in '"\\#\r\n ' or not (separator.isprintable() or separator == "\t"):
        refuse(tree, f"the separator {separator!r} is not supported")
    return separator


_READING_OPTIONS = {
    "sep", "delimiter", "quote", "escape", "nullvalue", "emptyvalue", "mode", "columnnameofcorruptrecord", "nanvalue",
    "positiveinf", "negativeinf", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "timestampformat",
    "timestampntzformat", "dateformat", "timezone",
}  # fmt: skip


@catalyst("CsvToStructs", area=AREA, forms="`from_csv`",
          limits="atomic fields, no intervals; quotes and the like are one character; the options "
          + ", ".join(sorted(_READING_OPTIONS)))  # fmt: skip
def from_csv(tree: JavaTree, translation: Translation) -> Expression:
    options = options_of(tree, tree.options())
    if unknown := sorted(set(options) - _READING_OPTIONS):
        refuse(tree, f"the option {unknown[0]} is not supported")
    data_type = arrow_type(tree)
    for field in data_type:
        if pa.types.is_nested(field.type) or pa.types.is_duration(field.type) or pa.types.is_null(field.type):
            refuse(tree, f"the field {field.name}: read it as a string and convert it")
    names = [str(name) for name in tree.schema().fieldNames()]
    if len(set(names)) < len(names):
        refuse(tree, "field names must differ")
    corrupt_field = options.get("columnnameofcorruptrecord", str(tree.nameOfCorruptRecord()))
    requested = None
    if len(names) > data_type.num_fields:  # the optimizer requests only some fields
        if corrupt_field in names:
            refuse(tree, f"Spark itself fails to take one field beside {corrupt_field}; add map('mode', 'PERMISSIVE')")
        requested = tuple(names.index(field.name) for field in data_type)
    float_names = FloatNames(
        options.get("nanvalue", "NaN"), options.get("positiveinf", "Inf"), options.get("negativeinf", "-Inf")
    )
    return FromCsv(
        translation(tree.child()),
        data_type,
        CsvOptions(
            dialect=_dialect(tree, options),
            texts=TextRules(record_times(tree, options, translation), float_names),
            fails_fast=fails_fast(tree, options),
            corrupt_field=corrupt_field,
            requested=requested,
        ),
        bool(tree.nullable()),
    )


def _dialect(tree: JavaTree, options: dict[str, str]) -> CsvDialect:
    separator, quote, escape = _separator(tree, options), options.get("quote", '"'), options.get("escape", "\\")
    for name, mark in (("quote", quote), ("escape", escape)):
        if len(mark) != 1 or mark <= " " or mark == separator:
            refuse(tree, f"the option {name} of {mark!r} is not supported")
    return CsvDialect(
        separator,
        quote,
        escape,
        null_value=options.get("nullvalue", ""),
        empty_value=options.get("emptyvalue", ""),
        strip_left=flag(options, "ignoreleadingwhitespace", False),
        strip_right=flag(options, "ignoretrailingwhitespace", False),
    )
