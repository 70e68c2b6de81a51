"""The session settings that change what an expression means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SessionConf:
    """Read once at ``start()``; expressions that carry their own setting (``evalMode``, ``timeZoneId``) override it.

    Attributes:
        ansi: ``spark.sql.ansi.enabled``; overflow, division by zero and bad casts raise instead of giving null.
        case_sensitive: ``spark.sql.caseSensitive``: names that differ in case only are different.
        time_zone: ``spark.sql.session.timeZone``.
        time_parser_policy: ``spark.sql.legacy.timeParserPolicy``: CORRECTED, EXCEPTION or LEGACY.
        last_key_wins: ``spark.sql.mapKeyDedupPolicy`` is ``LAST_WIN``: a map's equal keys are no error.
        json_ignores_null_fields: ``spark.sql.jsonGenerator.ignoreNullFields``.
        avro_rebase_mode: ``spark.sql.avro.datetimeRebaseModeInRead``: CORRECTED, EXCEPTION or LEGACY.
        avro_rebase_mode_in_write: ``spark.sql.avro.datetimeRebaseModeInWrite``, likewise.
        regexp_max_length: ``spark.penstock.regexp.maxLength``, in characters.
    """

    ansi: bool = True
    case_sensitive: bool = False
    time_zone: str = "UTC"
    time_parser_policy: str = "CORRECTED"
    last_key_wins: bool = False
    json_ignores_null_fields: bool = True
    avro_rebase_mode: str = "CORRECTED"
    avro_rebase_mode_in_write: str = "CORRECTED"
    regexp_max_length: int = 100_000
