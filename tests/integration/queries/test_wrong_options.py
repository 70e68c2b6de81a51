"""Every option of every source and sink with wrong values: ``start()`` refuses each at once, and nothing runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.api import settings_page, sinks_spark
from penstock.api.triggers import INTERVALS
from penstock.config import OPTION_NAMES
from penstock.connectors.files.source import FORMATS
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.option_texts import OBEYED
from penstock.errors import ConfigError, NotSupported, SinkError
from penstock.queries.streaming_query import StreamingQuery

MOST_S = 10.0
"""Time limit for a refusal, which takes about 20 ms. On a busy machine the first Python worker takes seconds."""
REFUSALS = (ConfigError, NotSupported)

HUGE, LONG, TWO = "9" * 25, "9" * 5000, "\u00b2"
"""More than 64 bits; more digits than Python parses; a digit that is not a decimal one."""
NUMBERS = ("x", "0", "-1", "1.5", "", " ", "1e3", "NaN", TWO, HUGE, LONG)
FLAGS = ("x", "", "yes", "1")
SIZES = ("x", "0", "-1", "", "1x", TWO, LONG, HUGE, "1e3")
DURATIONS = ("x", "-1", "", "1 fortnight", TWO, LONG, f"{HUGE}h", "NaN")
NESTED = "[" * 100_000
OFFSETS = (
    "x", "", "{", "[]", "{}", '{"u":{"0":1}}', '{"t":{}}', '{"t":{"a":1}}', '{"t":{"-1":1}}', '{"t":{"0":"1"}}',
    '{"t":{"0":-3}}', '{"t":{"0":1.5}}', '{"t":{"0":null}}', '{"t":{"0":true}}', '{"t":{"0":99999999999999999999}}',
    '{"t":{"2147483648":1}}', f'{{"t":{{"{TWO}":1}}}}', '{"t":1}', '{"t":{"0":1},"t":{"1":1}}',
    '{"t":{"0":1,"0":2}}', '{"t":{"0":' + LONG + "}}", NESTED,
)  # fmt: skip
ANY_TEXT = {
    "nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf",  # example of a value
    "columnNameOfCorruptRecord",  # one that the schema lacks is not filled
    "basePath",  # it has no effect for a path without wildcards
}  # fmt: skip
WRONG: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger"), NUMBERS),
    **dict.fromkeys(("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"), NUMBERS),
    **dict.fromkeys(
        ("latestFirst", "fileNameOnly", "recursiveFileLookup", "ignoreCorruptFiles", "ignoreMissingFiles", "header",
         "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "allowSingleQuotes", "allowUnquotedControlChars",
         "allowNonNumericNumbers", "multiLine", "wholetext", "quoteAll", "ignoreNullFields", "failOnDataLoss",
         "includeHeaders"),
        FLAGS,
    ),
    **dict.fromkeys(("maxRecordBytes", "maxPageBytes", "targetFileSize"), SIZES),
    "rollInterval": DURATIONS,
    "maxFileAge": ("x", "-1d", "", "1 fortnight", f"{LONG}d", f"{TWO}d", "NaN"),
    "cleanSource": ("x", "", "delete files", "archive"),
    "sourceArchiveDir": ("s3://bucket/x", "/a", "\0"),
    "pathGlobFilter": ("[", "{a", "a{b", "\\"),
    "timeZone": ("Mars/Phobos", "UTC+99"),
    **dict.fromkeys(("encoding", "charset"), ("x", "utf-99")),
    "lineSep": ("",),
    "mode": ("x", ""),
    **dict.fromkeys(("sep", "delimiter"), ("ab", "", "\\q")),
    **dict.fromkeys(("quote", "escape", "comment"), ("ab", "\\q")),
    "compression": ("x", ""),
    "path": ("", "s3://bucket/x", "hdfs://host/x", "\0"),
    "startingOffsets": OFFSETS,
    "startingOffsetsByTimestamp": (*OFFSETS, "latest", '{"t":{"0":-1}}'),
    "startingTimestamp": ("x", "", "-1", "1.5", TWO, HUGE, LONG, "9" * 19, "latest"),
    "subscribe": ("", ",", "a b", "t/../x", "\u00e4", "x" * 250, ".", ".."),
    "subscribePattern": ("", "[", "("),
    "assign": ("", "x", "{}", '{"t":[]}', '{"t":["0"]}', '{"t":[-1]}', '{"t":0}', '{"t":[2147483648]}', '{"a b":[0]}',
               '{"t":[0],"t":[1]}', NESTED),
}  # fmt: skip
"""Wrong values by option, for all connectors."""
ARCHIVING = {"sourceArchiveDir": {"cleanSource": "archive"}}
"""Other options that an option needs."""


def obeyed(make: Callable[[], object]) -> list[str]:
    return sorted(name for name, how in settings_page.treatments(make).items() if how == OBEYED)


def wrong(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield every name with each of its wrong values. A new option without wrong values fails here."""
    for name in names:
        if name not in ANY_TEXT:
            for value in WRONG[name]:
                yield name, value


