"""Random streaming DataFrames: what they read, and the steps that they are made of.

A plan is data, so that it can be printed, kept and shrunk: ``Plan.build`` applies it to a stream and to a batch alike.
Expressions are drawn by type from lists of Spark SQL; none of them raises, for the session's ANSI mode is off here
(both modes are compared expression by expression in ``tests/integration/functions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

SCHEMA = "ts timestamp, k string, n int, l bigint, d double, m decimal(10,2), b boolean, s string"
TYPES = {"ts": "timestamp", "k": "string", "n": "int", "l": "bigint", "d": "double", "m": "decimal", "b": "boolean",
         "s": "string"}  # fmt: skip
DELAY = "30 seconds"
JITTER_S = 14.0
"""Rows are out of order by less than the delay: none is late, however files are read."""
START = datetime(2024, 3, 31, 0, 30, tzinfo=UTC)
"""Half an hour before Europe's clocks go forward."""

Columns = dict[str, str]
"""Type by name."""


@dataclass(frozen=True)
class Data:
    """The input: rows in the order in which they come, in several files.

    Attributes:
        keys: how many different ``k``; ``skew`` of the rows have the first one.
        holes: share of nulls in every column but ``ts``.
    """

    rows: int
    files: int
    keys: int
    skew: float
    holes: float
    seed: int

    def tables(self) -> list[pa.Table]:
        random = np.random.default_rng(self.seed)
        rows = self.rows
        seconds = np.arange(rows) * 1.7 + random.uniform(0, JITTER_S, rows)
        keys = np.where(random.random(rows) < self.skew, 0, random.integers(0, self.keys, rows))
        columns: dict[str, list[Any]] = {
            "ts": [START + timedelta(microseconds=int(second * 1e6)) for second in seconds],
            "k": [f"key{key}" for key in keys],
            "n": random.integers(-100, 100, rows).tolist(),
            "l": random.choice([0, 1, -1, 7, 10**6, -(10**12), 2**62], rows).tolist(),
            "d": random.choice([0.0, -0.0, float("nan"), 1.5, -2.25, 1e10, float("inf"), 1e-300], rows).tolist(),
            "m": [Decimal(int(value)) / 100 for value in random.integers(-(10**6), 10**6, rows)],
            "b": (random.random(rows) < 0.5).tolist(),
            "s": random.choice(["", "a", "Ab,c", "x=1&y=2", "ß straße", "😀 smile", "12", " 7 ", "2024-03-31"], rows)
            .astype(object)
            .tolist(),
        }
        for name in list(columns)[1:]:
            columns[name] = [
                None if hole else value
                for value, hole in zip(columns[name], random.random(rows) < self.holes, strict=True)
            ]
        table = pa.table(columns, schema=ARROW)
        edges = [rows * number // self.files for number in range(self.files + 1)]
        return [table.slice(first, end - first) for first, end in pairwise(edges)]


ARROW = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("n", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("s", pa.string()),
    ]
)

