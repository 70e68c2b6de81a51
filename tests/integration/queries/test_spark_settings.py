"""Every setting of Spark is declared; refusals have the name; the page is equal to the declaration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

import penstock
from penstock.api import settings_page
from penstock.catalyst.jvm import java_class
from penstock.connectors.files.source import FORMATS, FileSource
from penstock.connectors.option_texts import NO_EFFECT, OBEYED, REFUSED
from penstock.errors import ConfigError, NotSupported
from penstock.queries.spark_settings import PREFIX, SETTINGS, ObeyedSettings, Treatment, check_settings, setting_of
from tests.support.places import DOCS
from tests.support.queries.query_running import Inbox, Start

PAGE = DOCS / "settings.md"
ROW = pa.schema([("value", pa.string())])
REGISTERED_LATE = {f"{PREFIX}checkpointFileManagerClass", f"{PREFIX}internal.stateStore.partitions"}
"""Spark registers them when it first uses them."""
OPTION_CLASSES = {
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions$",
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions$",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcOptions$",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions$",
    "text": "org.apache.spark.sql.execution.datasources.text.TextOptions$",
}


def scala_object(spark: SparkSession, name: str) -> object:
    return java_class(spark, "java.lang.Class").forName(name).getField("MODULE$").get(None)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == settings_page.documentation(), "python -m penstock.api.settings_page > docs/settings.md"


def test_no_setting_is_declared_twice() -> None:
    names = [name.lower() for setting in SETTINGS for name in setting.full_names]
    assert len(set(names)) == len(names)
    assert all(
        setting.why and (bool(setting.allowed) == (setting.treatment is Treatment.REFUSED)) for setting in SETTINGS
    )
    assert all(value == value.lower() for setting in SETTINGS for value in setting.allowed)


@pytest.mark.spark
def test_every_setting_that_spark_has_is_declared(spark: SparkSession) -> None:
    entries = scala_object(spark, "org.apache.spark.sql.internal.SQLConf$").getConfigEntries().toArray()  # type: ignore[attr-defined]
    defaults = {str(entry.key()): str(entry.defaultValueString()) for entry in entries}
    of_streams = {name for name in defaults if name.startswith(PREFIX)}
    assert len(of_streams) > 90
    metadata = "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata$"
    field = java_class(spark, "java.lang.Class").forName(metadata).getDeclaredField("relevantSQLConfs")
    field.setAccessible(True)
    stored = field.get(scala_object(spark, metadata)).toSeq()
    from_checkpoints = {str(stored.apply(at).key()) for at in range(stored.size())}
    assert f"{PREFIX}multipleWatermarkPolicy" in from_checkpoints
    missing = sorted(name for name in of_streams | from_checkpoints if setting_of(name) is None)
    assert missing == [], "declare them in penstock.queries.spark_settings"
    for setting in SETTINGS:
        for name in setting.full_names:
            known = any(one.startswith(name[:-1]) for one in defaults) if name.endswith("*") else name in defaults
            assert known or name in REGISTERED_LATE, f"Spark has no {name} any more"
        if setting.treatment is Treatment.REFUSED:
            [name] = setting.full_names
            assert defaults[name].lower() in setting.allowed, "a query starts with the default"


def test_what_cannot_be_obeyed_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    refused = [setting for setting in SETTINGS if setting.treatment is Treatment.REFUSED]
    assert len(refused) >= 6
    for setting in refused:
        [name] = setting.full_names
        other = {"true": "false", "false": "true"}.get(setting.allowed[0], "com.example.Other")
        with pytest.raises(NotSupported, match=f"^{name}={other}: "):
            check_settings({name: other})
        with pytest.raises(NotSupported, match=f"{other}: "):
            check_settings({name.upper(): other})
        for value in (setting.allowed[0], setting.allowed[0].upper()):
            assert check_settings({name: value}) == ObeyedSettings()
    for setting in SETTINGS:
        if setting.treatment is Treatment.IRRELEVANT:
            assert check_settings(dict.fromkeys(setting.full_names, "7")) == ObeyedSettings()
    with caplog.at_level(logging.WARNING):
        check_settings({f"{PREFIX}noDataMicroBatch.enabled": "false", "spark.sql.shuffle.partitions": "7"})
    assert [record.getMessage() for record in caplog.records] == [
        f"{PREFIX}noDataMicroBatch.enabled is set, but Spark has no such setting: correct its name or remove it"
    ]


def test_obeyed_settings_are_read() -> None:
    given = {f"{PREFIX}numRecentProgressUpdates": "3", f"{PREFIX}noDataProgressEventInterval": "2s"}
    assert check_settings(given) == ObeyedSettings(3, 2.0)
    assert check_settings({name.lower(): value for name, value in given.items()}) == ObeyedSettings(3, 2.0)
    with pytest.raises(ConfigError, match="numRecentProgressUpdates='0' is not a positive whole number"):
        check_settings({f"{PREFIX}numRecentProgressUpdates": "0"})


@pytest.mark.spark
def test_a_query_obeys_or_refuses_the_settings_of_its_session(
    spark: SparkSession, spark_conf: Callable[[str, str], None], inbox: Inbox, start: Start, tmp_path: Path
) -> None:
    inbox.add([(1, 10, 1.0)])
    spark_conf(f"{PREFIX}noDataMicroBatches.enabled", "false")
    with pytest.raises(
        NotSupported, match=r"spark.sql.streaming.noDataMicroBatches.enabled=false: Penstock emits results"
    ):
        start(inbox.stream(spark), format="noop")
    assert not (tmp_path / "checkpoint").exists(), "nothing is left behind by a refusal"
    spark_conf(f"{PREFIX}noDataMicroBatches.enabled", "true")
    spark_conf(f"{PREFIX}numRecentProgressUpdates", "2")
    spark_conf("spark.sql.sources.default", "json")
    query = start(inbox.stream(spark), format=None, path=str(tmp_path / "out"))
    for number in range(4):
        query.processAllAvailable()
        inbox.add([(number, 10, 1.0)])
    query.processAllAvailable()
    assert len(query.recentProgress) == 2
    query.stop()
    assert list((tmp_path / "out").glob("*.json"))
    assert not list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_options_of_file_sources_are_treated_as_the_page_says(name: str) -> None:
    found = settings_page.treatments(lambda: FileSource(name, "/", ROW, {}))
    assert {OBEYED, NO_EFFECT, REFUSED} <= set(found.values())
    for option, how in found.items():
        if how == NO_EFFECT:
            FileSource(name, "/", ROW, {option: "anything"})
        elif how.startswith(REFUSED):
            with pytest.raises(ConfigError, match=f"option {option}"):
                FileSource(name, "/", ROW, {option: "anything"})
    known = {option.lower() for option in found}
    for option in settings_page.SPARKS_OPTIONS[name]:
        if option.lower() not in known:
            with pytest.raises(ConfigError, match=rf"unknown option {option}[.;].* Options of the {name} source: "):
                FileSource(name, "/", ROW, {option: "anything"})


@pytest.mark.spark
def test_every_option_and_method_that_spark_has_is_on_the_page(spark: SparkSession) -> None:
    for name, class_name in OPTION_CLASSES.items():
        options = scala_object(spark, class_name).getAllOptions().toSeq()  # type: ignore[attr-defined]
        found = {str(options.apply(at)) for at in range(options.size())}
        assert found == set(settings_page.SPARKS_OPTIONS[name]), name
    page = PAGE.read_text()
    methods = page[page.index("## Methods") : page.index("## Options")]
    for one in (DataStreamReader, DataStreamWriter):
        for method in vars(one):
            if not method.startswith("_"):
                assert f"`{method}`" in methods or f"`{one.__name__}.{method}`" in methods, method


@pytest.mark.spark
def test_methods_that_are_refused_say_so(spark: SparkSession, inbox: Inbox) -> None:
    with pytest.raises(PySparkException, match="enableSourceEvolution"):
        spark.readStream.name("orders").schema("a int").parquet(str(inbox.directory))
    with pytest.raises(PySparkException, match="Change Data Capture"):
        spark.readStream.changes("t")
    writer = penstock.writeStream(inbox.stream(spark))
    with pytest.raises(NotSupported, match="clusterBy"):
        writer.clusterBy("key")
    with pytest.raises(ConfigError, match="exactly one trigger"):
        writer.trigger(once=True, processingTime="1 second")
    for called in (lambda: writer.foreach(print), lambda: writer.foreachBatch(lambda df, number: None)):
        with pytest.raises(
            ConfigError, match=r"unknown option checkpoint.intervall; did you mean checkpoint.interval\?"
        ):
            called().option("checkpoint.intervall", "1s").start()