class Refused:
    """Collects wrong values that are not refused."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.tried = 0

    def start(
        self,
        where: str,
        option: str,
        value: str,
        make: Callable[[], DataFrame],
        start: Callable[[DataFrame], StreamingQuery],
    ) -> None:
        """Start a query and check its error. ``make`` may fail: that is Spark's own refusal, before there is a query.
        Penstock's error names the option or its value."""
        self.tried += 1
        what = f"{where}, {option}={value!r:.80}"
        began_s = time.monotonic()
        try:
            df = make()
        except Exception:  # noqa: BLE001 - whatever Spark raises
            df = None
        try:
            if df is not None:
                start(df).stop()
                self.wrong.append(f"{what} was accepted")
        except (*REFUSALS, SinkError) as error:
            if option.lower() not in str(error).lower() and repr(value)[1:-1] not in str(error):
                self.wrong.append(f"{what} is not named: {error}")
        except Exception as error:  # noqa: BLE001 - what has to be told
            self.wrong.append(f"{what}: {type(error).__name__}: {error!s:.200}")
        if time.monotonic() - began_s > MOST_S:
            self.wrong.append(f"{what}: refused after {time.monotonic() - began_s:.1f} s")


@pytest.fixture
def refused() -> Iterator[Refused]:
    found = Refused()
    yield found
    assert found.tried
    assert not found.wrong, "\n".join(found.wrong)


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    frame = spark.createDataFrame([(1, "a")], "k long, s string").coalesce(1)
    for name in FORMATS:
        (frame.select("s") if name == "text" else frame).write.format(name).save(str(tmp_path / name))
    return tmp_path


def to_noop(folder: Path) -> Callable[[DataFrame], StreamingQuery]:
    def start(df: DataFrame) -> StreamingQuery:
        writer = penstock.writeStream(df).format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        return writer.option("parallelism", 1).start()

    return start


@pytest.mark.one_in(3)
@pytest.mark.spark
@pytest.mark.parametrize("name", FORMATS)
def test_options_of_file_sources(spark: SparkSession, folder: Path, refused: Refused, name: str) -> None:
    schema = "value string" if name == "text" else "k long, s string"

    def make(option: str, value: str) -> DataFrame:
        reader = spark.readStream.format(name).schema(schema).options(**{option: value}, **ARCHIVING.get(option, {}))
        return reader.load(None if option == "path" else str(folder / name))

    options = obeyed(partial(settings_page._file_source, name))
    assert len(options) > 10
    for option, value in wrong(options):
        refused.start(f"{name} source", option, value, partial(make, option, value), to_noop(folder))
    refused.start(f"{name} source", "nonsense", "1", partial(make, "nonsense", "1"), to_noop(folder))


