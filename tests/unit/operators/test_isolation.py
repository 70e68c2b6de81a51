"""Functions in a process of their own: the same results, steps that do not wait, and every way it can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pytest

from penstock.config import Isolation, parse_options
from penstock.errors import ConfigError, FunctionError
from penstock.functions.core.base import BoundReference
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.filter import FilterSpec
from penstock.operators.python.isolation.frames import Kind, decode, encode
from penstock.operators.python.isolation.operator import isolated
from penstock.operators.python.isolation.process import CLOSE_TIMEOUT_S, HELD_BYTES
from penstock.operators.python.map_function import MapInArrowSpec, MapInPandasSpec
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.operators.python.udf_calls import UdfCall, UdfKind
from penstock.worker import slot
from tests.support.operators.harness import opened, rows_of, run, slices

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
BATCH = pa.record_batch({"n": list(range(40)), "s": [None if n % 7 == 0 else "x" * n for n in range(40)]}, SCHEMA)

Isolate = Callable[..., Operator]


@pytest.fixture
def answered() -> threading.Event:
    return threading.Event()


@pytest.fixture
def isolate(answered: threading.Event) -> Iterator[Isolate]:
    """``isolate(spec, ...)``: the chain as one opened operator; every process has ended after the test."""
    operators: list[Any] = []

    def isolate_chain(*specs: OperatorSpec) -> Operator:
        (spec,) = isolated(specs, answered.set)
        operators.append(opened(spec))
        return operators[-1]  # type: ignore[no-any-return]

    yield isolate_chain
    processes = [
        psutil.Process(o._process.pid)
        for o in operators
        if o._process is not None and psutil.pid_exists(o._process.pid)
    ]
    for operator in operators:
        operator.close()
    assert not [process for process in processes if process.is_running()]


def driven(
    operator: Operator, batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch], answered: threading.Event
) -> list[pa.RecordBatch]:
    """One epoch, as a subtask drives it: no input while a call is under way."""
    out: list[pa.RecordBatch] = []
    for batch in batches:
        out += operator.process(batch)
        while operator.has_pending_rows():
            assert operator.may_hold_rows()
            answered.wait(30)
            answered.clear()
            out += operator.collect()
    return out + list(operator.finish_epoch())


def in_arrow(function: Callable[..., Any], schema: pa.Schema = SCHEMA) -> MapInArrowSpec:
    return MapInArrowSpec(
        operator_id="map", name="MapInArrow f", output_schema=schema, input_schema=SCHEMA, function=function
    )


def udf(kind: UdfKind, function: Callable[..., Any], name: str = "f", position: int = 0) -> UdfCall:
    return UdfCall(kind, function, (BoundReference(position, SCHEMA.field(position).type),), pa.int64(), '"long"', name)


def scalar(*calls: UdfCall) -> ScalarUdfSpec:
    results = [pa.field(f"r{i}", pa.int64()) for i in range(len(calls))]
    return ScalarUdfSpec(operator_id="udf", name="PythonUDF", output_schema=pa.schema([*SCHEMA, *results]), calls=calls)


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.concat_batches([batch, batch.slice(0, 1)])


def frames(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    total = 0
    for frame in batches:
        total += len(frame)
        yield frame[frame["n"] % 2 == 0]
    yield pd.DataFrame({"n": [total], "s": ["total of the epoch"]})


def pairs(columns: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
    """Lags: answers for two inputs at a time."""
    kept: list[pd.Series[int]] = []
    for column in columns:
        kept.append(column)
        if len(kept) == 2:
            yield pd.concat(kept) + 1
            kept = []
    if kept:
        yield kept[0] + 1


CHAINS: dict[str, tuple[OperatorSpec, ...]] = {
    "two functions in one process": (
        in_arrow(doubled),
        MapInPandasSpec(
            operator_id="frames", name="MapInPandas", output_schema=SCHEMA, input_schema=SCHEMA, function=frames
        ),
    ),
    "one argument of two columns": (scalar(udf(UdfKind.PANDAS_ITERATOR, pairs)),),
    "two calls": (
        scalar(
            udf(UdfKind.PYTHON, lambda n: n * 2, "twice"),
            udf(UdfKind.ARROW_PYTHON, lambda s: None if s is None else len(s), "length", 1),
        ),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_results_are_those_of_the_slot_epoch_by_epoch(name: str, isolate: Isolate, answered: threading.Event) -> None:
    chain, elsewhere = CHAINS[name], isolate(*CHAINS[name])
    for epoch in (slices(BATCH, 7), [], [BATCH.slice(3, 5)]):
        expected = epoch
        for spec in chain:
            expected = list(run(opened(spec), expected)) if expected else []
        got = driven(elsewhere, epoch, answered)
        assert rows_of(got) == rows_of(expected)
        assert all(batch.schema == chain[-1].output_schema for batch in got)
        assert not elsewhere.may_hold_rows()
    assert elsewhere.external_ms() > 0


def test_only_neighbours_share_a_process() -> None:
    keep = FilterSpec(operator_id="f", name="Filter", output_schema=SCHEMA, condition=BoundReference(0, pa.bool_()))
    chain = isolated((keep, in_arrow(doubled), scalar(), keep, in_arrow(doubled)), lambda: None)
    assert [spec.operator_id for spec in chain] == ["f", "map", "f", "map"]
    assert chain[1].name == "MapInArrow f, PythonUDF"
    assert chain[1].output_schema == scalar().output_schema


def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Until the file named in the first row exists."""
    try:
        for batch in batches:
            name = batch.column("s")[0].as_py()
            Path(f"{name}.began").touch()
            while not Path(name).exists():
                time.sleep(0.002)
            yield batch
    finally:
        Path(f"{name}.left").touch()


