"""Random DataFrames against the compiler: ``python -m tests.fuzz.fuzz_plans N [--seed S]``, `make fuzz-plans`.

Whatever Spark's analyser takes is compiled or refused by an error of Penstock's tree; what is compiled runs over a few
rows to their end, and then has the batch's result, or ends in an error of the tree where the batch has one. Everything
else is a finding, printed with its plan; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import penstock
from penstock.api.sinks import SinkKind, SinkRequest, choose_sink
from penstock.api.sinks_files import FILE_FORMATS
from penstock.errors import FunctionError, PenstockError
from penstock.model.job_graph import JobGraph
from penstock.planner.compiler import CompiledPlan, compile_plan
from penstock.planner.static_join import read_static_sides
from penstock.queries.plan_text import explain_graph
from tests.fuzz.fuzz_grammar import Grammar
from tests.fuzz.fuzz_vocabulary import SCHEMA
from tests.integration.planner.test_equals_spark import multiset
from tests.integration.planner.test_graph_shape import SINK
from tests.support.planner.tree_runner import TreeRunner

register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

MODES = ("append", "update", "complete")
FUNCTION_SINKS = (SinkKind.FOREACH, SinkKind.FOREACH_BATCH)
ROWS = 24
SLICE_ROWS = 7
ODD = "ts timestamp, k string, n int, v variant, ym interval year to month, dtime interval day to second, tm time"
UNDECIDED = re.compile(
    r"limit|\b(?:first|last|any_value|nth_value)(?:_value)?\(|collect_|array_agg|max_by|min_by|dropDuplicates|sample|offset"
    r"|approx|penstock\.|applyIn|transformWithState|\b(?:mode|listagg|string_agg)\((?!.*within group)"
)
"""Where one of these is in a plan, Spark has a choice among results (or another one in batches), and only the end of
the run is looked at."""
SETS = ("rollup", "cube", "grouping sets")
"""Of these sets those without the event time yield nothing in append mode."""


# -- what plans are made of -------------------------------------------------------------------------------------------


def make_rows() -> pa.Table:
    random = np.random.default_rng(11)
    start = datetime(2024, 3, 31, 0, 30, tzinfo=UTC)
    kinds: dict[str, list[Any]] = {
        "k": ["a", "b", "", "ß"],
        "n": [0, 1, -1, 3, 2**31 - 1, -(2**31)],
        "l": [0, 1, -7, 10**6, 2**63 - 1, -(2**63)],
        "y": [0, 1, -128, 127],
        "d": [0.0, -0.0, float("nan"), 1.5, -2.5, float("inf"), 1e10],
        "f": [0.0, 1.5, float("nan"), -3.0],
        "m": [Decimal("0.00"), Decimal("1.25"), Decimal("-99999999.99")],
        "b": [True, False],
        "s": ["", "abc", " 12 ", "2024-03-31", "x=1&y=2", "😀ß", "a%b_c", "1.5e3", "true"],
        "dt": [date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1)],
        "tn": [datetime(2024, 3, 31, 2, 30), datetime(1960, 1, 1, 0, 0, 0, 5)],
        "bin": [b"", b"a\xff", b"abc"],
        "a": [[], [1, 2, None], [3], None],
        "sa": [["a", None], [], ["b", "a", "b"]],
        "st": [{"x": 1, "y": "a"}, {"x": None, "y": None}, None],
        "mp": [{}, {"a": 1}, {"b": None, "c": 2}],
        "js": ['{"a":1,"b":["x"]}', "[1,2]", "{", "null", '{"a":{"b":1.5}}'],
        "aa": [[[1], []], [None], []],
        "big": [Decimal("0E-10"), Decimal("1.0000000001"), Decimal("9" * 28 + "." + "9" * 10)],
    }
    columns: dict[str, Any] = {
        "ts": [start + timedelta(seconds=17 * i + int(random.integers(0, 9))) for i in range(ROWS)]
    }
    for name, values in kinds.items():
        picked = [values[int(i)] for i in random.integers(0, len(values), ROWS)]
        columns[name] = [None if hole else value for value, hole in zip(picked, random.random(ROWS) < 0.1, strict=True)]
        if name == "mp":
            columns[name] = [value and list(value.items()) for value in columns[name]]
    return pa.table(columns, schema=ARROW)


ARROW = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("n", pa.int32()), ("l", pa.int64()),
        ("y", pa.int8()),
        ("d", pa.float64()), ("f", pa.float32()), ("m", pa.decimal128(10, 2)), ("b", pa.bool_()), ("s", pa.string()),
        ("dt", pa.date32()), ("tn", pa.timestamp("us")), ("bin", pa.binary()), ("a", pa.list_(pa.int32())),
        ("sa", pa.list_(pa.string())), ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("mp", pa.map_(pa.string(), pa.int32())), ("js", pa.string()), ("aa", pa.list_(pa.list_(pa.int32()))),
        ("big", pa.decimal128(38, 10)),
    ]
)  # fmt: skip


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def broken(batches: Iterator[Any]) -> Iterator[Any]:
    raise KeyError("broken")


def frame(*arguments: Any) -> Any:
    return arguments[-1]


def stateful(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    yield from frames


class Counting(StatefulProcessor):
    """Counts the rows of each key."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "c bigint")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[pd.DataFrame]:  # noqa: N802 - PySpark's name
        count = sum(len(each) for each in rows) + (self._count.get()[0] if self._count.exists() else 0)
        self._count.update((count,))
        yield pd.DataFrame({"k": [str(key[0])], "c": [count]})

    def close(self) -> None: ...


