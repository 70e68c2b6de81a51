"""``docs/settings.md``: every setting, method, option and parameter of state, and what becomes of it.

Settings are declared in ``spark_settings``, options by the connectors that read them (``OptionTexts``), the rest here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from penstock.connectors.csv_sink import csv_sink_format
from penstock.connectors.file_sink import file_sizes
from penstock.connectors.file_source import FORMATS, FileSource
from penstock.connectors.json_sink import json_sink_format
from penstock.connectors.kafka_options import parse_kafka_options
from penstock.connectors.option_texts import PAGES, REFUSED, OptionTexts
from penstock.connectors.parquet_sink import parquet_sink_format
from penstock.connectors.text_sink import text_sink_format
from penstock.query.spark_settings import SETTINGS, Treatment

SPARKS_OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": (
        *("charToEscapeQuoteEscaping", "charset", "codec", "columnNameOfCorruptRecord", "columnPruning", "comment"),
        *("compression", "dateFormat", "delimiter", "emptyValue", "enableDateTimeParsingFallback", "encoding"),
        *("enforceSchema", "escape", "escapeQuotes", "extension", "header", "ignoreLeadingWhiteSpace"),
        *("ignoreTrailingWhiteSpace", "inferSchema", "inputBufferSize", "lineSep", "locale", "maxCharsPerColumn"),
        *("maxColumns", "mode", "multiLine", "nanValue", "negativeInf", "nullValue", "positiveInf", "preferDate"),
        *("quote", "quoteAll", "samplingRatio", "sep", "singleVariantColumn", "timeFormat", "timeZone"),
        *("timestampFormat", "timestampNTZFormat", "unescapedQuoteHandling"),
    ),
    "json": (
        *("allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros"),
        *("allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "charset"),
        *("columnNameOfCorruptRecord", "compression", "dateFormat", "dropFieldIfAllNull"),
        *("enableDateTimeParsingFallback", "encoding", "explodeEmbeddedArray", "ignoreNullFields", "inferTimestamp"),
        *("lineSep", "locale", "mode", "multiLine", "prefersDecimal", "pretty", "primitivesAsString", "samplingRatio"),
        *("singleVariantColumn", "sortKeys", "timeFormat", "timeZone", "timestampFormat", "timestampNTZFormat"),
        *("useUnsafeRow", "writeNonAsciiCharacterAsCodePoint"),
    ),
    "orc": ("compression", "mergeSchema", "orc.compress"),
    "parquet": ("compression", "datetimeRebaseMode", "int96RebaseMode", "mergeSchema", "parquet.compression"),
    "text": ("compression", "encoding", "lineSep", "wholetext"),
}
"""Spark's own options of each format, as its classes (``CSVOptions`` and the like) list them."""

_METHODS = (
    ("`DataStreamReader`: `format`, `schema`, `option`, `options`, `load`, `table`, `parquet`, `orc`, `csv`, `json`, "
     "`text`, `xml`", "obeyed", "they are Spark's own and make the DataFrame"),
    ("`DataStreamReader.name`", "refused", "Spark takes it only with `queryEvolution.enableSourceEvolution`; use "
     "`penstock.named(df, name)`"),
    ("`DataStreamReader.changes`", "refused", "Spark takes it only of catalogs with change data, whose sources are "
     "refused by name"),
    ("`DataStreamWriter`: `outputMode`, `format`, `option`, `options`, `partitionBy`, `queryName`, `trigger`, "
     "`foreach`, `foreachBatch`, `start`, `toTable`", "obeyed", "the default format is `spark.sql.sources.default`"),
    ("`DataStreamWriter.clusterBy`", "refused", "write partitioned files with `partitionBy`"),
    ("`trigger(processingTime=...)`, `continuous`, `realTime`", "obeyed", "how often results are committed"),
    ("`trigger(availableNow=True)`, `once`", "obeyed", "reads what is there, commits it and ends"),
    ("two triggers, or none", "refused", "give exactly one, or leave `trigger` out"),
)  # fmt: skip

