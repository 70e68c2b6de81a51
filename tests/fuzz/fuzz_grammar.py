"""Random DataFrames as Python and Spark SQL text, drawn from all that Spark's analyser takes.

A plan is a text, so that it can be printed and kept: ``eval`` makes a DataFrame of it, over streams or over batches
(``fuzz_plans``). The grammar knows no types: what is drawn is shown to the analyser, and drawn anew where that refuses
it. Functions come from ``SHOW FUNCTIONS``; their examples, with columns in place of literals, are drawn, too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from tests.fuzz.fuzz_vocabulary import AGGREGATES, FORMS, HOWS, LITERALS, OPERATORS, OVER, STEPS, TEXTS, TYPES

_SKIPPED = {
    "java_method", "reflect", "try_reflect", "python_worker_logs", "sql_keywords", "collations", "raise_error", "range",
    "lpad", "rpad", "repeat", "space", "sequence", "array_repeat", "randstr",
}  # fmt: skip
"""Those that see the machine, and those whose results are as long as an argument says."""
_TRIES = 5
_EXAMPLE = re.compile(r"> SELECT (.+);$", re.MULTILINE)
_LITERAL = re.compile(r"'[^']*'|\b\d+(?:\.\d+)?\b|\bcol\d?\b|\bexpr\d?\b")


class Grammar:
    """Draws texts, by seed. ``evaluate``: the DataFrame that a text stands for."""

    def __init__(self, spark: SparkSession, evaluate: Callable[[str], DataFrame]) -> None:
        self._evaluate = evaluate
        self._spark = spark
        names = [row[0] for row in spark.sql("show system functions").collect()]
        self._functions = [name for name in names if name[0].isalpha() and name not in _SKIPPED]
        self._examples: dict[str, list[str]] = {}
        self._random = random.Random(0)

    def plan(self, seed: int) -> str:
        """The same text for a seed, as long as Spark's functions stay what they are."""
        self._random = random.Random(seed)
        if self._one_in(4):
            return self._query()
        text = self._pick(("s", "s", "s", "s.withWatermark('ts', '30 seconds')", "odd", "s.select('ts', 'k', 'n')"))
        for _ in range(self._random.choice((1, 1, 2, 2, 3, 4))):
            text = self._with_step(text)
        return text

    def _query(self) -> str:
        columns = self._evaluate("s").columns
        drawn = "spark.table('s')"
        for _ in range(_TRIES):
            drawn = f"spark.sql({self._filled_text(self._pick(TEXTS), columns)!r})"
            if self._analysed(lambda text=drawn: self._evaluate(text)) is not None:
                break
        return drawn

    def _with_step(self, before: str) -> str:
        """The plan with one more node on top; as it is where none was found that Spark takes."""
        df = self._analysed(lambda: self._evaluate(before))
        if df is None:
            return before
        for _ in range(_TRIES):
            step = self._pick(STEPS).replace("{{", "{").replace("}}", "}")
            drawn = re.sub(r"\{(\w+)\}", lambda m: self._part(m[1], before, df), step)
            if self._analysed(lambda text=drawn: self._evaluate(text)) is not None:
                return drawn
        return before

    def _part(self, name: str, before: str, df: DataFrame) -> str:
        if name == "df":
            return before
        if name == "c":
            return repr(self._pick(_columns(df) or ["k"]))
        if name == "how":
            return repr(self._pick(HOWS))
        if name == "D":
            return self._pick(("s", "t", "b", "t.withWatermark('ts', '1 minute')"))
        if name == "X":
            return ", ".join(repr(self._of(df)) for _ in range(self._random.choice((1, 2, 3))))
        if name == "E":
            return repr(self._of(df))
        if name == "G":
            return f"F.expr({self._of(df, 1)!r})"
        return f"F.expr({self._aggregate(df)!r}).alias('a{self._random.randrange(999)}')"

    def _of(self, df: DataFrame, depth: int = 3) -> str:
        """An expression that the analyser takes over these columns, if one is found soon."""
        for _ in range(_TRIES):
            drawn = self._expression(_columns(df), self._random.randint(0, depth))
            if self._analysed(lambda text=drawn: df.selectExpr(text)) is not None:
                return drawn
        return _column(self._pick(_columns(df))) if _columns(df) else "1"

    def _aggregate(self, df: DataFrame) -> str:
        for _ in range(_TRIES):
            drawn = self._aggregated(_columns(df))
            if self._analysed(lambda text=drawn: df.groupBy().agg(expr(text))) is not None:
                return drawn
        return "count(*)"

    def _aggregated(self, columns: Sequence[str]) -> str:
        if self._one_in(2):
            return self._call(columns, 1)
        return self._filled(self._pick(AGGREGATES), columns, 1)

    def _filled_text(self, text: str, columns: Sequence[str]) -> str:
        parts = {
            "e": lambda: self._expression(columns, self._random.randint(0, 2)),
            "a": lambda: self._aggregated(columns),
            "v": lambda: self._pick(("s", "s", "s", "t", "timed")),
        }
        drawn_view = parts["v"]()
        return re.sub(r"\{([eav])\}", lambda m: drawn_view if m[1] == "v" else parts[m[1]](), text)

    def _expression(self, columns: Sequence[str], depth: int) -> str:
        if depth <= 0 or not columns:
            literal = not columns or self._one_in(5)
            return self._pick(LITERALS) if literal else _column(self._pick(columns))
        drawn = self._random.random()
        if drawn < 0.45:
            return self._call(columns, depth)
        if drawn < 0.55:
            return self._example(columns)
        if drawn < 0.7:
            one, other = self._expression(columns, depth - 1), self._expression(columns, depth - 1)
            return f"({one} {self._pick(OPERATORS)} {other})"
        return self._filled(self._pick(OVER if drawn > 0.98 else FORMS), columns, depth - 1)

    def _call(self, columns: Sequence[str], depth: int) -> str:
        arity = self._random.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 4))
        arguments = ", ".join(self._expression(columns, depth - 1) for _ in range(arity))
        return f"{self._pick(self._functions)}({arguments})"

    def _example(self, columns: Sequence[str]) -> str:
        examples = self._examples_of(self._pick(self._functions))
        if not examples:
            return self._call(columns, 1)
        text = re.split(r"\bFROM\b", self._pick(examples))[0].strip()
        if not columns:
            return text

        def exchanged(found: re.Match[str]) -> str:
            return _column(self._pick(columns)) if found[0][0] in "ce" or self._one_in(4) else found[0]

        return _LITERAL.sub(exchanged, text)

    def _examples_of(self, name: str) -> list[str]:
        if name not in self._examples:
            rows = self._spark.sql(f"describe function extended `{name}`").collect()
            self._examples[name] = [found for row in rows for found in _EXAMPLE.findall(row[0])]
        return self._examples[name]

    def _filled(self, form: str, columns: Sequence[str], depth: int) -> str:
        drawn = re.sub(r"\{\}", lambda _: self._expression(columns, depth), form)
        return drawn.replace("{type}", self._pick(TYPES))

    def _analysed(self, build: Callable[[], DataFrame]) -> DataFrame | None:
        try:
            return build()
        except Exception:  # noqa: BLE001 - Spark's analyser has failures of every kind, too
            return None

    def _pick(self, choices: Sequence[str]) -> str:
        return self._random.choice(choices)

    def _one_in(self, many: int) -> bool:
        return self._random.randrange(many) == 0


def _columns(df: DataFrame) -> list[str]:
    """PySpark itself knows some types not."""
    return [str(name) for name in df._jdf.columns()]


def _column(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
