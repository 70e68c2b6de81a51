"""Common subexpressions: evaluated once, with the results of each by itself, and nothing taken for another."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import EvaluationError
from penstock.functions import BoundReference, Expression, Literal
from penstock.functions.core.base import Mask
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.strict import Strict
from penstock.functions.logic.comparison import Comparison
from penstock.functions.logic.logic import CaseWhen
from penstock.functions.numbers.arithmetic import Arithmetic, EvalMode, Remainder

LONG = pa.int64()
A, B = BoundReference(0, LONG), BoundReference(1, LONG)
ZERO = Literal(0, LONG)


class Watched(Strict):
    """Its argument; notes at how many rows it was asked for."""

    def __init__(self, child: Expression, asked: list[int]) -> None:
        super().__init__((child,), child.data_type)
        self.asked = asked

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        self.asked.append(len(arrays[0]) if rows is None else int(rows.sum()))
        return arrays[0]


def batch_of(a: list[int | None], b: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(a, LONG), pa.array(b, LONG)], names=["a", "b"])


def plus(left: Expression, right: Expression) -> Expression:
    return Arithmetic("+", left, right, EvalMode.ANSI)


def test_what_occurs_twice_is_evaluated_once_per_batch() -> None:
    asked: list[int] = []

    def part() -> Expression:
        return Watched(plus(A, B), asked)

    guarded = CaseWhen([(Comparison("<", part(), ZERO), part())], A, LONG)
    shared = SharedExpressions([plus(part(), Literal(1, LONG)), guarded])
    for first in (1, 5):
        assert shared.evaluate(batch_of([first], [2]))[0].to_pylist() == [first + 3]
    assert asked == [1, 1]


def test_a_part_that_was_wanted_at_some_rows_only_is_evaluated_again_where_more_are_wanted() -> None:
    asked: list[int] = []
    guarded = CaseWhen([(Comparison("<", A, ZERO), Watched(B, asked))], None, LONG)
    shared = SharedExpressions([guarded, Watched(B, asked)])
    assert [column.to_pylist() for column in shared.evaluate(batch_of([-1, 1], [7, 8]))] == [[7, None], [7, 8]]
    assert asked == [1, 2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Literal(0.0, pa.float64()), Literal(-0.0, pa.float64())),
        (Literal(1, pa.int64()), Literal(1, pa.int32())),
        (Literal(True, pa.bool_()), Literal(False, pa.bool_())),
    ],
    ids=str,
)
def test_different_constants_stay_different(one: Literal, other: Literal) -> None:
    class Same(Strict):
        def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
            return arrays[0]

    shared = SharedExpressions([Same([one], one.data_type), Same([other], other.data_type)])
    found = [repr(column[0].as_py()) for column in shared.evaluate(batch_of([1], [1]))]
    assert found == [repr(one.scalar.as_py()), repr(other.scalar.as_py())]
    assert [column.type for column in shared.evaluate(batch_of([1], [1]))] == [one.data_type, other.data_type]


def test_no_batch_is_kept() -> None:
    shared = SharedExpressions([plus(plus(A, B), plus(A, B))])
    with pytest.raises(EvaluationError):
        shared.evaluate(batch_of([2**61], [2**61]))
    for part in shared._shared:
        assert part._batch is part._mask is part._result is None


LEAVES = st.sampled_from([A, B, ZERO, Literal(3, LONG), Literal(-(2**63), LONG)])


def deeper(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(plus, parts, parts),
        st.builds(lambda a, b: Remainder(a, b, LONG, EvalMode.ANSI), parts, parts),
        st.builds(lambda a, b, c, d: CaseWhen([(Comparison("<", a, b), c)], d, LONG), parts, parts, parts, parts),
    )


VALUES = st.none() | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])


def outcome(evaluate: Callable[[], list[pa.Array]]) -> object:
    try:
        return [column.to_pylist() for column in evaluate()]
    except EvaluationError as error:
        return str(error)


@given(
    st.lists(st.recursive(LEAVES, deeper, max_leaves=12), min_size=1, max_size=3),
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5),
)
def test_results_and_errors_are_those_of_each_by_itself(
    expressions: list[Expression], rows: list[tuple[int | None, int | None]]
) -> None:
    batch = batch_of([a for a, _ in rows], [b for _, b in rows])
    alone = outcome(lambda: [expression.evaluate(batch) for expression in expressions])
    assert outcome(lambda: SharedExpressions(expressions).evaluate(batch)) == alone


def test_a_constant_may_be_a_time_that_python_has_no_value_for() -> None:
    kind = pa.timestamp("us", "UTC")

    def later(moment: int) -> Expression:
        return Comparison("<", BoundReference(0, kind), Literal(moment, kind))

    shared = SharedExpressions([later(2**62), later(2**62), later(2**62 + 1)])
    batch = pa.record_batch([pa.array([2**62, 0], kind)], names=["t"])
    assert [column.to_pylist() for column in shared.evaluate(batch)] == [[False, True], [False, True], [True, True]]