# -- expressions ------------------------------------------------------------------------------------------------------

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": (
        "{int} + 1",
        "{int} % 7",
        "length({string})",
        "hour({timestamp})",
        "case when {boolean} then {int} else 0 end",
        "coalesce({int}, -1)",
        "cast({decimal} as int)",
        "instr({string}, 'a')",
        "abs({int})",
        "dayofyear({timestamp})",
        "size(split({string}, '[,&]'))",
        "cast(get_json_object(to_json(struct({int} as a)), '$.a') as int)",
        "try_divide({int}, {int}) :: int",
        "element_at(array({int}, 5), 2)",
        "aggregate(array({int}, 1), 0, (sum, x) -> sum + coalesce(x, 0))",
        "datediff({timestamp}, '2024-01-01')",
    ),
    "bigint": (
        "{bigint} + {int}",
        "{bigint} div 3",
        "xxhash64({string}, {int})",
        "cast({int} as bigint) * {int}",
        "unix_micros({timestamp})",
        "if({boolean}, {bigint}, null)",
        "shiftright({bigint}, 3)",
        "hash({string}, {bigint})",
        "try_add({bigint}, {bigint})",
    ),
    "double": (
        "{double} * 2",
        "{double} / {int}",
        "cast({bigint} as double)",
        "nanvl({double}, 0)",
        "cast({string} as double)",
    ),
    "decimal": ("{decimal} + 1.25", "-{decimal}", "coalesce({decimal}, 0.00)", "greatest({decimal}, 1.00)"),
    "string": (
        "upper({string})",
        "substring({string}, 2, 3)",
        "concat({string}, '-', {int})",
        "cast({double} as string)",
        "cast({timestamp} as string)",
        "md5({string})",
        "trim({string})",
        "nullif({string}, '')",
        "cast({decimal} as string)",
        "split({string}, ',')[0]",
        "lpad({string}, 5, '*')",
        "case {int} when 1 then 'one' when 2 then 'two' end",
        "date_format({timestamp}, 'yyyy-MM-dd HH:mm EEE')",
        "regexp_replace({string}, '[aeiou]', '_')",
        "to_json(named_struct('n', {int}, 's', {string}))",
        "concat_ws('|', {string}, {string})",
        "array_join(transform(split({string}, ''), c -> upper(c)), '.')",
    ),
    "boolean": (
        "{int} > 3",
        "{string} like '%a%'",
        "{double} is null",
        "{boolean} and {int} < 0",
        "not {boolean}",
        "{string} in ('a', '12', null)",
        "{decimal} >= 0",
        "{bigint} <=> {bigint}",
        "isnan({double})",
        "{string} rlike '^[a-c]'",
    ),
    "timestamp": (
        "{timestamp} + interval 90 minutes",
        "date_trunc('hour', {timestamp})",
        "cast(cast({timestamp} as date) as timestamp)",
        "to_timestamp(date_format({timestamp}, 'yyyy-MM-dd HH'), 'yyyy-MM-dd HH')",
        "from_utc_timestamp({timestamp}, 'Europe/Berlin')",
    ),
}
AGGREGATES = (
    "count_if({boolean})", "bool_or({boolean})", "sum({int}) filter (where {boolean})",
    "sort_array(collect_list({int}))", "sort_array(collect_set({string}))", "bit_xor({bigint})",
    "approx_count_distinct({string})",
    "count(*)", "count({any})", "sum({int})", "sum({decimal})", "min({int})", "max({string})", "min({double})",
    "max({timestamp})", "avg({int})", "min({boolean})", "max({decimal})",
    "max_by(k, ts)", "min_by(k, ts)", "round(stddev({int}), 6)", "round(var_pop({int}), 6)",
    "round(corr({int}, {int}), 6)", "round(skewness({int}), 6)", "max(struct({int}, {string}))",
    "regr_count({int}, {int})", "percentile({int}, 0.25)", "mode({int}, true)", "sort_array(max_by(k, ts, 3))",
    "listagg({string}, ',') within group (order by {string})",
)  # fmt: skip
"""Moments depend on the order in which rows are added up, on either engine; times do not tie."""
DISTINCT = ("count(distinct {any})", "sum(distinct {int})", "count(distinct {string}, {int})", "avg(distinct {int})")
"""Over session windows, which are widened by each of them, one only."""


EXPLODED = (
    "explode(array({int}, {int}))",
    "explode_outer(filter(array({int}, 1), x -> x > 0))",
    "explode(sequence(0, 2))",
)
LOOKUPS = ("inner", "left_outer", "left_semi", "left_anti")
LOOKED_UP = """select * from values ('key0', 1, true), ('key0', -50, false), ('key1', 20, null), (null, 7, true),
 ('key39', null, false) as looked_up(looked_k, looked_n, looked_b)"""
JOINS = ("inner", "left_outer", "right_outer", "full_outer", "left_semi")


ENDINGS = ("nothing", "tumbling", "sliding", "session", "times", "chained", "deduplicate", "join")


def expression(columns: Columns, data_type: str, depth: int = 2) -> st.SearchStrategy[str]:
    """Spark SQL of this type over the columns."""
    here = [name for name, its in columns.items() if its == data_type]
    leaf = st.sampled_from(here) if here else st.just(f"cast(null as {_sql_type(data_type)})")
    if depth == 0:
        return leaf
    return st.one_of(
        leaf, st.sampled_from(EXPRESSIONS[data_type]).flatmap(lambda text: filled(columns, text, depth - 1))
    )


def filled(columns: Columns, text: str, depth: int) -> st.SearchStrategy[str]:
    """A template with an expression for every ``{type}`` in it; ``{any}`` is a column."""
    parts: list[st.SearchStrategy[str]] = []
    for piece in text.replace("{", "\0{").replace("}", "}\0").split("\0"):
        if piece == "{any}":
            parts.append(st.sampled_from(sorted(columns)))
        elif piece.startswith("{"):
            parts.append(expression(columns, piece[1:-1], depth).map(lambda inner: f"({inner})"))
        else:
            parts.append(st.just(piece))
    return st.tuples(*parts).map("".join)


