"""Options for writing times to text files: only the default formats, in any time zone."""

from __future__ import annotations

from penstock.connectors.files.text.values import ISO_DATE, ISO_TIMESTAMP
from penstock.connectors.option_texts import OptionTexts

TIMESTAMP_NTZ_FORMAT = "yyyy-MM-dd'T'HH:mm:ss[.SSS]"


def default_times(options: OptionTexts, time_zone: str) -> str:
    """Check the formats, and return the time zone: the option ``timeZone``, or that of the session.

    Raises:
        ConfigError: a format other than the default, or an unknown zone.
    """
    options.only_pattern("dateFormat", ISO_DATE)
    options.only_pattern("timestampFormat", ISO_TIMESTAMP)
    options.only_pattern("timestampNTZFormat", TIMESTAMP_NTZ_FORMAT)
    options.only("locale", ["en-US"])
    return options.time_zone(time_zone)