class Inputs:
    """Folders of two streams with the same rows. ``names``: what a plan's text may speak of; of streams, and of batches
    in their place, as the expected result needs them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        spark.conf.set("spark.sql.timeType.enabled", "true")
        self.spark = spark
        self.folder = folder
        self._shown: dict[str, DataFrame] = {}
        for name in ("s", "t", "odd"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("s", "t"):
            pq.write_table(make_rows(), folder / name / "rows.parquet")
        self._register_functions()
        self.names = {streaming: self._names(streaming) for streaming in (True, False)}

    def _names(self, streaming: bool) -> dict[str, Any]:
        read: Any = self.spark.readStream if streaming else self.spark.read
        s, t = (read.schema(SCHEMA).parquet(str(self.folder / name)) for name in ("s", "t"))
        found = {"s": s, "t": t, "odd": read.schema(ODD).parquet(str(self.folder / "odd"))}
        found["timed"] = s.withWatermark("ts", "1 minute")
        found["b"] = (
            self.spark.read.schema(SCHEMA).parquet(str(self.folder / "s")).where("n < 3").select("k", "n", "st", "a")
        )
        found["b"].createOrReplaceTempView("b")
        made: dict[str, Any] = {
            "same": same,
            "broken": broken,
            "frame": frame,
            "stateful": stateful,
            "Counting": Counting,
        }
        functions = {
            "plus": F.pandas_udf(_plus, "int"),
            "row_udf": F.udf(lambda value: str(value)),
            "F": F,
            "penstock": penstock,
        }
        return {**found, **made, **functions, "spark": self.spark}

    def evaluate(self, plan: str, streaming: bool = True) -> DataFrame:
        """The DataFrame that a text stands for."""
        names = self.names[streaming]
        for name in ("s", "t", "odd", "timed"):
            if self._shown.get(name) is not names[name]:
                names[name].createOrReplaceTempView(name)
                self._shown[name] = names[name]
        df: DataFrame = eval(plan, {**names})
        return df

    def _register_functions(self) -> None:
        register = self.spark.udf.register
        register("up", F.udf(lambda text: text and str(text).upper()))
        register("plus", F.pandas_udf(_plus, "int"))
        register("pickled", F.udf(lambda one, other: f"{one}/{other}", useArrow=False))
        register("named", F.udf(lambda m, n: f"{m}/{n}"))
        register("agg_udf", F.pandas_udf(_total, "double"))
        self.spark.udtf.register("two", F.udtf(_Two, returnType="i int"))


def _plus(values: pd.Series) -> pd.Series:
    return values + 1


def _total(values: pd.Series) -> float:
    return float(values.sum())


class _Two:
    def eval(self, n: int) -> Iterator[tuple[int]]:
        yield (1,)
        yield (2,)


# -- one plan ---------------------------------------------------------------------------------------------------------


class Finding(AssertionError):
    """Fault of a plan: it does something that it must not."""


def judge(inputs: Inputs, plan: str) -> str:
    """One word for what became of the plan: it was never a DataFrame, was refused, ran, equals the batch.

    Raises:
        Finding: it ended in a way that users must never see.
    """
    try:
        stream = inputs.evaluate(plan)
    except Exception as error:
        if _from_penstock(error) and not isinstance(error, (PenstockError, PySparkException)):
            raise Finding("while it was built") from error
        return "never a DataFrame"
    if not stream.isStreaming:
        return "a batch"
    expected = cache(partial(_batch, inputs, plan))
    outcomes = []
    for mode in MODES:
        try:
            graph = _compiled(stream, mode)
        except PenstockError as error:
            _check_message(error, mode)
            if "mode" not in str(error):  # nor would it be run in another one
                break
            continue
        except Exception as error:
            raise Finding(f"compiled in {mode} mode") from error
        outcomes.append(_run(inputs, plan, mode, graph, expected))
    return outcomes[0] if outcomes else "refused"


def _compiled(stream: DataFrame, mode: str) -> JobGraph:
    compiled = compile_plan(stream, mode)
    graph = compiled.graph([SINK], 1, 16)
    explain_graph(graph, extended=True)
    read_static_sides(graph, 1 << 20)
    _choose_sinks(stream, compiled, mode)
    return graph


def _batch(inputs: Inputs, plan: str) -> Counter[Any] | Exception:
    """Spark's result, or what it fails with."""
    try:
        batch = inputs.evaluate(plan, streaming=False)
        if not batch.columns:  # Arrow would forget how many rows there are
            return Counter({(): batch.count()})
        return multiset(batch.toDF(*(f"c{n}" for n in range(len(batch.columns)))).toArrow())
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error