OTHER_SOURCES: Mapping[str, tuple[dict[str, str], dict[str, tuple[str, ...]]]] = {
    "rate": (
        {},
        {
            "rowsPerSecond": (*NUMBERS, "9223372036854775807"),
            "numPartitions": (*NUMBERS, "2147483648"),
            "rampUpTime": ("x", "-1s", "", f"{LONG}s", f"{TWO}s"),
            "nonsense": ("1",),
        },
    ),
    "rate-micro-batch": (
        {"rowsPerBatch": "5"},
        {
            "rowsPerBatch": (*NUMBERS, "9223372036854775807"),
            "numPartitions": NUMBERS,
            "startTimestamp": ("x", "-1", "1.5", "", TWO, HUGE, LONG, "9223372036854775807"),
            "advanceMillisPerBatch": ("x", "-1", "1.5", "", TWO, HUGE, LONG, "9223372036854775807"),
            "nonsense": ("1",),
        },
    ),
    "socket": (
        {"host": "127.0.0.1", "port": "1"},
        {
            "host": ("", "a b", "x" * 300, "\0", "a..b"),
            "port": (*NUMBERS, "65536", "2147483648"),
            "includeTimestamp": FLAGS,
            "nonsense": ("1",),
        },
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", OTHER_SOURCES)
def test_options_of_other_sources(spark: SparkSession, tmp_path: Path, refused: Refused, name: str) -> None:
    needed, options = OTHER_SOURCES[name]
    for option in options:
        for value in options[option]:
            reader = spark.readStream.format(name).options(**(needed | {option: value}))
            refused.start(f"{name} source", option, value, reader.load, to_noop(tmp_path))


@pytest.mark.parametrize("option", obeyed(settings_page._kafka))
def test_options_of_the_kafka_source(option: str) -> None:
    others = {} if option in ("subscribe", "assign", "subscribePattern") else {"subscribe": "t"}
    for value in WRONG[option]:
        texts = {"kafka.bootstrap.servers": "127.0.0.1:1", option: value, **others}
        with pytest.raises(REFUSALS, match=option):
            KafkaSource(texts).open("/nowhere", "source-0")


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("bootstrap.servers", ("", " ", "host", "host:", "host:x", ":9092", "host:99999", "host:0", "http://h:1")),
        ("group.id", ("", " ")),
        ("fetch.min.bytes", ("x", "-5")),
        ("session.timeout.ms", ("-5", LONG)),
        ("security.protocol", ("x",)),
        ("isolation.level", ("x",)),
        ("client.dns.lookup", ("x",)),
        ("auto.offset.reset", ("latest",)),
        ("ssl.truststore.location", ("/nowhere",)),
        ("sasl.jaas.config", ("x",)),
        ("key.deserializer", ("x",)),
        ("nonsense", ("1",)),
    ],
)
def test_settings_of_the_kafka_client(option: str, values: tuple[str, ...]) -> None:
    for value in values:
        texts = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", f"kafka.{option}": value}
        with pytest.raises(REFUSALS, match=option.rpartition(".")[2]):
            KafkaSource(texts).open("/nowhere", "source-0")


@pytest.mark.parametrize(
    "texts",
    [
        {"assign": '{"t":[0,1]}', "startingOffsets": '{"t":{"0":1}}'},
        {"subscribe": "t", "assign": '{"t":[0]}'},
        {"subscribe": "t", "startingOffsetsByTimestampStrategy": "x"},
        *({"subscribe": "t", option: value}
          for option in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
          for value in ("latest", "earliest", "1", '{"t":{"0":1}}', "x")),
        *({"subscribe": "t", option: "1"} for option in ("minOffsetsPerTrigger", "maxTriggerDelay", "nonsense")),
        {},
    ],
)  # fmt: skip
def test_kafka_options_that_contradict_each_other_or_are_none(texts: dict[str, str]) -> None:
    with pytest.raises(REFUSALS):
        KafkaSource({"kafka.bootstrap.servers": "127.0.0.1:1", **texts})


def text_stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("value string").text(str(folder / "text"))


@pytest.mark.one_in(2)
@pytest.mark.spark
@pytest.mark.parametrize("name", settings_page._SINKS)
def test_options_of_file_sinks(spark: SparkSession, folder: Path, refused: Refused, name: str) -> None:
    file = folder / "file"
    file.touch()
    options = obeyed(settings_page._SINKS[name])
    tried = [*wrong(options), ("nonsense", "1")]
    tried += [("path", path) for path in (str(file), f"{file}/x", "/proc/x", f"/tmp/{'x' * 300}")]

    def start(option: str, value: str, df: DataFrame) -> StreamingQuery:
        writer = penstock.writeStream(df).format(name).options(**({"path": str(folder / "out")} | {option: value}))
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{refused.tried}"))
        return writer.option("parallelism", 1).start()

    for option, value in tried:
        refused.start(f"{name} sink", option, value, partial(text_stream, spark, folder), partial(start, option, value))


