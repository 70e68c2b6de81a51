"""Options for writing times to text files. Only the default formats are supported, in any time zone."""

from __future__ import annotations

from penstock.connectors.files.text.values import ISO_DATE, ISO_TIMESTAMP
from penstock.connectors.option_texts import OptionTexts

TIMESTAMP_NTZ_FORMAT = "yyyy-MM-dd'T'HH:mm:ss[.SSS]"


def default_times(options: OptionTexts, time_zone: str) -> str:
    """Check the formats, and return the option ``timeZone``; ``time_zone`` if it is not given.

    Raises:
        ConfigError: a format is not the default, or the time zone is unknown.
    """
    options.only_pattern("dateFormat", ISO_DATE)
    options.only_pattern("timestampFormat", ISO_TIMESTAMP)
    options.only_pattern("timestampNTZFormat", TIMESTAMP_NTZ_FORMAT)
    options.only("locale", ["en-US"])
    return options.time_zone(time_zone)
