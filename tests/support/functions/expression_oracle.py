"""Spark's own answer to an expression, row by row, and the comparison with ours.

A case is SQL text over the columns of one of the edge-value relations. Which rows raise is asked of Catalyst's
interpreter (``Expression.eval``), one row at a time; the values of all other rows come from one generated-code job for
all cases of a relation, in which the raising rows are hidden behind ``case when``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.base import PySparkException

from penstock.catalyst.trees import arrow_type, children, elements, expr_id, kind
from penstock.errors import EvaluationError
from penstock.functions import Expression, SessionConf
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.plan import translate
from penstock.functions.plan_registry import entry_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONDITION = re.compile(r"\[([A-Z_]+)(?:\.[A-Z_]+)*\]")


EVALUATE_ROWS = """
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < rows.length; i++) {
        if (i > 0) out.append('\\0');
        try {
            expression.eval(rows[i]);
        } catch (Throwable error) {
            out.append(error.toString().replace('\\0', ' '));
            expression = (org.apache.spark.sql.catalyst.expressions.Expression) expression.clone();  // keeps half a map
        }
    }
    return out.toString();
"""

MAX_SHOWN = 4
"""Differing rows shown per case."""


@dataclass
class Compiled:
    """One case: its optimised Catalyst expression, ours, and the condition that each raising row raises."""

    sql: str
    tree: Any
    ours: Expression
    raising: dict[int, str] = field(default_factory=dict)


class Relation:
    """A parquet file of edge values: never folded away by the optimizer, read in order by one task."""

    def __init__(self, spark: SparkSession, frame: DataFrame, path: str) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(path)
        self.spark = spark
        self.frame = spark.read.parquet(path)
        self.batch = normalized(self.frame.toArrow())
        execution = self.frame._jdf.queryExecution()
        catalyst = spark._jvm.org.apache.spark.sql.catalyst.expressions
        self.attributes = catalyst.package.AttributeSeq(execution.analyzed().output())
        self.bind = catalyst.BindReferences.bindReference
        self.evaluator = row_evaluator(spark)
        self.arguments = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 2)
        self.arguments[1] = execution.executedPlan().executeCollect()
        self.classes: set[str] = set()

    def compile(self, texts: Sequence[str], conf: SessionConf) -> list[Compiled]:
        """Optimise the cases as Spark does, translate them, and ship them as a slot would get them."""
        if len(texts) > 1 and any("window(" in text for text in texts):  # Spark takes one per query
            return [self.compile([text], conf)[0] for text in texts]
        analyzed = self.frame.selectExpr(*(f"{text} as r" for text in texts))._jdf.queryExecution().analyzed()
        plan = self.spark._jsparkSession.sessionState().optimizer().execute(analyzed)
        trees = elements(plan.expressions())
        assert kind(plan) == "Project", plan.toString()
        assert len(trees) == len(texts)
        attributes = elements(self.frame._jdf.queryExecution().analyzed().output())
        ordinals = {expr_id(attribute): i for i, attribute in enumerate(attributes)}
        cases = []
        for text, tree in zip(texts, trees, strict=True):
            self.classes |= classes_of(tree)
            ours = cloudpickle.loads(cloudpickle.dumps(translate(tree, ordinals, conf)))
            assert ours.data_type == arrow_type(tree), text
            cases.append(Compiled(text, tree, ours))
        return cases

    def answers(self, cases: Sequence[Compiled], raising: bool) -> list[pa.Array]:
        """Spark's values, null at raising rows. ``raising``: there are some, as a rule; a job that fails is dear."""
        if not raising:
            with suppress(Py4JJavaError, PySparkException):
                return self._values(cases)
        for case in cases:
            case.raising = self._raising(case)
        return self._values(cases)

    def _values(self, cases: Sequence[Compiled]) -> list[pa.Array]:
        if len(cases) > 1 and any("window(" in case.sql for case in cases):  # Spark takes one per query
            return [self._values([case])[0] for case in cases]
        columns = []
        for i, case in enumerate(cases):
            rows = ",".join(map(str, case.raising))
            guarded = f"case when id in ({rows}) then null else {case.sql} end" if rows else case.sql
            columns.append(f"{guarded} as r{i}")
        table = normalized(self.frame.selectExpr(*columns).toArrow())
        return [table.column(i) for i in range(len(cases))]

    def _raising(self, case: Compiled) -> dict[int, str]:
        self.arguments[0] = self.bind(case.tree.child(), self.attributes, False)
        outcomes = str(self.evaluator.evaluate(self.arguments)).split("\0")
        return {i: condition(outcome) for i, outcome in enumerate(outcomes) if outcome}


def row_evaluator(spark: SparkSession) -> Any:
    """Java code that evaluates an expression on each row and returns what it throws, if anything, per row."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    find = jvm.java.lang.Class.forName
    names, types = gateway.new_array(jvm.java.lang.String, 2), gateway.new_array(jvm.java.lang.Class, 2)
    names[0], names[1] = "expression", "rows"
    types[0] = find("org.apache.spark.sql.catalyst.expressions.Expression")
    types[1] = find("[Lorg.apache.spark.sql.catalyst.InternalRow;")
    evaluator = jvm.org.codehaus.janino.ScriptEvaluator()
    evaluator.setReturnType(find("java.lang.String"))
    evaluator.setParameters(names, types)
    evaluator.cook(EVALUATE_ROWS)
    return evaluator


def condition(message: str) -> str:
    """The error condition's name; ``JAVA`` where Spark lets a bare Java exception through."""
    match = _CONDITION.search(message)
    return match[1] if match else "JAVA"


