"""CSV: lines put together."""

from __future__ import annotations

import pyarrow as pa

from penstock.frontend.catalyst import JavaTree, option
from penstock.frontend.expressions_casts import named_zone, require_known_digits
from penstock.frontend.expressions_json import AREA, DATE_LETTERS, options_of, pattern_option
from penstock.frontend.expressions_registry import Translation, catalyst, refuse
from penstock.frontend.expressions_time_patterns import java_zone_id
from penstock.operators.expressions import Expression
from penstock.operators.expressions.csv_writing import CsvRules, ToCsv

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
    separator = options.get("sep", options.get("delimiter", ","))
    if len(separator) != 1 or separator in '"\\#\r\n ' or not (separator.isprintable() or separator == "\t"):
        refuse(tree, f"the separator {separator!r} is not supported")
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