_OTHER_OPTIONS = (
    ("`rate` source", "`rowsPerSecond`, `rampUpTime`, `numPartitions`", "obeyed"),
    (
        "`rate-micro-batch` source",
        "`rowsPerBatch`, `numPartitions`, `startTimestamp`, `advanceMillisPerBatch`",
        "obeyed",
    ),
    ("`socket` source", "`host`, `port`, `includeTimestamp`", "obeyed"),
    ("`socket` source", "`numPartitions`", "no effect: one connection is read by one reader"),
    ("Python data sources", "all", "handed to the source, which may refuse them"),
    ("other sources, read by Spark", "all", "obeyed by Spark"),
    ("`console` sink", "`numRows`, `truncate`", "obeyed"),
    ("`toTable`", "all", "obeyed by Spark, which writes the files"),
    ("`memory`, `noop`, `foreach`, `foreachBatch`", "all", "refused: they have none"),
    ("every other source and sink", "any other option", "refused by name"),
)

_PARAMETERS = (
    ("window: length, slide, start", "refused", "groups of two kinds of windows would be mixed"),
    ("session window: gap", "refused", "sessions of two gaps would be mixed"),
    ("grouping key: its expression, with literals, functions' names and the session's time zone where it matters",
     "refused", "rows of a group would not find it"),
    ("grouping key: its type", "refused", "its hash, and with it its place, would be another"),
    ("aggregate function: which, `DISTINCT` and of what, constants (accuracy, percentage), its order among the "
     "functions, the columns that it is computed from", "refused", "values of two functions would be added up"),
    ("aggregate function: how its argument is computed from the same columns", "goes on", "an everyday edit: what was "
     "added up stays"),
    ("deduplication: keys and their expressions, `dropDuplicates` or `dropDuplicatesWithinWatermark`", "refused",
     "rows would not be recognized"),
    ("join: keys and their expressions, literals included; type; condition, with the range of event times", "refused",
     "rows would not find partners, or partners were forgotten too early"),
    ("`transformWithState`: grouping keys, output mode, time mode", "refused", "as in Spark"),
    ("`transformWithState`: variables", "see [stateful-python.md](stateful-python.md#declaring-other-state-later)", ""),
    ("`transformWithState`: time to live, another or a new one", "goes on", "what was written before keeps its own"),
    ("`transformWithState`: time to live, none any more", "refused", "the stored times have no place"),
    ("`applyInPandasWithState`: grouping keys, output mode, timeout", "refused", "as in Spark"),
    ("output mode of an aggregation", "refused", "groups were emitted by other rules, and lie elsewhere in complete "
     "mode"),
    ("watermark: delay", "goes on", "event time never goes back; rows are late by the new delay from then on"),
    ("watermark: the columns that event time is computed from", "refused", "state is kept until event time passes it"),
    ("`limit`", "goes on", "the number of rows that have passed is kept"),
    ("session time zone", "goes on", "where no key depends on it"),
    ("ANSI mode, `mapKeyDedupPolicy`, `caseSensitive`, other SQL settings", "goes on", "they are read at each start"),
    ("collation of a key", "refused", "columns with collations are not run"),
    ("user functions: their bodies", "goes on", "an everyday edit"),
    ("filters, projections", "goes on", "an everyday edit, where no key is computed by them"),
    ("`maxParallelism`", "refused", "it is the number of key groups"),
    ("`parallelism`, `state.backend`, intervals", "goes on", "[rescaling.md](rescaling.md)"),
)  # fmt: skip


