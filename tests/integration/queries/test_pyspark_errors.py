"""Wrong arguments and plans are refused with PySpark's classes and conditions: Spark's own writer is the oracle."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, StreamingQueryException
from pyspark.errors.exceptions import base
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import now

import penstock
from penstock.errors import ConfigError, FunctionError, NotSupported, NotYet, PenstockError, SinkError, name_of
from penstock.spark import errors as pyspark_errors
from penstock.spark.errors import pysparks_refusals

pytestmark = pytest.mark.spark
register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

Writer = Any
"""Spark's ``DataStreamWriter`` or Penstock's."""
Call = Callable[[Writer], object]

ARGUMENTS: dict[str, Call] = {
    "outputMode('')": lambda w: w.outputMode(""),
    "outputMode(' ')": lambda w: w.outputMode(" "),
    "outputMode(5)": lambda w: w.outputMode(5),
    "outputMode(None)": lambda w: w.outputMode(None),
    "outputMode('foo')": lambda w: w.outputMode("foo"),
    "start(outputMode='')": lambda w: w.start(format="noop", outputMode=""),
    "start(outputMode='foo')": lambda w: w.start(format="noop", outputMode="foo"),
    "queryName('')": lambda w: w.queryName(""),
    "queryName(5)": lambda w: w.queryName(5),
    "start(queryName='')": lambda w: w.start(format="noop", queryName=""),
    "trigger()": lambda w: w.trigger(),
    "two triggers": lambda w: w.trigger(once=True, processingTime="5 seconds"),
    "an unknown trigger": lambda w: w.trigger(never=True),
    "trigger(once=False)": lambda w: w.trigger(once=False),
    "trigger(availableNow=1)": lambda w: w.trigger(availableNow=1),
    **{
        f"trigger({name}={value!r})": lambda w, name=name, value=value: w.trigger(**{name: value})  # type: ignore[misc]
        for name in ("processingTime", "continuous", "realTime")
        for value in (5, "", " ", "soon", "1 month")
    },
    "trigger(processingTime='-5 seconds')": lambda w: w.trigger(processingTime="-5 seconds"),
    "foreach(5)": lambda w: w.foreach(5),
    "foreach(None)": lambda w: w.foreach(None),
}
PLANS: dict[str, Call] = {
    "partitionBy('nope')": lambda w: w.partitionBy("nope").format("parquet").start("OUT"),
    "partitionBy all columns": lambda w: w.partitionBy("value", "timestamp").format("parquet").start("OUT"),
    "partitionBy of memory": lambda w: w.partitionBy("value").format("memory").queryName("m").start(),
    "partitionBy of foreach": lambda w: w.partitionBy("value").foreach(print).start(),
    "partitionBy of foreachBatch": lambda w: w.partitionBy("value").foreachBatch(print).start(),
    "partitionBy('nope') of a table": lambda w: w.partitionBy("nope").toTable("penstock_unpartitioned"),
    "the same path twice": lambda w: w.option("path", "OUT").format("parquet").start("OUT"),
    "another path twice": lambda w: w.option("PATH", "OTHER").format("parquet").start("OUT"),
    "a path twice, and a sink without": lambda w: w.option("path", "OTHER").format("noop").start("OUT"),
    "a path among the options of start": lambda w: w.format("parquet").start("OUT", path_="1", Path="OUT"),
    "no path": lambda w: w.format("parquet").start(),
    "an empty path": lambda w: w.format("parquet").start(""),
    "a memory sink without a name": lambda w: w.format("memory").start(),
    "update to files": lambda w: w.format("parquet").outputMode("update").start("OUT"),
    "update to a table": lambda w: w.format("parquet").outputMode("update").toTable("penstock_nope"),
    "complete without aggregation": lambda w: w.format("noop").outputMode("complete").start(),
    "an empty table's name": lambda w: w.toTable(""),
    "not a table's name": lambda w: w.toTable("a b"),
    "a table of no database": lambda w: w.toTable("nodb.t"),
    "a table of another format": lambda w: w.toTable("penstock_there", format="csv"),
    "a view": lambda w: w.toTable("penstock_view"),
}
WITHOUT_CONDITION = ("_LEGACY_ERROR_TEMP", "INVALID_INTERVAL_FORMAT", "PARSE_")
"""Conditions of Spark that are no names for a user, or tell of a step of Spark's own."""


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    spark.sql("CREATE TABLE penstock_there (timestamp TIMESTAMP, value BIGINT) USING parquet")
    spark.sql("CREATE VIEW penstock_view AS SELECT 1 AS x")
    yield
    spark.sql("DROP VIEW penstock_view")
    spark.sql("DROP TABLE penstock_there")