def _check_message(error: PenstockError, mode: str) -> None:
    if isinstance(error, FunctionError):
        return
    if not str(error).strip() or "Py4J" in str(error) or "Traceback" in str(error):
        raise Finding(f"refused in {mode} mode, but how") from error


def _choose_sinks(stream: DataFrame, compiled: CompiledPlan, mode: str) -> None:
    functions = [SinkRequest("", mode, "q", {}, (), kind, _any_call) for kind in FUNCTION_SINKS]
    formats = [SinkRequest(name, mode, "q", {"path": "/nowhere"}) for name in FILE_FORMATS]
    for request in (*functions, *formats, *(SinkRequest(name, mode, "q", {}) for name in ("memory", "console"))):
        try:
            choose_sink(stream, request, compiled.schema)
        except PenstockError:
            continue
        except Exception as error:
            raise Finding(f"sink {request.kind} {request.format} in {mode} mode") from error


def _any_call(*_: Any) -> None: ...


def _run(inputs: Inputs, plan: str, mode: str, graph: JobGraph, batch: Callable[[], Counter[Any] | Exception]) -> str:
    found: Counter[Any] | None = None
    problem: Exception | None = None
    try:
        found = _streamed(inputs, graph, mode)
    except PenstockError as error:
        _check_message(error, mode)
        problem = error
    except Exception as error:
        raise Finding(f"run in {mode} mode") from error
    by_sets = mode == "append" and any(sets in plan for sets in SETS)
    if UNDECIDED.search(plan) or by_sets or _is_late_by_chance(graph):
        return "ran" if problem is None else "ended in an error"
    expected = batch()
    if isinstance(expected, pa.ArrowException):  # PySpark cannot hand every batch over
        return "ran" if problem is None else "ended in an error"
    if isinstance(expected, Exception):
        if problem is None:
            raise Finding(f"ran in {mode} mode, where the batch raises") from expected
        return "fails as the batch does"
    if problem is not None:
        raise Finding(f"fails in {mode} mode, where the batch does not") from problem
    assert found is not None
    if found != expected:
        raise Finding(f"{mode} mode: too many {_some(found - expected)}; missing {_some(expected - found)}")
    return "equals the batch"


