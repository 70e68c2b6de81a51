"""How the options of CSV and JSON files say to read texts."""

from __future__ import annotations

from penstock.connectors.option_texts import OptionTexts
from penstock.errors import EvaluationError
from penstock.functions.core.record_fields import PLAIN_NAMES, FloatNames, RecordTimes, TextRules
from penstock.functions.core.zones import Zone

ISO_DATE = "yyyy-MM-dd"
ISO_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]"

MALFORMED = (ValueError, OverflowError, EvaluationError)
"""What a converter raises for a text that is no value of its type. In a file a time of day without a date is none,
either: Spark takes it as today's, so that the same file would give other rows tomorrow."""


def parse_text_rules(options: OptionTexts, time_zone: str, floats: bool) -> TextRules:
    """Date and timestamp formats other than the ISO ones are refused; ``floats``: names of NaN and infinity too."""
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
    """How values in the names of partition directories are read: as casts read them."""
    return TextRules(RecordTimes(Zone(time_zone), passes_over_gmt=False), grouped_decimals=False)