def classes_of(tree: Any) -> set[str]:
    """The registry's names of all classes in an expression."""
    return {entry_name(tree)}.union(*(classes_of(child) for child in children(tree)))


def normalized(table: pa.Table) -> pa.RecordBatch:
    """One batch with Penstock's column types (Spark hands timestamps over in the session time zone)."""
    columns = [column.combine_chunks() for column in table.columns]
    columns = [c if c.type == _utc(c.type) else c.cast(_utc(c.type)) for c in columns]
    return pa.RecordBatch.from_arrays(columns, names=[f"{i}" for i in range(len(columns))])


def _utc(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(f.name, _utc(f.type), f.nullable) for f in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_field.with_type(_utc(data_type.key_type)),
                       data_type.item_field.with_type(_utc(data_type.item_type)))  # fmt: skip
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_utc(data_type.value_type)))
    return data_type


def check(relation: Relation, cases: Sequence[Compiled], raising: bool = False) -> list[str]:
    """Compare every case on every row; one line per difference. ``raising``: see ``Relation.answers``."""
    differences = []
    for case, expected in zip(cases, relation.answers(cases, raising), strict=True):
        differences += [f"{case.sql}: {line}" for line in _differences(relation, case, expected)]
    return differences


def _differences(relation: Relation, case: Compiled, expected: pa.Array) -> list[str]:
    batch = relation.batch
    lines = []
    columns = [name for name in relation.frame.columns if re.search(rf"\b{name}\b", case.sql)]
    shown = pa.table({name: batch.column(relation.frame.columns.index(name)) for name in columns})
    mask = np.ones(batch.num_rows, np.bool_)
    mask[list(case.raising)] = False
    try:
        # As operators evaluate it, and as if a guard had left out the rows that raise.
        ours = SharedExpressions([case.ours] * 2).evaluate(batch)[1] if mask.all() else case.ours.evaluate(batch, mask)
    except EvaluationError as error:
        return [f"raised {error}"]
    if len(ours) != batch.num_rows or ours.type != case.ours.data_type:
        return [f"gave {len(ours)} rows of {ours.type}"]
    expected_bits, our_bits = bits(expected), bits(ours)
    if mask.all():
        lines += _slice_differences(case.ours, batch, our_bits)
    for i in range(batch.num_rows):
        if i in case.raising:
            raised = _raised(case.ours, batch.slice(i, 1))
            if raised != case.raising[i] and (raised is None or case.raising[i] != "JAVA"):
                lines.append(f"{bits_of_row(shown, i)}: Spark raises {case.raising[i]}, ours {raised}")
        elif expected_bits[i] != our_bits[i]:
            lines.append(f"{bits_of_row(shown, i)}: Spark gives {expected_bits[i]!r}, ours {our_bits[i]!r}")
    lines = lines if len(lines) <= MAX_SHOWN else [*lines[:MAX_SHOWN], f"... and {len(lines) - MAX_SHOWN} more rows"]
    if not case.ours.nullable and pc.filter(ours, pa.array(mask)).null_count:
        lines.append("is declared not nullable and gave null")
    return lines


def _slice_differences(ours: Expression, batch: pa.RecordBatch, whole: list[Any]) -> list[str]:
    """A few rows out of the middle of a batch, and none, give what the whole gives."""
    slices = [(batch.num_rows // 3, 5), (batch.num_rows // 2, 0)]
    found = [bits(ours.evaluate(batch.slice(begin, rows))) for begin, rows in slices]
    wrong = [each for each, (begin, rows) in zip(found, slices, strict=True) if each != whole[begin : begin + rows]]
    return [f"a slice gives {wrong}"] if wrong else []


def bits_of_row(table: pa.Table, row: int) -> dict[str, Any]:
    """A row's values for a message; dates and timestamps as their numbers, which may be out of Python's range."""
    return {name: bits(table.column(name).slice(row, 1).combine_chunks())[0] for name in table.column_names}


def _raised(ours: Expression, row: pa.RecordBatch) -> str | None:
    try:
        ours.evaluate(row)
    except EvaluationError as error:
        return condition(str(error))
    return None


def bits(array: pa.Array) -> list[Any]:
    """Values that are equal only if bit-equal: NaN equals NaN, and -0.0 does not equal 0.0."""
    data_type = array.type
    if pa.types.is_floating(data_type):
        return [None if v is None else repr(v) for v in array.to_pylist()]
    if pa.types.is_struct(data_type):
        columns = [bits(pc.struct_field(array, [i])) for i in range(data_type.num_fields)]
        rows = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        values, offsets = bits(array.values), array.offsets.to_pylist()
        slices = [values[start:end] for start, end in itertools.pairwise(offsets)]
        return [row if valid else None for row, valid in zip(slices, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        return array.view(pa.int64()).to_pylist()
    return array.view(pa.int32()).to_pylist() if pa.types.is_date32(data_type) else array.to_pylist()
