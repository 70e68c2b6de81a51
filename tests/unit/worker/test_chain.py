"""The operator chain: order of rows, watermarks and the end of an epoch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.operators.base import Operator, OperatorState
from penstock.worker.chain import Chain, Stage

Event = tuple[str, object]


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], names=["v"])


class Noting(Operator):
    """Writes down what it sees; fires ``due`` batches per watermark; yields ``last`` at the end of an epoch."""

    def __init__(self, name: str, story: list[Event], due: int = 0, last: int | None = None) -> None:
        self.name, self.story, self.due, self.last = name, story, due, last
        self.largest: int | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.story.append((self.name, batch.column(0).to_pylist()))
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self.story.append((self.name, f"watermark {watermark_us}"))
        for number in range(self.due):
            yield batch(-number)

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        if self.last is not None:
            yield batch(self.last)

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={"due": self.due} if self.due else {})

    def counters(self) -> dict[str, int]:
        return {"seen": 1}


class Generating(Noting):
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.advance_generated(max(batch.column(0).to_pylist()))
        yield from super().process(batch)

    def emitted_watermark(self) -> int | None:
        return self.largest

    def advance_generated(self, watermark_us: int) -> None:
        self.largest = watermark_us if self.largest is None else max(self.largest, watermark_us)


class Lagging(Noting):
    """Yields a batch when the next one comes, and the last one at the end of the epoch."""

    def __init__(self, name: str, story: list[Event]) -> None:
        super().__init__(name, story)
        self.kept: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.kept.append(batch)
        if len(self.kept) > 1:
            yield self.kept.pop(0)

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        while self.kept:
            yield self.kept.pop(0)

    def may_hold_rows(self) -> bool:
        return bool(self.kept)


def chain_of(*operators: Operator) -> tuple[Chain, list[Event]]:
    out: list[Event] = []
    stages = [Stage(f"op{i}", operator) for i, operator in enumerate(operators)]
    chain = Chain(
        stages, lambda b: out.append(("out", b.column(0).to_pylist())), lambda w: out.append(("out", f"watermark {w}"))
    )
    return chain, out


def drain(chain: Chain) -> None:
    while chain.advancing:
        chain.advance()


def test_what_an_operator_yields_is_out_before_it_is_asked_for_more() -> None:
    story: list[Event] = []
    chain, out = chain_of(Noting("a", story), Noting("b", story))
    chain.process(batch(1, 2))
    assert story == [("a", [1, 2]), ("b", [1]), ("b", [2])]
    assert out == [("out", [1]), ("out", [2])]
    assert not chain.advancing


def test_a_watermark_goes_on_only_after_the_last_batch_that_it_made_due() -> None:
    story: list[Event] = []
    chain, out = chain_of(Noting("a", story, due=2), Noting("b", story))
    chain.watermark(7)
    steps = 0
    while chain.advancing:
        chain.advance()
        steps += 1
        if ("b", "watermark 7") in story:
            assert ("b", [-1]) in story
    assert story == [("a", "watermark 7"), ("b", [0]), ("b", [-1]), ("b", "watermark 7")]
    assert out == [("out", [0]), ("out", [-1]), ("out", "watermark 7")]
    assert steps > 4, "it can be suspended after every batch"
    chain.watermark(6)
    assert not chain.advancing, "a watermark only rises"


def test_a_generated_watermark_replaces_what_comes_from_before() -> None:
    story: list[Event] = []
    generating = Generating("g", story)
    chain, out = chain_of(Noting("a", story), generating, Noting("b", story))
    chain.watermark(3)
    drain(chain)
    assert out[-1] == ("out", "watermark 3"), "nothing was generated yet"
    chain.process(batch(10, 12))
    assert chain.advancing
    drain(chain)
    assert out[-1] == ("out", "watermark 12")
    assert chain.generated_watermark() == 12
    chain.watermark(50)
    drain(chain)
    assert out[-1] == ("out", "watermark 12")
    assert ("g", "watermark 50") in story
    assert ("b", "watermark 50") not in story
    chain.advance_generated(99)
    drain(chain)
    assert out[-1] == ("out", "watermark 99")


def test_a_restored_generator_sends_its_watermark_again() -> None:
    generating = Generating("g", [])
    generating.advance_generated(5)
    chain, out = chain_of(generating, Noting("b", []))
    drain(chain)
    assert out == [("out", "watermark 5")]


def test_the_epoch_ends_operator_by_operator_while_a_watermark_task_stays_open() -> None:
    story: list[Event] = []
    chain, out = chain_of(Noting("a", story, due=2, last=100), Noting("b", story, last=200))
    chain.watermark(7)
    chain.advance()
    chain.advance()
    assert out == [("out", [0])]
    chain.finish_epoch()
    assert out[1:] == [("out", [100]), ("out", [200])]
    drain(chain)
    assert out[3:] == [("out", [-1]), ("out", "watermark 7")]


def test_a_watermark_stays_behind_the_rows_that_a_lagging_operator_keeps() -> None:
    chain, out = chain_of(Generating("g", []), Lagging("l", []), Noting("b", []))
    for value in (10, 20):
        chain.process(batch(value))
        drain(chain)
    chain.advance_generated(30)
    drain(chain)
    assert out == [("out", [10])], "row 20 would be late behind any of these watermarks"
    chain.finish_epoch()
    drain(chain)
    assert out == [("out", [10]), ("out", [20]), ("out", "watermark 30")]


def test_states_are_kept_by_operator_id_and_counters_are_summed() -> None:
    chain, _ = chain_of(Noting("a", [], due=3), Noting("b", []))
    assert chain.snapshot() == {"op0": OperatorState(scalars={"due": 3})}
    assert chain.counters() == {"seen": 2}


def test_an_empty_chain_hands_everything_through() -> None:
    chain, out = chain_of()
    chain.process(batch(1))
    chain.watermark(2)
    drain(chain)
    assert out == [("out", [1]), ("out", "watermark 2")]


class Ringing(Noting):
    """Has three batches to yield when its clock says so, two of them empty."""

    at: float | None = None

    def wake_at_ms(self) -> float | None:
        return self.at

    def on_processing_time(self) -> Iterator[pa.RecordBatch]:
        self.at = None
        for number in range(3):
            self.story.append((self.name, f"rings {number}"))
            yield batch(number) if number % 2 else batch()


def test_work_by_the_clock_is_done_in_steps_and_pauses_pass_nothing_on() -> None:
    story: list[Event] = []
    ringing = Ringing("a", story)
    chain, out = chain_of(ringing, Noting("b", story))
    assert (chain.wake_at_ms(), chain.begin_timed(1e15)) == (None, False)
    ringing.at = 50.0
    assert chain.wake_at_ms() == 50.0
    assert not chain.begin_timed(49.0)
    assert not chain.advancing
    assert chain.begin_timed(50.0)
    assert not chain.begin_timed(50.0), "one after the other"
    chain.watermark(9)
    drain(chain)
    expected = [("a", "rings 0"), ("a", "rings 1"), ("b", [1]), ("a", "rings 2"), ("a", "watermark 9")]
    assert story[: len(expected)] == expected
    assert out == [("out", [1]), ("out", "watermark 9")]


def test_nothing_rings_before_a_watermark_that_is_due_or_once_the_clock_has_stopped() -> None:
    ringing = Ringing("a", [])
    chain, _ = chain_of(ringing)
    ringing.at = 0.0
    chain.watermark(1)
    assert not chain.begin_timed(10.0)
    drain(chain)
    assert chain.wake_at_ms() == 0.0
    chain.stop_clock()
    assert (chain.wake_at_ms(), chain.begin_timed(10.0)) == (None, False)


class Bitwise(Noting):
    """Takes a row per call of ``collect``, with a pause behind each."""

    def __init__(self, name: str, story: list[Event]) -> None:
        super().__init__(name, story)
        self.waiting: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.waiting += [batch.slice(row, 1) for row in range(batch.num_rows)]
        return iter(())

    def has_pending_rows(self) -> bool:
        return bool(self.waiting)

    def may_hold_rows(self) -> bool:
        return bool(self.waiting)

    def collect(self) -> Iterator[pa.RecordBatch]:
        yield self.waiting.pop(0)
        yield batch()


class Joining(Bitwise):
    def accepts_more(self) -> bool:
        return True


def test_rows_join_only_where_nothing_else_is_due_and_no_operator_behind_is_at_work() -> None:
    ringing, last = Ringing("b", []), Bitwise("c", [])
    chain, _ = chain_of(Joining("a", []), ringing, last)
    assert chain.accepts_more(10.0)
    assert not chain_of(Bitwise("a", []))[0].accepts_more(10.0)
    ringing.at = 11.0
    assert chain.accepts_more(10.0)
    assert not chain.accepts_more(11.0)
    last.waiting = [batch(1)]
    assert not chain.accepts_more(10.0)
    last.waiting = []
    chain.watermark(9)
    assert not chain.accepts_more(10.0)


def test_rows_under_way_may_stay_behind_a_barrier_unless_all_of_them_belong_before_it() -> None:
    chain, out = chain_of(Bitwise("a", []), Bitwise("b", []))
    chain.process(batch(1, 2, 3))
    assert chain.collect()
    chain.finish_epoch()
    assert (out, chain.has_pending_rows) == ([("out", [1])], True)
    chain.finish_epoch(aligned=True, strict=True)
    assert (out, chain.has_pending_rows) == ([("out", [1]), ("out", [2]), ("out", [3])], False)
    assert not chain.collect()