def naming(path: Path) -> pa.RecordBatch:
    return pa.record_batch({"n": [1], "s": [str(path)]}, SCHEMA)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_step_does_not_wait_and_a_barrier_waits_for_the_call(
    isolate: Isolate, answered: threading.Event, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    operator = isolate(in_arrow(waits))
    assert list(operator.process(naming(go))) == []
    answered.clear()  # it was set by the start
    assert operator.has_pending_rows()
    assert operator.may_hold_rows()
    assert list(operator.collect()) == []
    until(Path(f"{go}.began").exists)
    assert not answered.is_set()
    threading.Timer(0.05, go.touch).start()
    assert rows_of(operator.finish_epoch()) == naming(go).to_pylist()
    assert not operator.has_pending_rows()
    assert answered.is_set(), "a subtask that had not waited would have been woken"


def test_no_barrier_and_no_watermark_wait_for_a_process_that_starts(
    isolate: Isolate, answered: threading.Event, tmp_path: Path
) -> None:
    operator = isolate(in_arrow(starts_slowly(tmp_path / "go")))
    assert operator.has_pending_rows()
    assert not operator.may_hold_rows()
    assert list(operator.finish_epoch()) == []
    assert list(operator.collect()) == []
    assert operator.has_pending_rows()
    (tmp_path / "go").touch()
    assert answered.wait(30)
    assert list(operator.collect()) == []
    assert not operator.has_pending_rows()
    assert rows_of(driven(operator, [BATCH], answered)) == BATCH.to_pylist()


class starts_slowly:  # noqa: N801 - a function to whoever uses it
    """It is not unpickled before a file exists."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        until(self.path.exists)


def test_closing_ends_a_call_and_runs_what_a_function_does_finally(isolate: Isolate, tmp_path: Path) -> None:
    go = tmp_path / "go"
    stuck = isolate(in_arrow(waits))
    list(stuck.process(naming(go)))
    until(Path(f"{go}.began").exists)
    stuck.close()  # kills what is in a call, which would go on for ever
    assert CLOSE_TIMEOUT_S < slot.JOIN_TIMEOUT_S
    assert not Path(f"{go}.left").exists()
    go.touch()
    between = isolate(in_arrow(waits))
    assert list(between._responses(wait=True)) == []  # type: ignore[attr-defined]
    list(between.process(naming(go)))
    assert len(list(between._responses(wait=True))) == 1  # type: ignore[attr-defined]
    between.close()
    assert Path(f"{go}.left").exists()


def many(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        for n in range(64):
            Path(f"{os.environ['PENSTOCK_TEST_COUNT']}.{n}").touch()
            yield pa.record_batch({"n": [n] * 65536, "s": [""] * 65536}, SCHEMA)


def test_a_function_is_not_far_ahead_of_who_takes_its_results(
    isolate: Isolate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_COUNT", str(tmp_path / "n"))
    operator = isolate(in_arrow(many))
    list(operator.process(BATCH))
    size = encode(pa.record_batch({"n": [0] * 65536, "s": [""] * 65536}, SCHEMA)).size
    most = HELD_BYTES // size + 4  # in the slot, in the socket and in hand
    until(lambda: operator._process._held_bytes >= HELD_BYTES)  # type: ignore[attr-defined]
    time.sleep(0.1)
    assert 1 < len(list(tmp_path.iterdir())) <= most < 64
    assert sum(batch.num_rows for batch in operator.finish_epoch()) == 64 * 65536


def ends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        how = batch.num_rows
        print("told before the end", flush=False)
        if how == 1:
            os._exit(3)
        if how == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == 3:
            raise KeyError("by the user")
        if how == 4:
            sys.exit("enough")
        yield batch


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (1, r"the end of its process, which exited with status 3"),
        (2, r"the end of its process, which was killed by SIGSEGV"),
        (3, r"KeyError: 'by the user'"),
        (4, r"SystemExit: enough"),
    ],
)
def test_every_end_of_a_function_names_its_operator(
    how: int, message: str, isolate: Isolate, answered: threading.Event
) -> None:
    operator = isolate(in_arrow(ends))
    with pytest.raises(FunctionError, match=message) as caught:
        driven(operator, [BATCH.slice(0, how)], answered)
    assert caught.value.operator == "map (MapInArrow f)"
    if how == 3:
        assert 'raise KeyError("by the user")' in caught.value.user_traceback


def test_what_a_function_prints_is_printed(
    isolate: Isolate, answered: threading.Event, capfd: pytest.CaptureFixture[str]
) -> None:
    operator = isolate(in_arrow(ends))
    driven(operator, [BATCH.slice(0, 5)], answered)
    assert capfd.readouterr().out == "told before the end\n"


def test_a_function_that_cannot_be_sent_is_named_with_the_way_out(isolate: Isolate) -> None:
    lock = threading.Lock()
    with pytest.raises(FunctionError, match=r"cannot pickle '_thread.lock'.*function.isolation") as caught:
        isolate(in_arrow(lambda batches: (batch for batch in batches if lock)))
    assert caught.value.operator == "map (MapInArrow f)"


ORPHANS = """
import sys, time
import pyarrow as pa
from penstock.operators.base import OperatorContext
from penstock.operators.python.isolation.operator import isolated
from penstock.operators.python.map_function import MapInArrowSpec
from penstock.state.table import NoState
schema = pa.schema([("n", pa.int64())])
def holds(batches):
    for batch in batches:
        if batch.num_rows == 2:
            sys.stdout.write("busy\\n")
            sys.stdout.flush()
            sum(range(10**11))  # one call that holds the GIL
        yield batch
of = MapInArrowSpec(operator_id="m", name="m", output_schema=schema, input_schema=schema, function=holds)
spec, = isolated((of,), lambda: None)
idle, busy = spec.create(), spec.create()
for operator in (idle, busy):
    operator.open(OperatorContext("m", 0, 1, 128, NoState()))
print(idle._process.pid, busy._process.pid, flush=True)
for operator, rows in ((idle, 1), (busy, 2)):
    list(operator.process(pa.record_batch([pa.array(range(rows))], schema=schema)))
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a call that holds the GIL ends first")
def test_no_process_outlives_a_slot_that_is_killed() -> None:
    slot = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert slot.stdout is not None
    with slot.stdout:
        functions = [psutil.Process(int(pid)) for pid in slot.stdout.readline().split()]
        assert slot.stdout.readline() == "busy\n"
        slot.kill()
        slot.wait()
    gone, alive = psutil.wait_procs(functions, timeout=30)
    for process in alive:
        process.kill()
    assert len(gone) == 2, f"left behind: {alive}"


def test_rows_cross_as_they_are() -> None:
    nothing = pa.record_batch([pa.nulls(5)], names=["_"]).select([])
    kinds = pa.record_batch({"d": pa.array(["a", "b", "a"]).dictionary_encode(), "l": [[1], None, []]})
    for batch in (BATCH, BATCH.slice(7, 3), BATCH.slice(0, 0), nothing, kinds):
        assert decode(encode(batch)).equals(batch)
        assert decode(encode(batch)).num_rows == batch.num_rows
    assert encode(BATCH.slice(7, 3)).size < encode(BATCH).size
    assert len(Kind) == 7


def test_the_option() -> None:
    assert parse_options({}).function_isolation is Isolation.NONE
    assert parse_options({"function.isolation": "Process"}).function_isolation is Isolation.PROCESS
    with pytest.raises(ConfigError, match=r"function.isolation='thread': choose none or process"):
        parse_options({"function.isolation": "thread"})