@pytest.fixture
def rate(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFrame:
    monkeypatch.chdir(tmp_path)
    return spark.readStream.format("rate").load()


def refused(call: Call, writer: Writer) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the kind of the error is what is compared
        call(writer)
    return caught.value


def assert_same_kind(theirs: Exception, ours: Exception) -> None:
    """Check that Penstock's error has the classes and the condition of Spark's error."""
    assert isinstance(ours, PenstockError), repr(ours)
    kinds = [one for one in type(theirs).__mro__ if one.__module__ in (base.__name__, "builtins")]
    kind = next(one for one in kinds if one is not base.ParseException)  # a kind of AnalysisException
    assert isinstance(ours, kind), f"{ours!r} is no {kind.__name__}"
    if not isinstance(theirs, PySparkException):
        return
    assert isinstance(ours, PySparkException)
    condition = theirs.getCondition()
    if condition is None or condition.startswith(WITHOUT_CONDITION):
        assert ours.getCondition() is None
        return
    assert (ours.getCondition(), ours.getMessageParameters()) == (condition, theirs.getMessageParameters())
    assert str(ours).startswith(f"[{condition}] ")
    assert str(ours).count(condition) == 1


@pytest.mark.parametrize("name", [*ARGUMENTS, *PLANS])
def test_a_writer_refuses_what_spark_s_refuses(rate: DataFrame, tmp_path: Path, name: str) -> None:
    call = ARGUMENTS.get(name) or PLANS[name]
    theirs = refused(call, rate.writeStream.option("checkpointLocation", str(tmp_path / "theirs")))
    ours = refused(call, penstock.writeStream(rate).option("checkpointLocation", str(tmp_path / "ours")))
    assert_same_kind(theirs, ours)
    assert not (tmp_path / "ours").exists() or name == "a table of no database", "a refusal leaves nothing behind"


def test_plans_are_refused_as_spark_refuses_them(spark: SparkSession, rate: DataFrame, tmp_path: Path) -> None:
    def theirs_and_ours(df: DataFrame, call: Call, location: bool = True) -> None:
        given = {"checkpointLocation": str(tmp_path / "c")} if location else {}
        assert_same_kind(
            refused(lambda _: call(df.writeStream.options(**given)), None),
            refused(lambda _: call(penstock.writeStream(df).options(**given)), None),
        )

    theirs_and_ours(rate.groupBy("value").count(), lambda w: w.format("noop").start())
    theirs_and_ours(rate.groupBy("value").count(), lambda w: w.outputMode("complete").format("csv").start("OUT"))
    theirs_and_ours(rate, lambda w: w.format("parquet").start("OUT"), location=False)
    theirs_and_ours(spark.range(3), lambda w: w)


def test_two_queries_of_one_name(spark: SparkSession, rate: DataFrame) -> None:
    def twice(of: Callable[[DataFrame], Writer]) -> Exception:
        query = of(rate).format("noop").queryName("same").start()
        try:
            return refused(lambda _: of(rate).format("noop").queryName("same").start(), None)
        finally:
            query.stop()

    assert_same_kind(
        twice(lambda df: df.writeStream), twice(lambda df: penstock.writeStream(df).option("parallelism", 1))
    )


def test_the_legacy_setting_lets_the_path_of_start_replace_the_option(
    rate: DataFrame, spark_conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.api import writer as writer_module

    spark_conf("spark.sql.legacy.pathOptionBehavior.enabled", "true")
    started: list[Any] = []
    monkeypatch.setattr(writer_module, "start_query", lambda outputs, request: started.append(outputs[0].sink.options))
    penstock.writeStream(rate).option("path", "OTHER").format("parquet").start("OUT")
    assert started == [{"path": "OUT"}]


@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.format(5),
        lambda w: w.format(None),
        lambda w: w.option(5, 1),
        lambda w: w.option(None, 1),
        lambda w: w.partitionBy(5),
        lambda w: w.partitionBy(["value", None]),
        lambda w: w.foreachBatch(5),
        lambda w: w.format("parquet").start(5),
        lambda w: w.toTable(5),
        lambda w: penstock.writeStream(5),
        lambda w: penstock.start([5]),
        lambda w: penstock.named(5, "x"),
        lambda w: penstock.transformWithStateInArrow(5, None, "a int", "append", "none"),
    ],
)
def test_arguments_of_the_wrong_type_that_spark_passes_to_the_jvm(rate: DataFrame, call: Call) -> None:
    error = refused(call, penstock.writeStream(rate))
    assert isinstance(error, base.PySparkTypeError)
    assert isinstance(error, ConfigError)
    assert error.getCondition() == "NOT_EXPECTED_TYPE"


