"""The vectorised form of stateful processors: what a call gets, what it may do with state and timers, its errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.types import DateType, DecimalType, MapType, StringType, TimestampType

from penstock.errors import FunctionError, NotSupported
from penstock.operators.stateful import arrow_operator
from penstock.operators.stateful import operator as stateful_operator
from penstock.operators.stateful.variables import TimeMode
from tests.support.operators.arrow_kit import FORMS, ArrowProcessor, arrow_spec_of, said
from tests.support.operators.stateful_kit import LONG, Fleet, rows, struct

register_pickle_by_value(sys.modules[__name__])

SECOND_US = 1_000_000


def long_state(processor: Any, handle: Any) -> None:
    processor.state = handle.getValueState("state", LONG)


def values(*numbers: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": pa.array(numbers, pa.int64())})


def words(output: list[dict[str, Any]]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for row in output:
        found.setdefault(row["id"], []).append(row["said"])
    return found


@pytest.mark.parametrize("form", FORMS)
def test_keys_and_rows_are_columns_in_the_sessions_time_zone(form: str) -> None:
    """The distinct keys (nulls, NaNs and zeros are one each), whose each row is, and rows as they came."""

    def shown(_: Any, keys: Any, owners: Any, batch: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        assert keys.schema == pa.schema([("f", pa.float64()), ("at", pa.timestamp("us", "Asia/Tokyo"))])
        assert batch.schema.types == [pa.float64(), pa.timestamp("us", "Asia/Tokyo"), pa.int64()]
        assert owners.dtype == np.int64
        names = [
            f"{f} {at and at.hour}" for f, at in zip(*(column.to_pylist() for column in keys.columns), strict=True)
        ]
        for number in range(keys.num_rows):
            yield said([names[number]], [batch.column("n").filter(pa.array(owners == number)).to_pylist()])

    schema = pa.schema([("f", pa.float64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    spec = arrow_spec_of(
        ArrowProcessor(shown), TimeMode.PROCESSING_TIME, form, input_schema=schema, keys=(0, 1), time_zone="Asia/Tokyo"
    )
    fleet = Fleet(spec)
    nan = float("nan")
    lines = [(1.0, 0, 1), (None, 0, 2), (nan, None, 3), (1.0, 0, 4), (-0.0, 0, 5), (nan, None, 6), (0.0, 0, 7)]
    assert words(fleet.process(rows(*lines, schema=schema))) == {
        "1.0 9": ["[1, 4]"], "None 9": ["[2]"], "nan None": ["[3, 6]"], "0.0 9": ["[5, 7]"],
    }  # fmt: skip
    fleet.close()


@pytest.mark.parametrize("form", FORMS)
def test_state_of_every_type_is_read_as_it_was_written(form: str) -> None:
    kept = struct(
        day=DateType(), at=TimestampType(), amount=DecimalType(20, 2), m=MapType(StringType(), TimestampType())
    )

    def declared(processor: Any, handle: Any) -> None:
        processor.state = handle.getValueState("state", kept)

    def again(processor: Any, keys: Any, owners: Any, batch: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        before = processor.state.get()
        assert before.schema.field("at").type == pa.timestamp("us", "Asia/Tokyo")
        if not processor.state.exists().any():
            assert all(column.null_count == keys.num_rows for column in before.columns)
            columns = [
                pa.array([19_000], pa.int32()).cast(pa.date32()),
                pa.array([1], pa.timestamp("ms", "Europe/Paris")),  # any zone and unit is the same moment
                pa.array([None], pa.decimal128(20, 2)),
                pa.array([[("k", 5), ("l", None)]], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
            ]
            processor.state.update(pa.RecordBatch.from_arrays(columns, names=["day", "at", "amount", "m"]))
        else:
            processor.state.update(before)
        assert processor.state.exists().all()
        yield said(keys.column(0), [processor.state.get().to_pylist()])

    fleet = Fleet(arrow_spec_of(ArrowProcessor(again, declared), form=form, time_zone="Asia/Tokyo"))
    [first] = words(fleet.process(rows(("a", 1, 0))))["a"]
    fleet = fleet.restarted(1, "rocksdb")
    assert words(fleet.process(rows(("a", 1, 0))))["a"] == [first]
    [row] = fleet.tables()["state"]
    assert (row["at"].timestamp(), row["amount"], [k for k, _ in row["m"]]) == (0.001, None, ["k", "l"])
    fleet.close()


def test_a_value_of_nulls_is_there_and_what_where_names_is_written() -> None:
    def written(processor: Any, keys: Any, owners: Any, batch: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        state, order = processor.state, np.argsort(keys.column(0).to_pylist())
        yield said(keys.column(0), zip(state.exists(), state.get().column(0).to_pylist(), strict=True))
        first = np.zeros(4, np.bool_)
        first[order[0]] = True
        state.update(values(None), first)
        state.update(values(2, 1), order[[2, 1]])
        state.update(values(), np.zeros(4, np.bool_))
        state.clear([])
        state.clear(pa.array(order[1:2]))
        state.exists()[:] = True  # the caller's own

    fleet = Fleet(arrow_spec_of(ArrowProcessor(written, long_state)))
    batch = rows(*[(name, 1, 0) for name in "dabc"])
    assert words(fleet.process(batch)) == {name: ["(np.False_, None)"] for name in "abcd"}
    assert words(fleet.process(batch)) == {
        "a": ["(np.True_, None)"], "b": ["(np.False_, None)"], "c": ["(np.True_, 2)"], "d": ["(np.False_, None)"],
    }  # fmt: skip
    fleet.close()


def in_rows(do: Callable[..., Any]) -> ArrowProcessor:
    def handled(processor: Any, keys: Any, *_: Any) -> Any:
        return do(processor, keys) or ()

    return ArrowProcessor(handled, long_state)


WRONG: dict[str, tuple[ArrowProcessor, str]] = {
    "raises": (in_rows(lambda p, keys: 1 // 0), "ZeroDivisionError"),
    "no batch": (in_rows(lambda p, keys: [5]), "the processor must yield pyarrow.RecordBatch, not int"),
    "nothing to iterate": (ArrowProcessor(lambda *_: 5, long_state), "TypeError: 'int' object is not iterable"),  # type: ignore[arg-type, return-value]
    "columns": (in_rows(lambda p, keys: [keys]), "yielded columns ['id'], declared are ['id', 'said']"),
    "column type": (
        in_rows(lambda p, keys: [pa.RecordBatch.from_pydict({"id": ["a"], "said": [1]})]),
        "column said was yielded as int64, declared is string",
    ),
    "state columns": (
        in_rows(lambda p, keys: p.state.update(keys)), "state state: given columns ['id'], declared are ['v']"
    ),
    "state type": (
        in_rows(lambda p, keys: p.state.update(pa.RecordBatch.from_pydict({"v": [0.5]}), [0])),
        "state state: column v was given as double, declared is int64",
    ),
    "state no batch": (
        in_rows(lambda p, keys: p.state.update({"v": [1]})), "state state: it takes a pyarrow.RecordBatch, not dict"
    ),
    "state rows": (in_rows(lambda p, keys: p.state.update(values(1, 2, 3))), "state: 3 rows are given for 2 named"),
    "mask": (in_rows(lambda p, keys: p.state.clear([True])), "where is a mask of shape (1,), and there are 2 keys"),
    "no key": (in_rows(lambda p, keys: p.state.clear([2])), "where names a key below 0 or above 1"),
    "below": (in_rows(lambda p, keys: p.state.clear([-1])), "where names a key below 0 or above 1"),
    "twice": (in_rows(lambda p, keys: p.state.clear([1, 1])), "where names a key twice"),
    "names": (in_rows(lambda p, keys: p.state.clear(["a"])), "where is None, a boolean mask over the keys, or their"),
    "no timers": (in_rows(lambda p, keys: p.handle.registerTimers(1)), "WITH_INVALID_TIME_MODE"),
    "late declaration": (
        in_rows(lambda p, keys: p.handle.getValueState("other", LONG)), "operation=get_value_state with invalid handle"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_the_users_and_name_the_operator(name: str) -> None:
    processor, text = WRONG[name]
    fleet = Fleet(arrow_spec_of(processor))
    with pytest.raises(FunctionError) as raised:
        fleet.process(rows(("a", 1, 0), ("b", 1, 0)))
    assert text in str(raised.value)
    assert raised.value.operator == "tws (TransformWithState (P))"
    fleet.close()


@pytest.mark.parametrize(
    ("moments", "text"),
    [
        ([0.5, 1.0], "moments are integers, milliseconds since 1970, without nulls, not float64 values"),
        (pa.array([1, None]), "moments are integers"),
        ([1, 2, 3], "moments of shape (3,) are given for 2 keys"),
    ],
)
def test_moments_of_timers_are_checked(moments: Any, text: str) -> None:
    fleet = Fleet(arrow_spec_of(in_rows(lambda p, keys: p.handle.deleteTimers(moments)), TimeMode.EVENT_TIME))
    with pytest.raises(FunctionError) as raised:
        fleet.process(rows(("a", 1, 1), ("b", 1, 1)))
    assert text in str(raised.value)
    fleet.close()


def test_what_init_must_not_declare_is_refused_when_the_query_is_compiled() -> None:
    for kind in ("list", "map"):
        with pytest.raises(NotSupported, match=f"state s: .* no {kind} state; declare a value state with a"):
            arrow_spec_of(
                ArrowProcessor(on_init=lambda p, h, kind=kind: getattr(h, f"get{kind.title()}State")("s", LONG))
            )

    def twice(processor: Any, handle: Any) -> None:
        long_state(processor, handle)
        long_state(processor, handle)

    with pytest.raises(FunctionError, match="DUPLICATE_STATE_VARIABLE_DEFINED"):
        arrow_spec_of(ArrowProcessor(on_init=twice))
    with pytest.raises(FunctionError, match="INCORRECT_TIME_MODE_TO_ASSIGN_TTL"):
        arrow_spec_of(ArrowProcessor(on_init=lambda p, h: h.getValueState("s", LONG, 1000)))


@pytest.mark.parametrize("form", FORMS)
def test_state_that_init_deletes_is_nobodys(form: str) -> None:
    def undone(processor: Any, handle: Any) -> None:
        long_state(processor, handle)
        handle.deleteIfExists("state")

    processor = ArrowProcessor(lambda p, *_: p.state.get(), undone)
    fleet = Fleet(arrow_spec_of(processor, form=form))
    assert set(fleet.tables()) == {"__waiting"}
    with pytest.raises(FunctionError, match=r"operation=get not supported on missing column family=state"):
        fleet.process(rows(("a", 1, 0)))
    fleet.close()


def test_state_is_for_calls_that_have_keys() -> None:
    fleet = Fleet(arrow_spec_of(ArrowProcessor(on_init=long_state, on_close=lambda p: closed(p))))
    with pytest.raises(FunctionError, match="state state is used where there are no keys; use it in handleInputBatch"):
        fleet.close()


def closed(processor: Any) -> None:
    """Read the state at the end. On the driver ``close`` follows ``init``, which has no state either."""
    if type(processor.state).__name__ == "ValueArrays":
        processor.state.get()


def timed(processor: Any, keys: Any, owners: Any, batch: Any, timers: Any) -> Iterator[pa.RecordBatch]:
    """Timers at n, for every row, and what the clocks say."""
    for row, owner in enumerate(owners.tolist()):
        processor.handle.registerTimers([batch.column("n")[row].as_py()], [owner])
    yield said(keys.column(0), [timers.getCurrentWatermarkInMs()] * keys.num_rows)


def fired(processor: Any, keys: Any, moments: Any, timers: Any) -> Iterator[pa.RecordBatch]:
    yield said(keys.column(0), moments.tolist())


def test_late_rows_are_dropped_and_timers_see_the_watermark() -> None:
    fleet = Fleet(arrow_spec_of(ArrowProcessor(timed, on_timers=fired), TimeMode.EVENT_TIME))
    assert words(fleet.process(rows(("a", 5000, 1)))) == {"a": ["0"]}
    assert words(fleet.advance(4 * SECOND_US)) == {}
    late = rows(("a", 6000, 4 * SECOND_US), ("b", 7000, 4 * SECOND_US + 1))
    assert words(fleet.process(late)) == {"b": ["4000"]}
    assert fleet.operators[0].counters()["rows_dropped_late"] == 1
    fleet = fleet.restarted(2, "rocksdb")
    assert words(fleet.advance(7 * SECOND_US)) == {"a": ["5000"], "b": ["7000"]}
    fleet.close()


@pytest.mark.parametrize("form", FORMS)
def test_a_keys_timers_come_one_after_the_other_and_may_delete_each_other(form: str) -> None:
    def deleting(processor: Any, keys: Any, moments: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        processor.handle.deleteTimers(moments + 1)
        processor.handle.registerTimers(3, moments == 4)  # deleted by the timer of 2, and due: in the next pass
        processor.handle.registerTimers(moments[moments == 2], moments == 2)  # it fires now: nothing new
        yield said(keys.column(0), moments.tolist())

    fleet = Fleet(arrow_spec_of(ArrowProcessor(timed, on_timers=deleting), TimeMode.EVENT_TIME, form))
    fleet.process(rows(*[(key, moment, 1) for key in "ab" for moment in (4, 2, 5, 3)]))
    assert words(fleet.advance(SECOND_US)) == {key: ["2", "4"] for key in "ab"}
    assert fleet.operators[0].wake_at_ms() == 0.0, "registered when it was due: waits for the next pass"
    assert words(fleet.tick(0)) == {key: ["3"] for key in "ab"}
    assert not fleet.tables()["__timers"]
    fleet.close()


@pytest.mark.parametrize("form", FORMS)
def test_a_timer_that_waits_for_the_next_pass_can_be_deleted(form: str) -> None:
    def undecided(processor: Any, keys: Any, moments: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        first = moments == 2
        processor.handle.registerTimers(1, first)
        processor.handle.deleteTimers(1, ~first & (np.array(keys.column(0).to_pylist()) == "a"))
        yield said(keys.column(0), moments.tolist())

    fleet = Fleet(arrow_spec_of(ArrowProcessor(timed, on_timers=undecided), TimeMode.EVENT_TIME, form))
    fleet.process(rows(*[(key, moment, 1) for key in "ab" for moment in (2, 3)]))
    assert words(fleet.advance(SECOND_US)) == {key: ["2", "3"] for key in "ab"}
    assert words(fleet.tick(0)) == {"b": ["1"]}
    fleet.close()


@pytest.mark.parametrize("form", FORMS)
def test_values_are_there_until_their_time_is_over(form: str) -> None:
    def limited(processor: Any, handle: Any) -> None:
        processor.state = handle.getValueState("state", LONG, 100)

    def told(processor: Any, keys: Any, owners: Any, batch: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        """Sets what is not there."""
        there = processor.state.exists()
        yield said(keys.column(0), [f"{one} {v}" for one, v in zip(there, *processor.state.get().columns, strict=True)])
        processor.state.update(values(*[7] * int((~there).sum())), ~there)

    fleet = Fleet(arrow_spec_of(ArrowProcessor(told, limited), TimeMode.PROCESSING_TIME, form))
    for now_ms, expected in (
        (0, "False None"),
        (99, "True 7"),
        (100, "False None"),
        (199, "True 7"),
        (200, "False None"),
    ):
        fleet.now_ms = now_ms
        assert words(fleet.process(rows(("a", 1, 1))))["a"] == [expected]
    fleet.close()


def test_many_timers_due_at_once_leave_gaps_for_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pause is a consistent moment: what fired is out, what did not is stored. Calls that take long have fewer
    timers."""
    monkeypatch.setattr(arrow_operator, "_CALL_S", 0.0)
    sizes: list[int] = []

    def counted(processor: Any, keys: Any, moments: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        yield said(keys.column(0), [keys.num_rows] * keys.num_rows)

    fleet = Fleet(arrow_spec_of(ArrowProcessor(timed, on_timers=counted), TimeMode.EVENT_TIME))
    names = [str(number) for number in range(600)]
    fleet.process(rows(*[(name, 1000 + number, 1) for number, name in enumerate(names)]))
    seen = []
    for batch in fleet.operators[0].advance(20 * SECOND_US):
        seen += batch.column("id").to_pylist()
        sizes.append(batch.num_rows)
        stored = [row["id"] for row in fleet.tables()["__timers"]]
        assert sorted(seen + stored) == sorted(names)
    assert sizes == [256, 128, 64, *[32] * 4, 24]
    fleet.close()


def test_a_snapshot_between_a_keys_timers_changes_nothing() -> None:
    fleet = Fleet(arrow_spec_of(ArrowProcessor(timed, on_timers=fired), TimeMode.EVENT_TIME))
    fleet.process(rows(*[(key, moment, 1) for key in "ab" for moment in (1, 2, 3)]))
    seen = []
    for batch in fleet.operators[0].advance(SECOND_US):
        seen += [(row["id"], int(row["said"])) for row in batch.to_pylist()]
        stored = [(row["id"], row["__expires_ms"]) for row in fleet.tables()["__timers"]]
        assert sorted(seen + stored) == [(key, moment) for key in "ab" for moment in (1, 2, 3)]
    assert [moment for _, moment in seen] == [1, 1, 2, 2, 3, 3]
    fleet.close()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_that_wait_for_their_turn_go_on_in_the_other_form(
    monkeypatch: pytest.MonkeyPatch, parallelism: int
) -> None:
    """A snapshot of the per-key form in the middle of a slice."""
    monkeypatch.setattr(stateful_operator, "_SLICE_S", 0.0)

    def counting(processor: Any, keys: Any, owners: Any, batch: Any, timers: Any) -> Iterator[pa.RecordBatch]:
        numbers = batch.column("n").to_numpy()
        total = processor.state.get().column(0).fill_null(0).to_numpy() + np.bincount(owners, numbers).astype(np.int64)
        processor.state.update(values(*total.tolist()))
        yield said(keys.column(0), total.tolist())

    processor = ArrowProcessor(counting, long_state)
    fleet = Fleet(arrow_spec_of(processor, form="per key"))
    batch = rows(*[(str(number % 300), number, 0) for number in range(600)])
    before = words(fleet.process(batch, 5))
    assert len(before) == 6, "a key each"
    fleet.spec = arrow_spec_of(processor)
    fleet = fleet.restarted(parallelism, "memory")
    expected = {str(number): [str(2 * number + 300)] for number in range(300)}
    assert before | words(fleet.output) == expected
    assert len(fleet.output) == 294
    assert {row["id"]: [str(row["v"])] for row in fleet.tables()["state"]} == expected
    fleet.close()
