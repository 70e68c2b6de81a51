"""Rows that a guard excludes never reach an expression; nor does anything outside the caller's own mask."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import DataError, EvaluationError
from penstock.functions import BoundReference, Expression, Literal, Mask
from penstock.functions.casts.cast_numbers import NumericCast
from penstock.functions.casts.to_text import BinaryToText
from penstock.functions.logic.comparison import Comparison, InList
from penstock.functions.logic.logic import And, CaseWhen, Coalesce, Not, Or
from penstock.functions.numbers.arithmetic import Arithmetic, Divide, EvalMode, IntegralDivide

X = BoundReference(0, pa.int64())
Y = BoundReference(1, pa.int64())


class Recorder(Expression):
    """True everywhere; remembers the rows it was asked about."""

    data_type = pa.bool_()
    nullable = False

    def __init__(self) -> None:
        self.rows: list[int] = []

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        self.rows = list(range(batch.num_rows)) if mask is None else np.flatnonzero(mask).tolist()
        return pa.repeat(pa.scalar(True), batch.num_rows)


def batch(x: list[int | None], y: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(x, pa.int64()), "y": pa.array(y, pa.int64())})


def is_zero(expression: Expression) -> Expression:
    return Comparison("=", expression, Literal(0, pa.int64()))


def test_case_when_guards_a_division() -> None:
    rows = batch([10, 20, None, 7], [0, 5, 0, None])
    guarded = CaseWhen(
        [(Not((is_zero(Y),), pa.bool_()), IntegralDivide(X, Y, pa.int64(), EvalMode.ANSI))], None, pa.int64()
    )
    assert guarded.evaluate(rows).to_pylist() == [None, 4, None, None]
    with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
        IntegralDivide(X, Y, pa.int64(), EvalMode.ANSI).evaluate(rows)


def test_nested_guards_intersect() -> None:
    rows = batch([2**62, 2**62, 1, 1], [0, 1, 0, 1])
    doubled = Comparison(">", Arithmetic("+", X, X, EvalMode.ANSI), Literal(0, pa.int64()))
    small = Comparison("<", X, Literal(100, pa.int64()))
    recorder = Recorder()
    nested = And(Not((is_zero(Y),), pa.bool_()), And(small, And(doubled, recorder)))
    assert nested.evaluate(rows).to_pylist() == [False, False, False, True]
    assert recorder.rows == [3]


def test_callers_mask_reaches_every_level() -> None:
    rows = batch([1, 2, 3], [0, 0, 3])
    quotient = Comparison(">", IntegralDivide(X, Y, pa.int64(), EvalMode.ANSI), Literal(0, pa.int64()))
    for guarded in (quotient, And(quotient, quotient), Or(quotient, quotient), Coalesce([quotient, quotient])):
        result = guarded.evaluate(rows, np.array([False, False, True]))
        assert len(result) == 3
        assert result[2].as_py() is True


def test_or_and_coalesce_ask_only_for_open_rows() -> None:
    rows = batch([0, None, 5], [1, 1, 1])
    right = Recorder()
    assert Or(is_zero(X), right).evaluate(rows).to_pylist() == [True, True, True]
    assert right.rows == [1, 2]
    fallback = Recorder()
    assert Coalesce([is_zero(X), fallback]).evaluate(rows).to_pylist() == [True, True, False]
    assert fallback.rows == [1]


def test_null_arguments_hide_later_ones() -> None:
    rows = batch([None, 1], [2**40, 1])
    narrow = NumericCast(Y, pa.int32(), EvalMode.ANSI)
    total = Arithmetic("+", NumericCast(X, pa.int32(), EvalMode.ANSI), narrow, EvalMode.ANSI)
    assert total.evaluate(rows).to_pylist() == [None, 2]
    with pytest.raises(EvaluationError, match="CAST_OVERFLOW"):
        narrow.evaluate(rows)


def test_in_stops_at_the_first_match() -> None:
    rows = batch([1, 5], [1, 0])
    quotient = IntegralDivide(X, Y, pa.int64(), EvalMode.ANSI)
    assert InList(X, [Y, Y]).evaluate(rows).to_pylist() == [True, False]
    with pytest.raises(EvaluationError):
        InList(X, [Y, quotient]).evaluate(rows)
    assert InList(X, [Y, quotient]).evaluate(rows.slice(0, 1)).to_pylist() == [True]


def test_sliced_batches_with_offsets() -> None:
    rows = batch([1, None, 3, 4, None, 6], [1, 2, None, 2, 0, 0]).slice(2, 3)
    ratio = Divide(NumericCast(X, pa.float64(), EvalMode.ANSI), NumericCast(Y, pa.float64(), EvalMode.ANSI),
                   pa.float64(), EvalMode.LEGACY)  # fmt: skip
    assert ratio.evaluate(rows).to_pylist() == [None, 2.0, None]
    assert Arithmetic("*", X, Y, EvalMode.ANSI).evaluate(rows).to_pylist() == [None, 8, None]


def test_empty_batches() -> None:
    rows = batch([], [])
    for expression in (Arithmetic("+", X, Y, EvalMode.ANSI), And(is_zero(X), is_zero(Y)), Coalesce([X, Y])):
        assert len(expression.evaluate(rows)) == 0


def test_bytes_that_are_no_text_end_the_query_only_where_they_are_selected() -> None:
    rows = pa.record_batch({"x": pa.array([b"a", b"\xff\xfe", None, "é".encode()], pa.binary())})
    text = BinaryToText((BoundReference(0, pa.binary()),), pa.string())
    with pytest.raises(DataError, match=r"x'fffe' of 2 bytes is not UTF-8.*mapInArrow"):
        text.evaluate(rows)
    chosen = np.array([True, False, True, True])
    assert text.evaluate(rows, chosen).filter(pa.array(chosen)).to_pylist() == ["a", None, "é"]