def _sql_type(data_type: str) -> str:
    return "decimal(10,2)" if data_type == "decimal" else data_type


# -- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """``kind``: what happens; ``texts``: Spark SQL, by kind: the columns of ``select``, the condition of ``where``, the
    aggregates of ``group``, the type and condition of ``lookup``, a join with a static side; ``keys``: of ``group``,
    ``deduplicate`` and ``within``, which batches do not have."""

    kind: str
    texts: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def apply(self, df: DataFrame) -> DataFrame:
        if self.kind == "lookup":
            return df.join(df.sparkSession.sql(LOOKED_UP), _key(df, self.texts[1]), self.texts[0])
        if self.kind == "within":
            return df.dropDuplicatesWithinWatermark(list(self.keys))
        if self.kind == "where":
            return df.where(self.texts[0])
        if self.kind == "select":
            return df.selectExpr(*self.texts)
        if self.kind == "union":
            return df.where(self.texts[0]).unionByName(df.where(self.texts[1]))
        if self.kind == "join":
            return _joined(df, self.texts[0], self.keys)
        if self.kind == "deduplicate":
            return df.selectExpr(*self.keys).dropDuplicates()
        assert self.kind == "group"
        rows = df.groupBy(*(_key(df, text) for text in self.keys))
        return rows.agg(*(_named(df, text, number) for number, text in enumerate(self.texts)))


def _joined(df: DataFrame, how: str, keys: Sequence[str]) -> DataFrame:
    """Each row with those of equal keys from the quarter of a minute before it, of the same input."""
    columns = [f"{name} as other_{name}" for name in df.columns]
    equal = " and ".join(f"{key} = other_{key}" for key in keys)
    return df.join(df.selectExpr(*columns), _key(df, f"{equal} and {BEFORE}"), how)


BEFORE = "other_ts <= ts and other_ts >= ts - interval 15 seconds"


def _key(df: DataFrame, text: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

    return F.expr(text)


def _named(df: DataFrame, text: str, number: int) -> Any:
    return _key(df, text).alias(f"a{number}")


@dataclass(frozen=True)
class Plan:
    """Input, steps, and what happens to the query meanwhile.

    Attributes:
        parallelisms: of its runs, one after the other.
        alignment: of the snapshot that each run but the last one ends with, and of the periodic ones.
        kills: whether a slot is killed in each run.
    """

    data: Data
    steps: tuple[Step, ...]
    parallelisms: tuple[int, ...] = (2,)
    alignment: str = "auto"
    kills: bool = False
    backend: str = "memory"

    def build(self, df: DataFrame) -> DataFrame:
        rows = df.withWatermark("ts", DELAY)
        for step in self.steps:
            rows = step.apply(rows)
        return rows


@st.composite
def selects(draw: st.DrawFn, columns: Columns) -> tuple[Step, Columns]:
    """Keeps ``ts`` and ``k``, some of the others, and computes new ones."""
    kept = [name for name in columns if name in ("ts", "k") or draw(st.booleans())]
    made: Columns = {name: columns[name] for name in kept}
    texts = list(kept)
    for number in range(draw(st.integers(1, 3))):
        data_type = draw(st.sampled_from(sorted(EXPRESSIONS)))
        name = f"c{len(columns)}_{number}"
        texts.append(f"{draw(expression(columns, data_type))} as {name}")
        made[name] = data_type
    return Step("select", tuple(texts)), made


WINDOWS = {
    "tumbling": ("window(ts, '45 seconds')", "window(ts, '2 minutes')", "window(ts, '1 hour', '1 hour', '7 minutes')"),
    "sliding": (
        "window(ts, '45 seconds', '15 seconds')",
        "window(ts, '1 hour', '20 minutes')",
        "window(ts, '50 seconds', '15 seconds', '4 seconds')",
    ),
    "session": ("session_window(ts, '3 seconds')", "session_window(ts, '20 seconds')"),
    "times": ("ts",),
}
CHAINED = (
    "window(window_time(window), '4 minutes')",
    "window(window, '1 hour')",
    "window(window, '3 minutes', '1 minute')",
)


@st.composite
def endings(
    draw: st.DrawFn, columns: Columns, kinds: Sequence[str] = ENDINGS, distinct: bool = True
) -> tuple[Step, ...]:
    """Return steps with at most one stateful one, or two aggregations, and perhaps a filter behind it."""
    kind = draw(st.sampled_from(kinds))
    others = [name for name in columns if name != "ts" and columns[name] in ("string", "int", "boolean")]
    keys = tuple(draw(st.lists(st.sampled_from(others), min_size=1, max_size=2, unique=True)))
    if kind == "nothing":
        return ()
    if kind == "join":
        return (Step("join", (draw(st.sampled_from(JOINS)),), keys),)
    if kind == "deduplicate":
        return (Step("deduplicate", keys=("ts", *keys)),)
    if kind == "within":
        return (Step("within", keys=keys),)
    first = draw(groups(columns, keys, "tumbling" if kind == "chained" else kind, distinct))
    if kind == "chained":
        aggregates = ("count(*)", "count(a0)", "max(window.end)")[: draw(st.integers(1, 3))]
        return (first, Step("group", aggregates, (draw(st.sampled_from(CHAINED)),)))
    return (first, Step("where", ("a0 is not null",))) if draw(st.booleans()) else (first,)


@st.composite
def groups(draw: st.DrawFn, columns: Columns, keys: Sequence[str], kind: str, distinct: bool) -> Step:
    """An aggregation by a window of this kind, and by some of the keys; a session has one at least."""
    several = DISTINCT if kind != "session" else (draw(st.sampled_from(DISTINCT)),)
    templates = [*AGGREGATES, *(several if distinct else ())]
    chosen = [draw(st.sampled_from(templates)) for _ in range(draw(st.integers(1, 3)))]
    aggregates = tuple(draw(filled(columns, template, 1)) for template in chosen)
    many = draw(st.integers(1 if kind == "session" else 0, len(keys)))
    return Step("group", aggregates, (draw(st.sampled_from(WINDOWS[kind])), *keys[:many]))


@st.composite
def beginnings(draw: st.DrawFn, always: str = "") -> tuple[tuple[Step, ...], Columns]:
    """Up to two steps without state. ``always``: a condition of rows that no step drops."""
    columns, steps = dict(TYPES), []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(("select", "where", "union", "explode", "lookup")))
        if kind == "select":
            step, columns = draw(selects(columns))
            steps.append(step)
        elif kind == "explode":
            made = draw(filled(columns, draw(st.sampled_from(EXPLODED)), 1))
            steps.append(Step("select", (*columns, f"{made} as e{len(columns)}")))
            columns = {**columns, f"e{len(columns)}": "int"}
        elif kind == "lookup":
            if "looked_k" not in columns:
                how = "left_outer" if always else draw(st.sampled_from(LOOKUPS))
                steps.append(
                    Step("lookup", (how, draw(st.sampled_from(("k = looked_k", "k = looked_k and looked_n > 0")))))
                )
                joined = {"looked_k": "string", "looked_n": "int", "looked_b": "boolean"}
                columns = {**columns, **joined} if how in ("inner", "left_outer") else columns
        else:
            conditions = [draw(expression(columns, "boolean")) for _ in range(1 if kind == "where" else 2)]
            steps.append(Step(kind, tuple(f"({each}) or {always}" if always else each for each in conditions)))
    return tuple(steps), columns


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    data = Data(
        rows=draw(st.sampled_from((1, 60, 400, 1_500))),
        files=draw(st.sampled_from((2, 4, 7))),
        keys=draw(st.sampled_from((1, 3, 40))),
        skew=draw(st.sampled_from((0.0, 0.8))),
        holes=draw(st.sampled_from((0.0, 0.15))),
        seed=draw(st.integers(0, 1 << 16)),
    )
    steps, columns = draw(beginnings())
    return Plan(
        data,
        (*steps, *draw(endings(columns))),
        parallelisms=tuple(draw(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=3))),
        alignment=draw(st.sampled_from(("auto", "aligned", "unaligned"))),
        kills=draw(st.booleans()),
        backend=draw(st.sampled_from(("memory", "rocksdb"))),
    )


def kinds_of(plan: Plan) -> Sequence[str]:
    """Return the features of a plan, for the table."""
    steps = [step.kind if step.kind != "group" else f"group by {step.keys[0].partition('(')[0]}" for step in plan.steps]
    runs = ["runs: 1" if len(plan.parallelisms) == 1 else "runs: several, rescaled"]
    return [*steps, *runs, f"alignment {plan.alignment}", f"{'with' if plan.kills else 'without'} kills", plan.backend]
