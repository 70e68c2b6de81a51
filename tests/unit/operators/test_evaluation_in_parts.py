"""Rows that suddenly give far more: what several of them would give is made in parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.functions import BoundReference, Literal
from penstock.functions.collections import lists
from penstock.functions.collections.lists import Size
from penstock.functions.core import size_limits
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.strict import ScalarFunction, VectorFunction
from penstock.functions.text import strings
from penstock.operators.expand import ExpandSpec
from penstock.operators.filter import FilterSpec
from penstock.operators.generate import GenerateSpec
from penstock.operators.join.pairs import PairCondition, PairFilter
from penstock.operators.project import ProjectSpec
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.operators.python.udf_calls import UdfCall, UdfKind
from tests.support.operators.harness import opened

MANY = 100_000
N = BoundReference(0, pa.int64())
NUMBERS = pa.list_(pa.int64())
SEQUENCE = VectorFunction(partial(lists.sequence, 1, 1), (Literal(1, pa.int64()), N), NUMBERS)
ARRAY_REPEAT = VectorFunction(lists.repeat, (N, N), NUMBERS)
"""Spark's functions of these names; the size is not constant."""


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=["n"])


def elements(batches: Iterator[pa.RecordBatch]) -> list[int]:
    """Return the number of elements in the first column of each batch."""
    return [len(batch.column(0).flatten()) for batch in batches]


def project(expression: Expression) -> ProjectSpec:
    schema = pa.schema([("a", expression.data_type)])
    return ProjectSpec(operator_id="p", name="p", output_schema=schema, expressions=(expression,))


@pytest.mark.parametrize("expression", [SEQUENCE, ARRAY_REPEAT], ids=["sequence", "array_repeat"])
def test_several_rows_give_a_limited_number_of_elements_at_once(expression: Expression) -> None:
    given = [1, MANY, 2] * 20
    out = list(opened(project(expression)).process(rows(*given)))
    assert [len(a) for batch in out for a in batch.column(0)] == given
    sizes = elements(iter(out))
    assert max(sizes) <= size_limits.MAX_ELEMENTS_OF_DIVISIBLE_BATCH
    assert len(sizes) < len(given), "no more parts than it takes"


def test_one_row_may_give_more() -> None:
    most = size_limits.MAX_ELEMENTS_OF_DIVISIBLE_BATCH
    assert elements(opened(project(SEQUENCE)).process(rows(most + 1, 1, most + 2))) == [most + 1, 1, most + 2]


def test_what_a_guard_keeps_out_does_not_count() -> None:
    class Guarded(Expression):
        data_type, nullable = NUMBERS, True

        def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
            return SEQUENCE.evaluate(batch, np.asarray(batch.column(0)) < MANY)

    (out,) = opened(project(Guarded())).process(rows(1, *[MANY] * 100, 2))
    assert [a.as_py() for a in out.column(0)] == [[1], *[None] * 100, [1, 2]]


@pytest.mark.parametrize(
    ("function", "length"),
    [(strings.repeat, 2), (partial(strings.pad, True), 1), (partial(strings.pad, False), 1)],
    ids=["repeat", "lpad", "rpad"],
)
def test_texts_are_made_in_parts(function: object, length: int) -> None:
    padding = () if function is strings.repeat else (Literal(" ", pa.string()),)
    of = (Literal("ab", pa.string()), N, *padding)
    spec = project(ScalarFunction(function, of, pa.string()))  # type: ignore[arg-type]
    given = [3, *range(10 * MANY, 10 * MANY + 40), *[MANY] * 400]
    out = list(opened(spec).process(rows(*given)))
    assert [len(text.as_py()) for batch in out for text in batch.column(0)] == [length * number for number in given]
    assert max(batch.nbytes for batch in out) <= size_limits.MAX_BYTES_OF_DIVISIBLE_BATCH + 8 * len(given)
    assert len(out) > 1


def test_texts_are_counted_while_they_are_made() -> None:
    made: list[str] = []

    def long_text(number: int) -> str:
        made.append("x" * (1 << 20))
        return made[-1]

    with size_limits.apply_divisible_limits(), pytest.raises(size_limits.BatchTooLarge):
        ScalarFunction(long_text, (N,), pa.string()).evaluate(rows(*range(100)))
    assert len(made) == size_limits.MAX_BYTES_OF_DIVISIBLE_BATCH // (1 << 20) + 1


