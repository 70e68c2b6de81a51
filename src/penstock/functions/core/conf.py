"""Session settings that change the result of an expression."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SessionConf:
    """Session settings, read once at ``start()``.

    An expression with a setting of its own (``evalMode``, ``timeZoneId``) overrides them.

    Attributes:
        ansi: ``spark.sql.ansi.enabled``. If set, overflow, division by zero and invalid casts raise instead of giving
            null.
        case_sensitive: ``spark.sql.caseSensitive``. If set, names that differ only in case are different.
        time_zone: ``spark.sql.session.timeZone``.
        time_parser_policy: ``spark.sql.legacy.timeParserPolicy``: CORRECTED, EXCEPTION or LEGACY.
        last_key_wins: ``spark.sql.mapKeyDedupPolicy`` is ``LAST_WIN``: a map with equal keys keeps the last one and
            does not raise.
        json_ignores_null_fields: ``spark.sql.jsonGenerator.ignoreNullFields``.
        avro_rebase_mode: ``spark.sql.avro.datetimeRebaseModeInRead``: CORRECTED, EXCEPTION or LEGACY.
        avro_rebase_mode_in_write: ``spark.sql.avro.datetimeRebaseModeInWrite``: CORRECTED, EXCEPTION or LEGACY.
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
