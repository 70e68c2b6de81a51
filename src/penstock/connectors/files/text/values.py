"""Options of CSV and JSON files for reading values from texts."""

from __future__ import annotations

from penstock.connectors.option_texts import OptionTexts
from penstock.errors import EvaluationError
from penstock.functions.core.record_fields import PLAIN_NAMES, FloatNames, RecordTimes, TextRules
from penstock.functions.core.zones import Zone

ISO_DATE = "yyyy-MM-dd"
ISO_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]"

MALFORMED = (ValueError, OverflowError, EvaluationError)
"""Errors of a converter for a text that is not a value of its type.

A time of day without a date is also malformed in a file. Spark adds the current date, so the same file would yield
other rows on another day.
"""


def parse_text_rules(options: OptionTexts, time_zone: str, floats: bool) -> TextRules:
    """Parse the options. Only ISO formats of dates and timestamps are supported.

    Args:
        options: the options of the format.
        time_zone: the time zone of texts without one.
        floats: parse the options for the names of NaN and infinity; otherwise the default names apply.
    """
    options.only("locale", ["en-US"])
    options.only("timestampNTZFormat", [])
    names = PLAIN_NAMES
    if floats:
        names = FloatNames(
            options.text("nanValue", "NaN"),
            options.text("positiveInf", "Inf"),
            options.text("negativeInf", "-Inf"),
        )
    times = RecordTimes(
        Zone(time_zone),
        timestamp_format=options.only_pattern("timestampFormat", ISO_TIMESTAMP),
        date_format=options.only_pattern("dateFormat", ISO_DATE),
    )
    return TextRules(times, names)


def rules_of_names(time_zone: str) -> TextRules:
    """Return the rules for values in names of partition directories. They are the rules of casts."""
    return TextRules(RecordTimes(Zone(time_zone), passes_over_gmt=False), grouped_decimals=False)