def _is_late_by_chance(graph: JobGraph) -> bool:
    """Return True if only one side of a join has a watermark: the number of late rows of the other side then depends on
    the order in which the sides are read."""
    inputs = [graph.inputs(vertex.id) for vertex in graph.vertices]
    return any(len({edge.timed for edge in edges}) > 1 for edges in inputs)


def _streamed(inputs: Inputs, graph: JobGraph, mode: str) -> Counter[Any]:
    """All rows as one epoch, and in append mode the end of event time."""
    runner = TreeRunner(graph)
    try:
        table = make_rows()
        for number, vertex in enumerate(runner.sources):
            spec = graph.vertex(vertex).source
            assert spec is not None
            source = spec.source
            if str(inputs.folder / "odd") in source.describe():
                continue
            read = table.select(source.schema.names).cast(source.schema).combine_chunks()
            for batch in read.to_batches(max_chunksize=SLICE_ROWS):
                runner.feed(number, batch)
        runner.finish_epoch()
        if mode == "append":
            runner.drain()
        return multiset(pa.Table.from_batches(runner.output)) if runner.output else Counter()
    finally:
        runner.close()


def _from_penstock(error: BaseException) -> bool:
    package = str(Path(penstock.__file__).parent)
    return any(entry.filename.startswith(package) for entry in traceback.extract_tb(error.__traceback__))


def _some(rows: Counter[Any]) -> list[Any]:
    return list(rows.items())[:3]


# -- many plans -------------------------------------------------------------------------------------------------------


def fuzz(inputs: Inputs, seeds: range) -> tuple[Counter[str], list[tuple[int, str, Finding]]]:
    """Run random plans and return the numbers by result, and the findings."""
    grammar = Grammar(inputs.spark, inputs.evaluate)
    outcomes: Counter[str] = Counter()
    findings = []
    for seed in seeds:
        inputs.spark.conf.set("spark.sql.ansi.enabled", str(seed % 2 == 0).lower())
        plan = grammar.plan(seed)
        try:
            outcomes[judge(inputs, plan)] += 1
        except Finding as finding:
            findings.append((seed, plan, finding))
            outcomes["FINDING"] += 1
    return outcomes, findings


def told(seed: int, plan: str, finding: Finding) -> str:
    cause = finding.__cause__
    lines = [f"seed {seed}, ansi {seed % 2 == 0}: {finding}", f"  {plan}"]
    if cause is not None:
        where = [entry for entry in traceback.extract_tb(cause.__traceback__) if "/penstock/" in entry.filename][-1:]
        lines.append(f"  {type(cause).__name__}: {str(cause)[:400]}")
        lines += [f"  at {entry.filename}:{entry.lineno}" for entry in where]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # these print what the analyser refuses
        PySparkLogger.getLogger(name).disabled = True
    spark = penstock.session()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    code = 0
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
            inputs = Inputs(spark, Path(folder))
            total: Counter[str] = Counter()
            began = time.monotonic()
            for first in itertools.count(asked.seed, 50):
                outcomes, findings = fuzz(inputs, range(first, min(first + 50, asked.seed + asked.count)))
                total += outcomes
                for finding in findings:
                    code = 1
                    print(told(*finding), flush=True)
                print(f"{total.total()} plans, {time.monotonic() - began:.0f} s: {dict(total)}", flush=True)
                if total.total() >= asked.count:
                    break
    finally:
        spark.stop()
    sys.exit(code)


if __name__ == "__main__":
    main()