def test_equal_texts_count_in_every_row() -> None:
    space = ScalarFunction(strings.space, (N,), pa.string())
    out = list(opened(project(space)).process(rows(*[MANY] * 1_000)))
    assert sum(batch.num_rows for batch in out) == 1_000
    assert max(batch.nbytes for batch in out) <= size_limits.MAX_BYTES_OF_DIVISIBLE_BATCH + 8_000


class IsLarge(Expression):
    """Return True where the sequence is long. The sequence is made for it."""

    data_type, nullable = pa.bool_(), False

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        sizes = Size(SEQUENCE, False).evaluate(batch, mask)
        return pa.array(np.asarray(sizes) > 3)


def test_filters_expand_and_generators_work_in_parts() -> None:
    given = [1, MANY, 3] * 20
    schema = pa.schema([("n", pa.int64())])
    large = FilterSpec(operator_id="f", name="f", output_schema=schema, condition=IsLarge())
    out = list(opened(large).process(rows(*given)))
    assert [n for batch in out for n in batch.column(0).to_pylist()] == [MANY] * 20
    assert len(out) > 1
    two = pa.schema([("a", NUMBERS), ("n", pa.int64())])
    expand = ExpandSpec(operator_id="e", name="e", output_schema=two, projections=((SEQUENCE, N), (SEQUENCE, N)))
    assert sum(elements(opened(expand).process(rows(*given)))) == 2 * sum(given)
    generate = GenerateSpec(
        operator_id="g",
        name="g",
        output_schema=pa.schema([("n", pa.int64()), ("v", pa.int64())]),
        elements=SEQUENCE,
        passed=(0,),
        with_position=False,
        unpacked=False,
        outer=False,
    )
    made = pa.Table.from_batches(opened(generate).process(rows(*given)))
    assert np.array_equal(made.column("v").to_numpy(), np.concatenate([np.arange(1, n + 1) for n in given]))
    assert np.array_equal(made.column("n").to_numpy(), np.repeat(given, given))


def test_conditions_are_evaluated_by_parts() -> None:
    given = [1, MANY, 3] * 20
    [large] = SharedExpressions([IsLarge()]).evaluate_concatenated(rows(*given))
    assert large.to_pylist() == [n > 3 for n in given]
    condition = PairFilter(PairCondition((0,), (), Counted()))
    assert condition.matches(lambda _: pa.array(given), lambda _: pa.nulls(0), len(given)).all()
    assert max(Counted.rows) <= size_limits.MAX_ELEMENTS_OF_DIVISIBLE_BATCH // MANY


class Counted(Expression):
    """Make the sequence and note how many long ones a batch has."""

    data_type, nullable = pa.bool_(), False
    rows: ClassVar[list[int]] = []

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        made = SEQUENCE.evaluate(batch, mask)
        self.rows.append(sum(len(one) == MANY for one in made))
        return pa.array([True] * batch.num_rows)


def test_arguments_of_functions_are_evaluated_in_parts() -> None:
    seen: list[int] = []

    def length(arrays: pa.Array) -> pa.Array:
        seen.append(len(arrays.flatten()))
        return pc.list_value_length(arrays).cast(pa.int64())

    given = [1, MANY, 3] * 20
    call = UdfCall(UdfKind.ARROW, length, (SEQUENCE,), pa.int64(), '"long"', "length")
    schema = pa.schema([("n", pa.int64()), ("length", pa.int64())])
    spec = ScalarUdfSpec(operator_id="u", name="u", output_schema=schema, calls=(call,))
    out = list(opened(spec).process(rows(*given)))
    assert [n for batch in out for n in batch.column(1).to_pylist()] == given
    assert max(seen) <= size_limits.MAX_ELEMENTS_OF_DIVISIBLE_BATCH


def test_elsewhere_only_what_no_batch_can_hold_is_too_much() -> None:
    [whole] = SharedExpressions([SEQUENCE]).evaluate(rows(*[MANY] * 20))
    assert len(whole.flatten()) == 20 * MANY
    with pytest.raises(
        size_limits.BatchTooLarge, match=f"the arrays of one batch have {size_limits.MAX_COLUMN_SIZE + 1} elements"
    ):
        size_limits.require_elements(size_limits.MAX_COLUMN_SIZE + 1)
    with pytest.raises(
        size_limits.BatchTooLarge, match=f"the texts of one batch have {size_limits.MAX_COLUMN_SIZE + 1} bytes"
    ):
        size_limits.require_bytes(size_limits.MAX_COLUMN_SIZE + 1)
