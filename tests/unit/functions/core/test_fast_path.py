"""Quick paths give what the exact way gives, value by value, on plain values and on near misses of them."""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import EvaluationError
from penstock.functions.casts.fast_numbers import read_integers
from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult, column_fast_path, with_exact_rows, with_exact_values
from penstock.functions.core.vectors import map_distinct
from penstock.functions.core.zones import Zone
from penstock.functions.times.fast_parsing import layouts_of, read_by_pattern
from penstock.functions.times.parsing import parse_by_pattern
from penstock.functions.times.patterns import UnknownPattern
from tests.support.functions import fast_path_values as made
from tests.support.functions.fast_path_cases import CASES, Case

PATTERNS = int(os.environ.get("PENSTOCK_QUICK_PATTERNS", "400"))
"""Random patterns of times; more of them in a campaign."""


def outcome(case: Case, value: object) -> object:
    """Return the result of a value with -0.0 distinct from 0.0; an error stands for itself."""
    try:
        return repr(case.exact(value))
    except EvaluationError as error:
        return error


def sure_rows(answer: FastResult) -> Mask:
    return np.ones(len(answer.values), np.bool_) if answer.fallback is None else ~answer.fallback


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sure_values_are_exact(case: Case) -> None:
    values = case.values()
    answer = case.quick(pa.array(values, case.argument), None)
    assert answer is not None
    answer.values.validate(full=True)
    assert answer.values.type == case.result
    sure = sure_rows(answer)
    found = zip(values, map(repr, answer.values.to_pylist()), sure.tolist(), strict=True)
    wrong = [(value, ours) for value, ours, known in found if known and ours != outcome(case, value)]
    assert wrong[:5] == []
    assert sure.mean() >= case.sure


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_nulls_slices_and_masks(case: Case) -> None:
    values = [value for value in case.values()[:300] if not isinstance(outcome(case, value), EvaluationError)]
    column = pa.array([None, *values, None, *values], case.argument).slice(1, 2 * len(values) - 7)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    chosen = np.arange(len(column)) % 3 > 0

    def exact(arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return map_distinct(case.exact, arrays, case.result, rows)

    for part, rows in ((column, valid), (column, valid & chosen), (column.slice(3, 0), valid[:0]), (column[:9], None)):
        found, wanted = with_exact_rows(case.quick(part, rows), exact, [part], rows), exact([part], rows)
        strict = with_exact_values(
            column_fast_path(case.quick)(part, rows, case.result), case.exact, [part], case.result, rows
        )
        asked = np.ones(len(part), np.bool_) if rows is None else rows | ~valid[: len(part)]
        expected = wanted.filter(pa.array(asked)).to_pylist()
        assert found.filter(pa.array(asked)).to_pylist() == strict.filter(pa.array(asked)).to_pylist() == expected


def test_patterns_whose_fields_have_no_places() -> None:
    refused = (
        "yyyyMMddHHmmssSSS",
        "yyyy'0'MM",
        "yyyyS",
        "[yyyy][MM]",
        "yyyy[ G]",
        "yyyy-M-dd",
        "yyyy-MM-dd Z",
        "a",
        "",
    )
    assert [pattern for pattern in refused if layouts_of(pattern)] == []
    assert [layout.width for layout in layouts_of("yyyy[MM]")] == [4], "the year takes all digits"
    assert [layout.width for layout in layouts_of("HH:mm[:ss[.SSS]]")] == [12, 11, 10, 8, 5]


def test_random_patterns_read_as_the_exact_reader_does() -> None:
    chance = random.Random(5)
    zone = Zone("America/New_York")
    known = wrong = 0
    for pattern in made.patterns(6, PATTERNS):
        try:
            layouts = layouts_of(pattern)
        except UnknownPattern:
            continue
        values = []
        for layout in layouts[:6]:
            for _ in range(6):
                text = made.written_fields(chance, layout.width, layout.fields)
                for place, codes in layout.literals:
                    text[place] = chr(chance.choice(codes))
                values += ["".join(text), made.changed(chance, "".join(text)), "".join(text) + "5"]
        answer = read_by_pattern(pattern, zone, pa.array(values, pa.string()), None)
        if answer is None:
            continue
        for value, ours, sure in zip(values, answer.values.to_pylist(), sure_rows(answer).tolist(), strict=True):
            known += sure
            if sure and ours != parse_by_pattern(pattern, zone, value):
                wrong += 1
    assert wrong == 0
    assert known > 3 * PATTERNS


def test_the_first_error_is_the_one_that_is_raised() -> None:
    def refuse(text: str) -> object:
        raise EvaluationError(f"not {text}")

    quick = column_fast_path(read_integers, pa.int64())
    column = pa.array(["12", "x", "7", "y"])
    for rows, message in ((None, "not x"), (np.array([True, False, True, True]), "not y")):
        with pytest.raises(EvaluationError, match=message):
            with_exact_values(quick(column, rows, pa.int64()), refuse, [column], pa.int64(), rows)
    assert with_exact_values(quick(column, None, pa.int64()), len, [column], pa.int64(), None).to_pylist() == [
        12,
        1,
        7,
        1,
    ]


def test_texts_of_another_layout_take_the_exact_way() -> None:
    column = pa.array(["12", "7"], pa.large_string())
    answer = column_fast_path(read_integers, pa.int64())(column, None, pa.int64())
    assert answer is None
    assert with_exact_values(answer, len, [column], pa.int64(), None).to_pylist() == [2, 1]


def test_a_value_may_be_a_time_that_python_has_no_value_for() -> None:
    times = pa.array([2**62, None, 2**62], pa.timestamp("us", "UTC"))
    assert map_distinct(lambda value: value + 1, [times], pa.int64(), None).to_pylist() == [2**62 + 1, None, 2**62 + 1]
    assert map_distinct(lambda a, b: a - b, [times, times], pa.int64(), None).to_pylist() == [0, None, 0]


def test_structs_that_are_in_doubt_are_put_in_their_places() -> None:
    kind = pa.struct([("x", pa.int64())])
    quick = FastResult(pa.array([{"x": 1}, None, {"x": 0}, {"x": 0}], kind), np.array([False, False, True, True]))
    column = pa.array(["a", None, "bcd", "e"])
    rows = np.array([True, False, True, False])
    found = with_exact_values(quick, lambda text: {"x": len(text)}, [column], kind, rows)
    assert found.to_pylist()[:3] == [{"x": 1}, None, {"x": 3}]