def test_options_and_refusals_of_a_start_are_pyspark_s(rate: DataFrame, tmp_path: Path) -> None:
    def start(**options: object) -> Exception:
        options = {"checkpointLocation": str(tmp_path / "c"), "format": "noop", **options}
        return refused(lambda w: w.start(**options), penstock.writeStream(rate))

    for options in ({"parallelism": "x"}, {"wrong": "1"}, {"format": ""}, {"format": "nothing"}, {"startMode": "x"}):
        error = start(**options)
        assert isinstance(error, ConfigError), options
        assert isinstance(error, IllegalArgumentException), options
        assert isinstance(error, ValueError), options
    assert "format '' is unknown" in str(start(format=""))
    refusal = refused(lambda w: w.format("noop").start(), penstock.writeStream(rate.withColumn("t", now())))
    assert isinstance(refusal, NotSupported)
    assert isinstance(refusal, AnalysisException)
    for error in (start(format="kafka"), refused(lambda w: w.clusterBy("value"), penstock.writeStream(rate))):
        assert isinstance(error, NotYet)
        assert isinstance(error, AnalysisException)


def test_arguments_of_penstock_s_own_methods(rate: DataFrame) -> None:
    assert isinstance(refused(lambda _: penstock.named(rate, "a b"), None), base.PySparkValueError)
    assert isinstance(refused(lambda _: penstock.late(rate), None), AnalysisException)
    plain: list[Call] = [
        lambda df: penstock.explain(df, "sideways"),
        lambda df: penstock.serve(host="nowhere"),
        lambda df: penstock.SnapshotWriter.from_plan(df, parallelism=1000),
        lambda df: penstock.SnapshotWriter.from_plan(df).schema("nope"),
        lambda df: penstock.SnapshotWriter.from_plan(df).drop_state("nope"),
        lambda df: penstock.SnapshotWriter.from_plan(df).with_state("nope", df),
        lambda df: penstock.SnapshotWriter.from_plan(df).with_position("nope", []),
        lambda df: penstock.SnapshotWriter.from_plan(df).rename_operator("nope", "x"),
        lambda df: penstock.importSparkCheckpoint(df, "nowhere", "there", planned="never"),
    ]
    for call in plain:
        error = refused(call, rate)
        assert isinstance(error, ConfigError), repr(error)
        assert isinstance(error, ValueError), repr(error)
    query = penstock.writeStream(rate).format("noop").option("parallelism", 1).start()
    calls: list[Call] = [
        *(lambda q, timeout=timeout: q.awaitTermination(timeout) for timeout in ("hello", -1, float("nan"), 1e20)),  # type: ignore[misc]
        lambda q: q.snapshot(timeout=float("inf")),
        lambda q: penstock.streams.awaitAnyTermination("hello"),  # type: ignore[arg-type]
        lambda q: q.snapshot(timeout=0),
        lambda q: q.rescale(1, timeout="x"),
        lambda q: penstock.streams.get("no UUID"),
        lambda q: q.snapshot(format="zip"),
        lambda q: q.snapshot(alignment="x"),
        lambda q: q.snapshot(label="x" * 201),
        lambda q: q.rescale(0),
        lambda q: q.setCheckpoints(interval="soon"),
        lambda q: q.resume("chk-1", "x"),
        lambda q: q.stop(drain=True, snapshot=True),
    ]
    try:
        for number, call in enumerate(calls):
            error = refused(call, query)
            assert isinstance(error, ConfigError), repr(error)
            assert isinstance(error, ValueError), repr(error)
            kind = base.PySparkValueError if number < 8 else IllegalArgumentException
            assert isinstance(error, kind), repr(error)
            assert (error.getCondition() == "VALUE_NOT_POSITIVE") is (number < 8)
        of_wrong_types: list[Call] = [
            *(lambda q, one=one: q.rescale(one) for one in ("2", 2.5, None, True, [2])),  # type: ignore[misc]
            *(
                lambda q, name=name: q.snapshot(**{name: 3})
                for name in ("label", "alignment", "note", "format", "wait")
            ),  # type: ignore[misc]
            lambda q: q.snapshot(label=["a"]),
            lambda q: q.snapshot(label=b"a"),
            *(lambda q, name=name: q.setCheckpoints(**{name: 3}) for name in ("interval", "alignment")),  # type: ignore[misc]
            lambda q: q.suspend(3),
            lambda q: q.resume(3),
            lambda q: q.resume("chk-1", 3),
            lambda q: q.stop(drain="no"),
            lambda q: q.stop(snapshot=1),
        ]
        for call in of_wrong_types:
            error = refused(call, query)
            assert isinstance(error, ConfigError), repr(error)
            assert isinstance(error, base.PySparkTypeError), repr(error)
            assert error.getCondition() == "NOT_EXPECTED_TYPE"
        assert isinstance(refused(lambda q: q.suspend("x" * 201), query), ValueError)
        assert query.isActive
        assert query.view().restarts_begun == 0
    finally:
        query.stop()


