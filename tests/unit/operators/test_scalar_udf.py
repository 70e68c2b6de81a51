"""Scalar user functions: calls, chains, lagging iterators, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from penstock.errors import EvaluationError, FunctionError
from penstock.functions import BoundReference
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.operators.python.udf_calls import UdfCall, UdfKind
from penstock.operators.python.user_code import PythonSettings
from tests.support.operators.harness import opened, rows_of, run, slices

SCHEMA = pa.schema([("v", pa.int64())])
BATCH = pa.RecordBatch.from_pydict({"v": [1, 2, 3, 4, 5, 6, 7]}, schema=SCHEMA)


def call(kind: UdfKind, function: Callable[..., Any], *ordinals: int, names: tuple[str, ...] = ()) -> UdfCall:
    return UdfCall(
        kind=kind,
        function=function,
        arguments=tuple(BoundReference(ordinal, pa.int64()) for ordinal in ordinals),
        return_type=pa.int64(),
        spark_return_type_json=from_arrow_type(pa.int64()).json(),
        name="f",
        keyword_names=names,
    )


def spec(*calls: UdfCall) -> ScalarUdfSpec:
    fields = [pa.field(f"u{position}", item.return_type) for position, item in enumerate(calls)]
    return ScalarUdfSpec(operator_id="udf-1", name="Udf", output_schema=pa.schema([*SCHEMA, *fields]), calls=calls)


def each(function: Callable[[Any], Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def over(values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            yield function(value)

    return over


PLUS_ONE = [
    call(UdfKind.PYTHON, lambda v: v + 1, 0),
    call(UdfKind.ARROW_PYTHON, lambda v: v + 1, 0),
    call(UdfKind.PANDAS, lambda v: v + 1, 0),
    call(UdfKind.ARROW, lambda v: pc.add(v, 1), 0),
    call(UdfKind.PANDAS_ITERATOR, each(lambda v: v + 1), 0),
    call(UdfKind.ARROW_ITERATOR, each(lambda v: pc.add(v, 1)), 0),
]


@pytest.mark.parametrize("plus_one", PLUS_ONE, ids=lambda item: item.kind.value)
def test_every_kind_appends_its_column(plus_one: UdfCall) -> None:
    out = list(run(opened(spec(plus_one)), slices(BATCH, 3)))
    assert [(row["v"], row["u0"]) for row in rows_of(out)] == [(v, v + 1) for v in range(1, 8)]
    assert all(batch.schema == spec(plus_one).output_schema for batch in out)


@pytest.mark.parametrize("kind", UdfKind)
def test_functions_get_at_most_the_sessions_batch_rows(kind: UdfKind) -> None:
    sizes = []

    def sized(values: Any) -> Any:
        sizes.append(len(values))
        return values

    function = each(sized) if kind.is_iterator else sized
    if kind in (UdfKind.PYTHON, UdfKind.ARROW_PYTHON):
        function = lambda v: v  # noqa: E731 - called row by row
    limited = replace(spec(call(kind, function, 0)), settings=PythonSettings(batch_rows=3))
    assert [row["u0"] for row in rows_of(run(opened(limited), [BATCH, BATCH.slice(0, 0)]))] == [1, 2, 3, 4, 5, 6, 7]
    assert kind in (UdfKind.PYTHON, UdfKind.ARROW_PYTHON) or sizes[:3] == [3, 3, 1]


@pytest.mark.parametrize("first", PLUS_ONE, ids=lambda item: item.kind.value)
@pytest.mark.parametrize(
    "second",
    [
        call(UdfKind.PYTHON, lambda v, u: v * 100 + u, 0, 1),
        call(UdfKind.ARROW_ITERATOR, each(lambda pair: pc.add(pc.multiply(pair[0], 100), pair[1])), 0, 1),
    ],
    ids=lambda item: item.kind.value,
)
def test_a_call_may_use_the_column_of_an_earlier_one(first: UdfCall, second: UdfCall) -> None:
    out = rows_of(run(opened(spec(first, second)), slices(BATCH, 2)))
    assert [row["u1"] for row in out] == [v * 100 + v + 1 for v in range(1, 8)]


def collecting(values: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Yields nothing before its end, then everything at once."""
    yield pd.concat(list(values)) * 2


