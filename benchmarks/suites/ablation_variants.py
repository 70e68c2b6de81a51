"""Mechanisms of the engine replaced by what it would do without them: for ``ablations``, and nowhere else.

The engine has no switches for these. A source carries the name of a replacement to the slots; where a slot opens it,
the running code of that process is changed as a mutant of the simulator would change it. Workers are used again:
each job names what it is to run with, ``NOTHING`` too, and whatever was replaced before is put back.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader

from benchmarks.lib.max_rate_source import MaxRateReader, MaxRateSource
from penstock.model.elements import Barrier, Buffer, Captured
from penstock.model.ids import CheckpointId
from penstock.network.element_codec import DataEncoder
from penstock.protocol.gate import InputGate
from penstock.protocol.input import RowRange
from penstock.protocol.output import OutputChannel, Outputs
from penstock.snapshots.format.sections import SectionWriter
from penstock.snapshots.writing.base_index import BaseIndex, BaseIndexes
from penstock.snapshots.writing.inflight_index import EMPTY_INDEX
from penstock.worker import slicing
from penstock.worker.slicing import MAX_ROWS, Control, SliceSizer
from simulator.mutants.mutation import mutant

NOTHING = "nothing"
FIXED_ROWS = 20
"""What adaptive slices have where a row takes 1 ms."""
LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
SPILL_FILE_BYTES = 256 << 20
"""Then the file is written from its beginning again: only what is in flight is of use."""
SPILL_WAITING = 64
"""Buffers that may wait to be spilled; then the job waits."""
SPILL_LIMIT_S = 30.0
SYNC_EVERY_S = 1.0
"""A checkpoint a second would ask for no more."""

# -- what takes the mechanisms' place ---------------------------------------------------------------------------------


def _behind_the_queue(original: Any) -> Any:
    """Let no barrier overtake, as Chandy and Lamport do; consumers record channels until it arrives."""

    def overtake(self: Outputs, barrier: Barrier) -> list[Captured]:
        self.append(barrier)
        return []

    return overtake


def _no_rows_durable(original: Any) -> Any:
    def for_base(self: BaseIndexes, base: CheckpointId) -> BaseIndex:
        return replace(original(self, base), inflight=EMPTY_INDEX)

    return for_base


def _one_buffer(original: Any) -> Any:
    def gather(
        gate: InputGate, max_rows: int, now_ms: float, max_bytes: int = 0
    ) -> tuple[dict[int, list[RowRange]], Control | None]:
        consumed = gate.poll(MAX_ROWS, now_ms)
        return ({consumed.channel.edge: [consumed]}, None) if isinstance(consumed, RowRange) else ({}, consumed)

    return gather


def _always_as_many(original: Any) -> Any:
    return property(lambda self: FIXED_ROWS)


def compressed(batch: pa.RecordBatch) -> pa.Buffer:
    """Its message of Arrow IPC, with lz4."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=LZ4) as writer:
        writer.write_batch(batch)
    return sink.getvalue()[batch.schema.serialize().size :]


def _compressed_messages(original: Any) -> Any:
    def element(self: DataEncoder, edge: int, element: Any) -> Any:
        if not isinstance(element, Buffer):
            return original(self, edge, element)
        messages = original(self, edge, replace(element, payload=element.payload.slice(0, 0)))
        kind, (header, _) = messages[-1]
        messages[-1] = kind, [header, compressed(element.payload)]
        return messages

    return element


def _compressed_sections(original: Any) -> Any:
    def begin(self: SectionWriter, store: Any, path: str, compression: str | None = None) -> None:
        original(self, store, path, "lz4")

    return begin


class Spill:
    """Writes every buffer that enters an output queue as it enters, and makes it durable about once a second.

    It is spared what a product would need besides: checksums, an index, new files, and reading any of it.
    """

    def __init__(self) -> None:
        self._buffers: queue.Queue[pa.RecordBatch | None] = queue.Queue(SPILL_WAITING)
        self._thread = threading.Thread(target=self._write, name="spill", daemon=True)

    def sealing(self, original: Any) -> Any:
        def seal(channel: OutputChannel) -> None:
            before = channel._next_seq
            original(channel)
            if channel._next_seq > before:
                self._buffers.put(channel._queue[-1].payload, timeout=SPILL_LIMIT_S)  # type: ignore[union-attr]

        return seal

    def __enter__(self) -> Spill:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._buffers.put(None, timeout=SPILL_LIMIT_S)
        self._thread.join()

    def _write(self) -> None:
        with tempfile.TemporaryFile() as file:
            synced = time.monotonic()
            while (batch := self._buffers.get()) is not None:
                file.write(batch.serialize())
                is_full = file.tell() >= SPILL_FILE_BYTES
                if is_full or time.monotonic() - synced >= SYNC_EVERY_S:
                    file.flush()
                    os.fsync(file.fileno())
                    synced = time.monotonic()
                if is_full:
                    file.seek(0)


@contextmanager
def _spilling() -> Iterator[None]:
    with Spill() as spill, mutant("every buffer is spilled", (OutputChannel, "_seal", spill.sealing)).applied():
        yield


def _patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Callable[[], AbstractContextManager[None]]:
    return mutant("a mechanism is replaced", *patches).applied


_ALL_WRITTEN = (BaseIndexes, "for_base", _no_rows_durable)
REPLACEMENTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    NOTHING: _patched(),
    "barriers stay behind the queues": _patched((Outputs, "overtake", _behind_the_queue)),
    "every buffer is spilled": _spilling,
    "all rows in flight are written": _patched(_ALL_WRITTEN),
    "slices of whole buffers": _patched((slicing, "gather", _one_buffer)),
    f"slices of {FIXED_ROWS} rows": _patched((SliceSizer, "rows", _always_as_many)),
    "links compress with lz4": _patched((DataEncoder, "element", _compressed_messages)),
    "all rows in flight are written with lz4": _patched(
        _ALL_WRITTEN, (SectionWriter, "__init__", _compressed_sections)
    ),
}

# -- how they get into slots ------------------------------------------------------------------------------------------

_replaced = ExitStack()


def run_with(name: str) -> None:
    """Run the rest of this process with this replacement and no other."""
    _replaced.close()
    _replaced.enter_context(REPLACEMENTS[name]())


class AblatedReader(MaxRateReader):
    """Reader with an option ``text``: the payload is a compressible line of a web server's log, of about 100 bytes.

    Otherwise the payload is one repeated letter.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.text = options.get("text", "false") == "true"

    def _batch(self, random: np.random.Generator) -> pa.RecordBatch:
        batch = super()._batch(random)
        if not self.text:
            return batch
        return batch.set_column(batch.num_columns - 1, "payload", pa.array(log_lines(random, batch.num_rows)))


def log_lines(random: np.random.Generator, count: int) -> list[str]:
    numbers = random.integers(0, 10_000, (count, 4)).tolist()
    return [
        f"10.{a % 256}.{b % 256}.7 user-{a:05} GET /catalogue/items/{b:06}?page={c % 40} 200 {c} "
        f"{d / 10:.1f} ms Mozilla/5.0 (X11; Linux)"
        for a, b, c, d in numbers
    ]


class AblatedSource(MaxRateSource):
    """``format("ablated-max-rate")``: ``max-rate``; slots that read it run with the replacement in option ``with``."""

    @classmethod
    def name(cls) -> str:
        return "ablated-max-rate"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        if TaskContext.get() is not None:  # the driver reads, too: it plans
            run_with(self.options["with"])
        return AblatedReader(self.options)
