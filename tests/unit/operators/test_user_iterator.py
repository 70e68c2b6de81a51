"""UserIterator: one call per epoch, fed input by input."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from penstock.operators.python.user_iterator import UserIterator


def test_outputs_come_as_soon_as_the_function_yields_them() -> None:
    def twice(numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            yield number
            yield number * 10

    call = UserIterator(twice)
    assert list(call.feed(1)) == [1, 10]
    output = call.feed(2)
    assert next(output) == 2
    assert next(output) == 20
    assert list(output) == []
    assert list(call.finish()) == []


def test_an_accumulating_function_yields_at_its_end_once_per_epoch() -> None:
    calls = []

    def total(numbers: Iterator[int]) -> Iterator[int]:
        calls.append("start")
        yield sum(numbers)

    call = UserIterator(total)
    assert [list(call.feed(n)) for n in (1, 2, 3)] == [[], [], []]
    assert list(call.finish()) == [6]
    assert list(call.feed(5)) == []
    assert list(call.finish()) == [5]
    assert calls == ["start", "start"]


def test_an_epoch_without_input_makes_no_call() -> None:
    def noisy(numbers: Iterator[int]) -> Iterator[str]:
        yield from (str(number) for number in numbers)
        yield "end"

    call = UserIterator(noisy)
    assert list(call.finish()) == []
    assert list(call.feed(1)) == ["1"]
    assert list(call.finish()) == ["end"]
    assert list(call.finish()) == []


def test_a_function_that_stops_early_gets_no_more_until_the_next_epoch() -> None:
    def first(numbers: Iterator[int]) -> Iterator[int]:
        yield next(numbers)

    call = UserIterator(first)
    assert [list(call.feed(n)) for n in (1, 2, 3)] == [[1], [], []]
    assert list(call.finish()) == []
    assert list(call.feed(4)) == [4]


def test_a_function_that_reads_ahead_lags_behind() -> None:
    def pairs(numbers: Iterator[int]) -> Iterator[list[int]]:
        while group := list(islice(numbers, 2)):
            yield group

    call = UserIterator(pairs)
    assert [list(call.feed(n)) for n in range(1, 6)] == [[], [[1, 2]], [], [[3, 4]], []]
    assert list(call.finish()) == [[5]]


def test_outputs_left_behind_by_feed_come_at_the_end_of_the_epoch() -> None:
    def many(numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            yield from range(number)
        yield -1

    call = UserIterator(many)
    output = call.feed(3)
    assert next(output) == 0
    output.close()
    assert list(call.finish()) == [1, 2, -1]


def test_any_iterable_will_do_as_a_result() -> None:
    call = UserIterator(lambda numbers: [n + 1 for n in numbers])
    assert list(call.feed(1)) == []
    assert list(call.finish()) == [2]


@pytest.mark.parametrize("where", ["before input", "in the middle", "at the end"])
def test_exceptions_come_out_and_end_the_call(where: str) -> None:
    def failing(numbers: Iterator[int]) -> Iterator[int]:
        if where == "before input":
            raise KeyError(where)
        for number in numbers:
            if number == 2 and where == "in the middle":
                raise KeyError(where)
            yield number
        raise KeyError(where)

    call = UserIterator(failing)

    def drive() -> None:
        for number in (1, 2):
            list(call.feed(number))
        list(call.finish())

    with pytest.raises(KeyError, match=where):
        drive()
    assert list(call.feed(9)) == []
    assert list(call.finish()) == []


def test_a_result_that_is_no_iterable_is_a_type_error() -> None:
    call = UserIterator(lambda numbers: 5)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="not iterable"):
        list(call.feed(1))


def test_closing_runs_the_functions_finally() -> None:
    story = []

    def careful(numbers: Iterator[int]) -> Iterator[int]:
        try:
            yield from numbers
        finally:
            story.append("closed")

    call = UserIterator(careful)
    assert list(call.feed(1)) == [1]
    call.close()
    call.close()
    assert story == ["closed"]
