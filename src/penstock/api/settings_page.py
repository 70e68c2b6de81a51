"""Generator of ``docs/settings.md``: the treatment of every setting, method, option and state parameter.

Settings are declared in ``spark_settings``, options in the connectors that read them (``OptionTexts``), and all the
rest in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from penstock.connectors.files.csv.sink import csv_sink_format
from penstock.connectors.files.json.sink import json_sink_format
from penstock.connectors.files.parquet.sink import parquet_sink_format
from penstock.connectors.files.sink import file_sizes
from penstock.connectors.files.source import FORMATS, FileSource
from penstock.connectors.files.text.sink import text_sink_format
from penstock.connectors.kafka.options import parse_kafka_options
from penstock.connectors.option_texts import PAGES, REFUSED, OptionTexts
from penstock.queries.spark_settings import SETTINGS, Treatment

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
"""Spark's own options of each format, taken from Spark's classes (``CSVOptions`` and others)."""

_METHODS = (
    ("`DataStreamReader`: `format`, `schema`, `option`, `options`, `load`, `table`, `parquet`, `orc`, `csv`, `json`, "
     "`text`, `xml`", "obeyed", "Spark's own methods, which make the DataFrame"),
    ("`DataStreamReader.name`", "refused", "Spark accepts it only with `queryEvolution.enableSourceEvolution`; use "
     "`penstock.named(df, name)`"),
    ("`DataStreamReader.changes`", "refused", "Spark accepts it only for catalogs with change data; Penstock refuses "
     "their sources by name"),
    ("`DataStreamWriter`: `outputMode`, `format`, `option`, `options`, `partitionBy`, `queryName`, `trigger`, "
     "`foreach`, `foreachBatch`, `start`, `toTable`", "obeyed", "the default format is `spark.sql.sources.default`"),
    ("`DataStreamWriter.clusterBy`", "refused", "write partitioned files with `partitionBy`"),
    ("`trigger(processingTime=...)`, `continuous`, `realTime`", "obeyed", "the interval between two commits"),
    ("`trigger(availableNow=True)`, `once`", "obeyed", "the query reads the available rows, commits them and ends"),
    ("two triggers, or none", "refused", "give exactly one, or leave `trigger` out"),
    ("a path both as option `path` and as argument of `start`", "refused", "as in Spark, unless "
     "`spark.sql.legacy.pathOptionBehavior.enabled` is true: then the argument counts"),
)  # fmt: skip

_OTHER_OPTIONS = (
    ("`rate` source", "`rowsPerSecond`, `rampUpTime`, `numPartitions`", "obeyed"),
    (
        "`rate-micro-batch` source",
        "`rowsPerBatch`, `numPartitions`, `startTimestamp`, `advanceMillisPerBatch`",
        "obeyed",
    ),
    ("`socket` source", "`host`, `port`, `includeTimestamp`", "obeyed"),
    ("`socket` source", "`numPartitions`", "no effect: one reader reads the one connection"),
    ("Python data sources", "all", "passed to the source, which may refuse them"),
    ("other sources, read by Spark", "all", "obeyed by Spark"),
    ("`console` sink", "`numRows`, `truncate`", "obeyed"),
    ("`toTable`", "`path`", "obeyed for a new table; for an existing one it must be the table's location"),
    ("`toTable`", "all others", "obeyed by Spark, which writes the files; `start()` has Spark check them"),
    ("`memory`, `noop`, `foreach`, `foreachBatch`", "all", "refused: these sinks have no options"),
    ("every other source and sink", "any other option", "refused by name, with the nearest known name"),
)

_PARAMETERS = (
    ("window: length, slide, start", "refused", "state would mix groups of different windows"),
    ("session window: gap", "refused", "state would mix sessions of different gaps"),
    ("grouping key: its expression, with literals, names of functions, and the session's time zone if the expression "
     "depends on it", "refused", "rows would not find their group"),
    ("grouping key: its type", "refused", "the hash of a key would change, and so its key group"),
    ("aggregate function: its name, `DISTINCT` with its columns, constants (accuracy, percentage), its position among "
     "the functions, the columns in its argument", "refused", "state would mix values of different functions"),
    ("aggregate function: the expression of its argument, with the same columns", "accepted", "a usual edit; the new "
     "expression applies to new rows"),
    ("deduplication: keys and their expressions, `dropDuplicates` or `dropDuplicatesWithinWatermark`", "refused",
     "rows would not be recognized as duplicates"),
    ("join: keys and their expressions, literals included; type; condition, with the range of event times", "refused",
     "rows would not find their partners, or partners would be removed too early"),
    ("`transformWithState`: grouping keys, output mode, time mode", "refused", "as in Spark"),
    ("`transformWithState`: variables", "see [stateful-python.md](stateful-python.md#declaring-other-state-later)", ""),
    ("`transformWithState`: a new or changed time to live", "accepted", "values written before keep theirs"),
    ("`transformWithState`: time to live removed", "refused", "a variable without it cannot hold the stored times"),
    ("`applyInPandasWithState`: grouping keys, output mode, timeout", "refused", "as in Spark"),
    ("output mode of an aggregation", "refused", "each mode emits groups by other rules; complete mode stores them "
     "elsewhere"),
    ("watermark: delay", "accepted", "event time never goes back; the new delay applies to new rows"),
    ("watermark: the columns in the expression of event time", "refused", "event time decides how long state is kept"),
    ("`limit`", "accepted", "the number of rows so far is kept"),
    ("session time zone", "accepted", "if no key depends on it"),
    ("ANSI mode, `mapKeyDedupPolicy`, `caseSensitive`, other SQL settings", "accepted", "they are read at each start"),
    ("collation of a key", "refused", "Penstock does not run columns with collations"),
    ("bodies of user functions", "accepted", "a usual edit"),
    ("filters, projections", "accepted", "a usual edit, if no key is computed from them"),
    ("`maxParallelism`", "refused", "state is stored by key group, and it is their number"),
    ("`parallelism`, `state.backend`, intervals", "accepted", "[rescaling.md](rescaling.md)"),
)  # fmt: skip


def documentation() -> str:
    """Return the text of ``docs/settings.md``."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Settings, options and parameters",
        "",
        "Generated by `python -m penstock.api.settings_page`. Penstock obeys a setting or option, refuses it by name",
        "when the query starts, or ignores it for the given reason. Penstock's own options are in the",
        "[README](../README.md#options).",
        "",
        "## spark.sql.streaming.*",
        "",
        "Penstock reads these settings of the session when a query starts. The table omits the prefix. If Spark has no",
        "setting of such a name, the log has a warning with the name.",
        "",
    )
    yield from _table(
        ("Setting", "Treatment", "Reason"),
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
        "State depends on these parameters. The table lists which of them may change at a restart at the same",
        "`checkpointLocation`. A change that would mix or lose state is refused. The error has a table of the stored",
        "and the current values: undo the change, or choose an empty `checkpointLocation`. If you know that the stored",
        "state is right for the new parameters, set `snapshots.allowChangedMeaning=true`: the query uses the state",
        "unchanged. The next start without this option stores the current parameters. A location of a release that did",
        "not store parameters is accepted, and the current ones are stored.",
        "",
    )
    yield from _table(("Parameter", "Change at a restart", "Reason"), _PARAMETERS)
    yield from ("", "## Methods and triggers", "")
    yield from _table(("Method", "Treatment", "Reason"), _METHODS)
    yield from (
        "",
        "## Options of sources and sinks",
        "",
        "The options are explained in [file-sources.md](file-sources.md), [kafka.md](kafka.md) and the",
        "[README](../README.md#file-sinks).",
        "",
    )
    yield from _table(("Source or sink", "Options", "Treatment"), (*_connector_rows(), *_OTHER_OPTIONS))


def _treatment(treatment: Treatment, allowed: Sequence[str]) -> str:
    return treatment.value + (f" except `{allowed[0]}`" if allowed else "")


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
    """Return one row per treatment. A connector refuses those options of Spark's that it does not read."""
    found = treatments(make) | _BY_SPARK.get(where, {})
    found |= {name: REFUSED for name in sparks if name.lower() not in {known.lower() for known in found}}
    for treatment in sorted(set(found.values()), key=lambda text: (text.startswith(REFUSED), text)):
        names = sorted(name for name, how in found.items() if how == treatment)
        yield where, ", ".join(f"`{name}`" for name in names), treatment


def treatments(make: Callable[[], object]) -> dict[str, str]:
    """Return the treatment of each option that a connector reads while ``make`` creates it."""
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
