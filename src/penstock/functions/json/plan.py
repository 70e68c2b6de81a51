"""JSON functions that read and write documents."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, elements, option
from penstock.functions import Expression
from penstock.functions.casts.plan import named_zone, require_known_digits
from penstock.functions.core.record_fields import RecordTimes
from penstock.functions.core.strict import ScalarFunction
from penstock.functions.json import fast_json
from penstock.functions.json import paths as json_paths
from penstock.functions.json.records import FromJson
from penstock.functions.json.tokens import JsonRules
from penstock.functions.json.values import JsonOptions
from penstock.functions.json.writing import ToJson, WritingRules
from penstock.functions.plan_registry import Translation, catalyst, refuse, refuse_repeated
from penstock.functions.times import patterns as time_patterns
from penstock.functions.times.plan import java_zone_id

AREA = "JSON and CSV"


@catalyst("GetJsonObject", area=AREA, forms="`get_json_object`")
def get_json_object(tree: JavaTree, translation: Translation) -> Expression:
    require_known_digits(tree)
    operands = translation.children(tree)
    return ScalarFunction(json_paths.get_json_object, operands, pa.string(), fast_path=fast_json.at_path)


@catalyst("JsonExpressionUtils.lengthOfJsonArray", area=AREA, forms="`json_array_length`")
def array_length(tree: JavaTree, translation: Translation) -> Expression:
    return ScalarFunction(json_paths.json_array_length, translation.children(tree), pa.int32())


@catalyst("JsonExpressionUtils.jsonObjectKeys", area=AREA, forms="`json_object_keys`")
def object_keys(tree: JavaTree, translation: Translation) -> Expression:
    return ScalarFunction(json_paths.json_object_keys, translation.children(tree), arrow_type(tree))


def options_of(tree: JavaTree, given: JavaTree) -> dict[str, str]:
    """Return a Scala map of options as a dictionary with lower-case names."""
    entries = given.toSeq()
    pairs = [entries.apply(i) for i in range(entries.size())]
    return {str(pair._1()).lower(): str(pair._2()) for pair in pairs}


_JSON_OPTIONS = {
    "mode", "columnnameofcorruptrecord", "timestampformat", "timestampntzformat", "dateformat", "timezone",
    "allowsinglequotes", "allownonnumericnumbers", "allowunquotedcontrolchars",
}  # fmt: skip


def flag(options: dict[str, str], name: str, default: bool) -> bool:
    return options.get(name, str(default)).lower() == "true"


def pattern_option(tree: JavaTree, options: dict[str, str], name: str, parsing: bool) -> str | None:
    pattern = options.get(name)
    try:
        time_patterns.parts_of(pattern or "", parsing)
    except time_patterns.UnknownPattern as error:
        refuse(tree, f"the option {name} with the pattern {pattern!r}: {error}")
    return pattern


@catalyst("JsonToStructs", area=AREA, forms="`from_json`",
          limits="no binary, interval or variant fields; the options " + ", ".join(sorted(_JSON_OPTIONS)))  # fmt: skip
def from_json(tree: JavaTree, translation: Translation) -> Expression:
    require_known_digits(tree)
    options = options_of(tree, tree.options())
    if unknown := sorted(set(options) - _JSON_OPTIONS):
        refuse(tree, f"the option {unknown[0]} is not supported")
    data_type = arrow_type(tree)
    refuse_repeated(tree, tree)
    _check_readable(tree, data_type)
    return FromJson(
        translation(tree.child()),
        data_type,
        JsonOptions(
            times=record_times(tree, options, translation),
            rules=JsonRules(
                single_quotes=flag(options, "allowsinglequotes", True),
                control_characters=flag(options, "allowunquotedcontrolchars", False),
                non_numeric=flag(options, "allownonnumericnumbers", True),
            ),
            fails_fast=fails_fast(tree, options),
            corrupt_field=options.get("columnnameofcorruptrecord", str(tree.nameOfCorruptRecord())),
        ),
    )


def fails_fast(tree: JavaTree, options: dict[str, str]) -> bool:
    """Return True if a malformed record raises."""
    mode = options.get("mode", "PERMISSIVE").upper()
    if mode not in ("PERMISSIVE", "FAILFAST"):
        refuse(tree, f"there is no mode {mode} for it")
    return mode == "FAILFAST"


def record_times(tree: JavaTree, options: dict[str, str], translation: Translation) -> RecordTimes:
    """Return the formats of dates and times that the options set."""
    if translation.conf.time_parser_policy == "LEGACY":
        refuse(tree, "set spark.sql.legacy.timeParserPolicy to CORRECTED; the older parser is not there")
    return RecordTimes(
        zone=named_zone(str(options.get("timezone") or option(tree.timeZoneId()) or translation.conf.time_zone)),
        timestamp_format=pattern_option(tree, options, "timestampformat", parsing=True),
        ntz_format=pattern_option(tree, options, "timestampntzformat", parsing=True),
        date_format=pattern_option(tree, options, "dateformat", parsing=True),
    )


def _check_readable(tree: JavaTree, data_type: pa.DataType) -> None:
    if pa.types.is_binary(data_type) or pa.types.is_duration(data_type):
        refuse(tree, "read the field as a string and convert it")
    if pa.types.is_struct(data_type):
        for field in data_type:
            _check_readable(tree, field.type)
    elif pa.types.is_map(data_type):
        _check_readable(tree, data_type.item_type)
    elif pa.types.is_list(data_type):
        _check_readable(tree, data_type.value_type)


_WRITING_OPTIONS = {"ignorenullfields", "timestampformat", "timestampntzformat", "dateformat", "timezone"}
DATE_LETTERS = frozenset("GyMLdDQqE")


@catalyst("StructsToJsonEvaluator.evaluate", area=AREA, forms="`to_json`",
          limits="no interval or variant fields; keys of maps are strings or integers; the options "
          + ", ".join(sorted(_WRITING_OPTIONS)))  # fmt: skip
def to_json(tree: JavaTree, translation: Translation) -> Expression:
    require_known_digits(tree)
    evaluator = tree.targetObject().value()
    options = options_of(tree, evaluator.options())
    if unknown := sorted(set(options) - _WRITING_OPTIONS):
        refuse(tree, f"the option {unknown[0]} is not supported")
    if translation.conf.time_parser_policy == "LEGACY":
        refuse(tree, "set spark.sql.legacy.timeParserPolicy to CORRECTED; the older parser is not there")
    argument = elements(tree.arguments())[0]
    refuse_repeated(tree, argument)
    child = translation(argument)
    _check_writable(tree, child.data_type)
    zone = named_zone(options.get("timezone") or str(option(evaluator.timeZoneId()) or translation.conf.time_zone))
    date_format = pattern_option(tree, options, "dateformat", parsing=False) or "yyyy-MM-dd"
    if any(letter.isalpha() and letter not in DATE_LETTERS for letter in date_format):
        refuse(tree, f"the option dateFormat with the pattern {date_format!r}: only letters of dates are supported")
    rules = WritingRules(
        zone=zone,
        zone_id=java_zone_id(zone),
        ignore_null_fields=flag(options, "ignorenullfields", translation.conf.json_ignores_null_fields),
        timestamp_format=pattern_option(tree, options, "timestampformat", parsing=False)
        or "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXXXX]",
        ntz_format=pattern_option(tree, options, "timestampntzformat", parsing=False) or "yyyy-MM-dd'T'HH:mm:ss[.SSS]",
        date_format=date_format,
    )
    return ToJson(child, rules, bool(tree.nullable()))


def _check_writable(tree: JavaTree, data_type: pa.DataType) -> None:
    if pa.types.is_duration(data_type):
        refuse(tree, "cast the interval to a string first")
    if pa.types.is_struct(data_type):
        for field in data_type:
            _check_writable(tree, field.type)
    elif pa.types.is_map(data_type):
        key = data_type.key_type
        if not (pa.types.is_string(key) or pa.types.is_integer(key)):
            refuse(tree, "make the keys of the map strings first")
        _check_writable(tree, data_type.item_type)
    elif pa.types.is_list(data_type):
        _check_writable(tree, data_type.value_type)