@pytest.mark.spark
def test_options_of_other_sinks(spark: SparkSession, folder: Path, refused: Refused) -> None:
    tried = [("console", "numRows", value) for value in NUMBERS]
    tried += [("console", "truncate", value) for value in FLAGS]
    tried += [(name, "nonsense", "1") for name in ("console", "memory", "noop")]
    tried += [(name, "path", "x") for name in ("memory", "noop")]
    tried += [(name, "format", name) for name in ("kafka", "delta", "orc", "nonsense")]

    def start(name: str, option: str, value: str, df: DataFrame) -> StreamingQuery:
        writer = penstock.writeStream(df).format(name).queryName("q").options(**{option: value})
        return writer.option("checkpointLocation", str(folder / "checkpoint")).option("parallelism", 1).start()

    for name, option, value in tried:
        refused.start(
            f"{name} sink", option, value, partial(text_stream, spark, folder), partial(start, name, option, value)
        )


WRONG_FOR_TABLES = {
    "csv": {
        "compression": ("x", ""), "sep": ("",), "quote": ("ab",), "escape": ("ab",), "header": ("x",),
        "encoding": ("x",), "lineSep": ("",), "timeZone": ("Mars/Phobos",),
    },
    "json": {"compression": ("x",), "encoding": ("x",), "lineSep": ("",), "timeZone": ("x",), "pretty": ("x",)},
    "orc": {"compression": ("x", "")},
    "parquet": {"compression": ("x", ""), "maxRecordsPerFile": ("x", "", LONG, TWO), "path": ("", "/elsewhere")},
    "text": {"compression": ("x", ""), "lineSep": ("",)},
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.spark
@pytest.mark.parametrize("provider", WRONG_FOR_TABLES)
def test_options_of_tables(spark: SparkSession, folder: Path, refused: Refused, provider: str) -> None:
    def start(table: str, option: str, value: str, df: DataFrame) -> StreamingQuery:
        writer = penstock.writeStream(df).format(provider).option("checkpointLocation", str(folder / "checkpoint"))
        return writer.option("parallelism", 1).option(option, value).toTable(table)

    spark.sql(f"CREATE TABLE there (value STRING) USING {provider} LOCATION '{folder / 'there'}'")
    try:
        for option, values in WRONG_FOR_TABLES[provider].items():
            for value in values:
                for table in ("there",) if option == "path" else ("there", "made"):
                    what = partial(start, table, option, value)
                    refused.start(f"{provider} table", option, value, partial(text_stream, spark, folder), what)
        assert not spark.catalog.tableExists("made")
    finally:
        for table in ("there", "made"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_a_path_that_names_a_table_s_location_is_taken(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    location = f"{tmp_path}/w/t"
    for path in (location, f"{location}/", f"file:{location}", f"file://{location}", f"{tmp_path}/link/w/t", "w/t"):
        assert sinks_spark._is_at(location, path), path
    for path in (f"{location}2", f"{tmp_path}/w", "other/t", "x"):
        assert not sinks_spark._is_at(location, path), path


@pytest.mark.spark
def test_options_of_the_query_and_its_trigger(spark: SparkSession, folder: Path, refused: Refused) -> None:
    def start(name: str, value: str, df: DataFrame) -> StreamingQuery:
        writer = penstock.writeStream(df).format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        return writer.options(**({"parallelism": "1"} | {name: value})).start()

    def trigger(name: str, value: str, df: DataFrame) -> StreamingQuery:
        writer = penstock.writeStream(df).format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        return writer.trigger(**{name: value}).option("parallelism", "1").start()

    source = partial(text_stream, spark, folder)
    for name in OPTION_NAMES:
        for value in ("nonsense", "", " ", "-1", "1.5.5", TWO, HUGE * 20, LONG, f"{HUGE}h"):
            refused.start("query", name, value, source, partial(start, name, value))
    for name in INTERVALS:
        for value in ("x", "", "-1 second", "1 fortnight", "0.5.5 s", f"{TWO} s", f"{HUGE} years", f"{HUGE}h"):
            refused.start("trigger", name, value, source, partial(trigger, name, value))