def test_a_refusal_keeps_its_cause_and_where_it_was_raised() -> None:
    def refuse() -> None:
        raise NotSupported("why") from KeyError("because")

    with pytest.raises(AnalysisException, match=r"^why$") as caught, pysparks_refusals():
        refuse()
    assert repr(caught.value.__cause__) == "KeyError('because')"
    assert caught.traceback[-1].name == "refuse"
    with pytest.raises(FunctionError) as other, pysparks_refusals():
        raise FunctionError("map-0", "why")
    assert type(other.value) is FunctionError


KINDS = [
    one
    for one in vars(pyspark_errors).values()
    if isinstance(one, type) and issubclass(one, PenstockError) and one.__module__ == pyspark_errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_such_errors_survive_pickling_and_say_what_they_say(kind: Any) -> None:
    for arguments, text in ((("why",), "why"), (("why", "CONDITION", {"a": "1"}), "[CONDITION] why")):
        error = kind(*arguments)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), str(error)) == (kind, text, text)
        assert again.getCondition() == error.getCondition()
        assert again.getMessageParameters() == error.getMessageParameters()
        assert len(pickle.dumps(error)) < 300, "without all of Spark's messages"
        assert kind.__mro__[2].__name__ == name_of(error), "what the REST service calls it"
    assert name_of(KeyError()) == "KeyError"


def test_the_exception_tree_needs_no_pyspark() -> None:
    modules = "penstock.errors, penstock.config, penstock.snapshots.location, penstock.snapshots.commands.listing"
    program = f"import sys, {modules}; sys.exit(any(name.startswith('pyspark') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


class Failing:
    """A writer for ``foreach`` that raises in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    def open(self, partition_id: int, epoch_id: int) -> bool:
        return self._maybe("open")

    def process(self, row: object) -> None:
        self._maybe("process")

    def close(self, error: object) -> None:
        self._maybe("close")

    def _maybe(self, method: str) -> bool:
        if method == self.method:
            raise KeyError("boom")
        return True


def boom(*_: object) -> None:
    raise KeyError("boom")


FOREACH = "FOREACH_USER_FUNCTION_ERROR"
FOREACH_BATCH = "FOREACH_BATCH_USER_FUNCTION_ERROR"


@pytest.mark.parametrize(
    ("write", "condition"),
    [
        (lambda w: w.foreach(boom), FOREACH),
        (lambda w: w.foreach(Failing("open")), FOREACH),
        (lambda w: w.foreach(Failing("process")), FOREACH),
        (lambda w: w.foreach(Failing("close")), FOREACH),
        (lambda w: w.foreachBatch(boom), FOREACH_BATCH),
    ],
)
def test_functions_of_foreach_fail_with_spark_s_error_class(
    rate: DataFrame, tmp_path: Path, write: Call, condition: str
) -> None:
    writer: Any = write(penstock.writeStream(rate).option("checkpointLocation", str(tmp_path / "c")))
    options = {"parallelism": 1, "restart.strategy": "none", "sink.retryTimeout": "1ms", "checkpoint.interval": "100ms"}
    query = writer.options(**options).start()
    with pytest.raises(StreamingQueryException, match="boom") as caught:
        query.awaitTermination(60)
    error = query.exception()
    for one in (caught.value, error):
        assert one.getCondition() == "STREAM_FAILED"
        parameters = one.getMessageParameters()
        assert set(parameters) == {"id", "runId", "message"}
        assert (parameters["id"], parameters["runId"]) == (query.id, query.runId)
        assert f"[{condition}] An error occurred in the user provided function in foreach" in parameters["message"]
        assert str(one).startswith("[STREAM_FAILED] Query [id = ")
        assert str(one).endswith(parameters["message"])
    assert isinstance(error.__cause__, FunctionError if condition == FOREACH else SinkError)
    if condition == FOREACH:
        assert error.__cause__.operator == "sink-0 (foreach)"