def documentation() -> str:
    """The text of ``docs/settings.md``."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Settings, options and parameters",
        "",
        "Generated (`python -m penstock.query.settings_page`). A setting or option is obeyed, refused by name when the",
        "query starts, or without effect for a reason. Penstock's own options: [README](../README.md#options).",
        "",
        "## spark.sql.streaming.*",
        "",
        "As they are in the session when the query starts, here without the prefix. A setting of that prefix that",
        "Spark does not have either is named in a warning.",
        "",
    )
    yield from _table(
        ("Setting", "", "Why"),
        (
            (", ".join(f"`{name}`" for name in setting.names), _treatment(setting.treatment, setting.allowed),
             setting.why)
            for setting in SETTINGS
        ),
    )  # fmt: skip
    yield from (
        "",
        "## What state depends on",
        "",
        "What a restart at the same `checkpointLocation` may change. What would mix or lose state is refused, with a",
        "table of what was stored and what is now: undo the change, or give an empty `checkpointLocation`.",
        "If both mean the same to you, `snapshots.allowChangedMeaning=true` takes the state over as it is; the next",
        "start without it records what state depends on now. A location of a release that did not record it is taken",
        "over likewise.",
        "",
    )
    yield from _table(("Parameter", "At a restart", "Why"), _PARAMETERS)
    yield from ("", "## Methods and triggers", "")
    yield from _table(("Method", "", ""), _METHODS)
    yield from (
        "",
        "## Options of sources and sinks",
        "",
        "What they mean: [file-sources.md](file-sources.md),",
    )
    yield from ("[kafka.md](kafka.md), [README](../README.md#file-sinks).", "")
    yield from _table(("Where", "Options", ""), (*_connector_rows(), *_OTHER_OPTIONS))


def _treatment(treatment: Treatment, allowed: Sequence[str]) -> str:
    return treatment.value + (f" but for `{allowed[0]}`" if allowed else "")


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _connector_rows() -> Iterator[tuple[str, str, str]]:
    for name in FORMATS:
        yield from _rows(f"`{name}` source", SPARKS_OPTIONS[name], partial(_file_source, name))
    yield from _rows("`kafka` source", (), _kafka)
    for name, make in _SINKS.items():
        yield from _rows(f"`{name}` sink", SPARKS_OPTIONS[name], make)


_BY_SPARK = {"`csv` source": {"multiLine": "obeyed: with `true`, Spark reads the files"}}


def _rows(where: str, sparks: Sequence[str], make: Callable[[], object]) -> Iterator[tuple[str, str, str]]:
    """By treatment. What Spark has and the connector never asks for, it refuses."""
    found = treatments(make) | _BY_SPARK.get(where, {})
    found |= {name: REFUSED for name in sparks if name.lower() not in {known.lower() for known in found}}
    for treatment in sorted(set(found.values()), key=lambda text: (text.startswith(REFUSED), text)):
        names = sorted(name for name, how in found.items() if how == treatment)
        yield where, ", ".join(f"`{name}`" for name in names), treatment


def treatments(make: Callable[[], object]) -> dict[str, str]:
    """What becomes of each option that a connector asks for while it is made."""
    page: list[OptionTexts] = []
    token = PAGES.set((page,))
    try:
        make()
    finally:
        PAGES.reset(token)
    return {name: how for texts in page for name, how in texts.treatments.items()}


_ROW = pa.schema([("value", pa.string())])


def _file_source(name: str) -> FileSource:
    return FileSource(name, "/", _ROW, {})


def _kafka() -> object:
    return parse_kafka_options({"subscribe": "topic"})


def _file_sink(make: Callable[[OptionTexts], object]) -> Callable[[], object]:
    def read() -> None:
        texts = OptionTexts("sink", {})
        texts.text("path")
        make(texts)
        file_sizes(texts)

    return read


_SINKS = {
    "parquet": _file_sink(lambda texts: parquet_sink_format(_ROW, texts)),
    "csv": _file_sink(lambda texts: csv_sink_format(_ROW, texts, "UTC")),
    "json": _file_sink(lambda texts: json_sink_format(_ROW, texts, "UTC", True)),
    "text": _file_sink(lambda texts: text_sink_format(_ROW, texts)),
}

if __name__ == "__main__":
    print(documentation(), end="")