def row_by_row(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Reads everything, then yields one row at a time."""
    for item in [item for value in values for item in value.to_pylist()]:
        yield pa.array([item * 2])


def rechunking(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Yields in chunks of two, whatever it is given."""
    held: list[int] = []
    for value in values:
        held += value.to_pylist()
        while len(held) > 2:
            yield pa.array([held.pop(0) * 2, held.pop(0) * 2])
    yield pa.array([item * 2 for item in held], pa.int64())


@pytest.mark.parametrize(
    "lagging",
    [
        call(UdfKind.PANDAS_ITERATOR, collecting, 0),
        call(UdfKind.ARROW_ITERATOR, rechunking, 0),
        call(UdfKind.ARROW_ITERATOR, row_by_row, 0),
    ],
    ids=["collecting", "rechunking", "row by row"],
)
def test_rows_wait_for_a_lagging_iterator_until_the_epoch_ends(lagging: UdfCall) -> None:
    operator = opened(spec(lagging, call(UdfKind.PYTHON, lambda u: u + 1, 1)))
    for _ in range(2):
        out = rows_of(run(operator, slices(BATCH, 3)))
        assert [(row["v"], row["u0"], row["u1"]) for row in out] == [(v, 2 * v, 2 * v + 1) for v in range(1, 8)]


def test_an_operator_lags_while_an_iterator_owes_results() -> None:
    prompt = opened(spec(call(UdfKind.ARROW_ITERATOR, each(lambda v: v), 0)))
    list(prompt.process(BATCH))
    assert not prompt.may_hold_rows()
    lagging = opened(spec(call(UdfKind.PYTHON, lambda v: v, 0), call(UdfKind.PANDAS_ITERATOR, collecting, 0)))
    list(lagging.process(BATCH))
    assert lagging.may_hold_rows()
    list(lagging.finish_epoch())
    assert not lagging.may_hold_rows()


def test_arguments_by_name_and_none_at_all() -> None:
    by_name = call(UdfKind.PYTHON, lambda a, *, b: a - 10 * b, 0, 0, names=("b",))
    constant = call(UdfKind.ARROW_PYTHON, lambda: 7)
    out = rows_of(run(opened(spec(by_name, constant)), [BATCH]))
    assert [(row["u0"], row["u1"]) for row in out] == [(-9 * v, 7) for v in range(1, 8)]


def boom(value: Any) -> Any:
    raise LookupError("no such thing")


def leave(value: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (call(UdfKind.PYTHON, leave, 0), "SystemExit: 3"),
        (call(UdfKind.ARROW_ITERATOR, leave, 0), "SystemExit: 3"),
        (call(UdfKind.PYTHON, boom, 0), "LookupError: no such thing"),
        (call(UdfKind.PANDAS, boom, 0), "LookupError: no such thing"),
        (call(UdfKind.ARROW_ITERATOR, boom, 0), "LookupError: no such thing"),
        (call(UdfKind.PYTHON, lambda v: next(iter(())), 0), "StopIteration"),
        (call(UdfKind.PANDAS, lambda v: 5, 0), "TypeError: the function must return pandas.Series, not int"),
        (call(UdfKind.ARROW, lambda v: [1], 0), "TypeError: the function must return pyarrow.Array, not list"),
        (call(UdfKind.PANDAS, lambda v: v[:2], 0), "ValueError: the function returned 2 rows for 7"),
        (call(UdfKind.ARROW_ITERATOR, each(lambda v: v.slice(1)), 0), "1 rows short"),
        (call(UdfKind.ARROW_ITERATOR, each(lambda v: pa.concat_arrays([v, v])), 0), "more rows than it was given"),
        (call(UdfKind.ARROW_PYTHON, lambda v: "text", 0), "ArrowInvalid"),
    ],
)
def test_errors_name_the_operator_and_the_function(failing: UdfCall, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        list(run(opened(spec(failing)), [BATCH]))
    assert message in caught.value.message
    assert caught.value.operator == "udf-1 (Udf: f)"
    assert "Traceback" in caught.value.user_traceback


def test_close_ends_iterators_in_progress() -> None:
    story: list[str] = []

    def careful(values: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from values
        finally:
            story.append("closed")

    operator = opened(spec(call(UdfKind.ARROW_ITERATOR, careful, 0)))
    list(operator.process(BATCH))
    operator.close()
    assert story == ["closed"]


@pytest.mark.parametrize("kind", [UdfKind.PYTHON, UdfKind.ARROW_PYTHON, UdfKind.PANDAS])
def test_a_time_that_python_has_no_value_for_is_refused_by_the_arguments_name(kind: UdfKind) -> None:
    times = pa.array([0, 2**62], pa.timestamp("us", "UTC"))
    made = replace(
        call(kind, lambda v, t: v, 0, 0), arguments=(BoundReference(0, pa.int64()), BoundReference(1, times.type))
    )
    schema = pa.schema([("v", pa.int64()), ("t", times.type), ("u", pa.int64())])
    operator = opened(ScalarUdfSpec(operator_id="udf-1", name="Udf", output_schema=schema, calls=(made,)))
    with pytest.raises(EvaluationError, match="argument _1 holds a date or time that cannot be handed to a Python"):
        list(operator.process(pa.record_batch([pa.array([1, 2]), times], ["v", "t"])))
