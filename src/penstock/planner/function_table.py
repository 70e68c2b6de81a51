"""``docs/functions.md``: the SQL functions of Spark that Penstock supports, found by compiling Spark's own examples.

``python -m penstock.planner.function_table`` prints it. Every example in the documentation of a function (``DESCRIBE
FUNCTION EXTENDED``) becomes a streaming DataFrame over a stream with the columns of the example's table. It is compiled
like a query, but without constant folding. A function is supported if one of its examples compiles; otherwise the table
has the first refusal.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.catalyst.jvm import java_class
from penstock.errors import PenstockError
from penstock.planner.compiler import compile_plan
from penstock.planner.conf import EXCLUDED_RULES

_FOLDING = (
    "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
    "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
)
_EXAMPLE = re.compile(r"^\s*>\s*(SELECT .*?);", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"\bFROM\s+(VALUES .*?)\s+(?:AS\s+)?(\w+)\s*\(([^()]*)\)", re.IGNORECASE | re.DOTALL)
_WINDOWED = re.compile(r"\bOVER\s*\(", re.IGNORECASE)
_BY_CHANCE = re.compile(r"#\d+L?|(?:Some)?\(-?\d{12,}\)+")
"""Column ids and seeds, which differ between sessions."""
_REASON = 160


@dataclass(frozen=True)
class Function:
    """A built-in function of Spark. ``refusal``: why none of its examples runs; empty if one does."""

    name: str
    refusal: str

    @property
    def line(self) -> str:
        """Return the row of the table."""
        why = self.refusal if len(self.refusal) <= _REASON else f"{self.refusal[: _REASON - 3]}..."
        return f"| `{_cell(self.name)}` | {'no' if self.refusal else 'yes'} | {_cell(why)} |"


def names(spark: SparkSession) -> list[str]:
    """Return the names of all built-in functions, sorted. Functions that a session has registered are left out."""
    found = java_class(spark, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry").builtin().listFunction()
    return sorted({str(found.apply(number).funcName()) for number in range(found.size())})


def tried(spark: SparkSession, chosen: Sequence[str]) -> Iterator[Function]:
    """Compile Spark's examples of these functions and yield the results.

    This changes settings and temporary views of the session.
    """
    catalog = spark._jsparkSession.sessionState().catalog()
    spark.conf.set(EXCLUDED_RULES, ",".join(_FOLDING))
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-functions-") as empty:
            for name in chosen:
                info = catalog.lookupFunctionInfo(
                    java_class(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")(name)
                )
                statements = _EXAMPLE.findall(str(info.getExamples())) or [
                    f"SELECT {name}('1')"
                ]  # the name of a type: test a cast
                yield Function(name, _refusal(spark, empty, statements))
    finally:
        spark.conf.unset(EXCLUDED_RULES)


def _refusal(spark: SparkSession, empty: str, statements: Sequence[str]) -> str:
    refusal = ""
    for statement in statements:
        if _WINDOWED.search(statement):
            refusal = refusal or "window functions over rows (`over`) are not run by Spark's streams either"
            continue
        try:
            df = _as_stream(spark, empty, statement)
        except (PySparkException, Py4JJavaError, ValueError):
            continue  # the example needs something that a stream does not have, such as a table by name
        message = _refusal_of(df)
        if not message:
            return ""
        refusal = refusal or message
    return refusal or "Spark's examples cannot be tried over a stream; see [expressions.md](expressions.md)"


def _as_stream(spark: SparkSession, empty: str, statement: str) -> DataFrame:
    """Return the example over a stream with its table's columns; without a table, over a stream with one column."""
    table = _TABLE.search(statement)
    if table is None:
        if re.search(r"\bFROM\b(?! (?:[^()]*\)))", statement):
            raise ValueError(statement)
        spark.readStream.schema("unused int").parquet(empty).createOrReplaceTempView("penstock_example")
        return spark.sql(f"{statement} FROM penstock_example")
    schema = spark.sql(f"SELECT * FROM {table[1]} AS {table[2]}({table[3]})").schema
    spark.readStream.schema(schema).parquet(empty).createOrReplaceTempView(table[2])
    return spark.sql(statement.replace(table[0], f"FROM {table[2]}"))


def _refusal_of(df: DataFrame) -> str:
    """Return why a DataFrame does not compile in any output mode; empty if it does in one."""
    message = ""
    for mode in ("append", "update", "complete"):
        try:
            compile_plan(df, mode)
            return ""
        except PenstockError as error:
            if not message or "Spark itself refuses" not in str(error):
                message = _BY_CHANCE.sub("", str(error).splitlines()[0])
    return message


def documentation(found: list[Function]) -> str:
    """Return the text of ``docs/functions.md``."""
    running = [function for function in found if not function.refusal]
    lines = [
        "# Functions",
        "",
        "Generated (`python -m penstock.planner.function_table`): every built-in function of Spark SQL, tried with",
        "the examples of Spark's own documentation; it runs if one of them does. What each expression takes:",
        "[expressions.md](expressions.md).",
        "",
        f"{len(running)} of {len(found)} run.",
        "",
        "| Function | Runs | Why not |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(function.line for function in found)]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        print(documentation(list(tried(session, names(session)))), end="")
    finally:
        session.stop()
