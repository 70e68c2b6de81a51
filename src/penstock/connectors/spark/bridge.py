"""Spark source bridge: streams that only the JVM can read are read by Spark jobs and staged as files for the slots.

The stream is divided into *ranges* by its own offsets, like micro-batches. The driver plans a range, a Spark job on a
spare slot writes its rows to the checkpoint location, and each file becomes a split. The slots then read these files as
in a file source: files are immutable, and a position is a row number in a file. Neither a replay nor a rescale needs
the JVM's reader again. docs/spark-source-bridge.md explains why no row is lost or read twice.
"""

from __future__ import annotations

from typing import Protocol, cast

import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.spark.staged_ranges import StagedRanges
from penstock.model.plain import Plain
from penstock.model.splits import Discovery


class SourceBridge(Protocol):
    """Spark's reader of one stream. Offsets are JSON texts. Called by one thread at a time; may block."""

    def open(self, directory: str) -> None:
        """Open the stream. Called before all other methods. The stream may keep files in the directory for restarts."""

    def initial_offset(self) -> str:
        """Return the offset at which a new query begins."""

    def latest_offset(self, start: str) -> str:
        """Return the end of the next range, within the source's own limits; ``start`` if there are no new rows."""

    def freeze(self, start: str) -> str | None:
        """Return the end of the existing input; None if ``latest_offset`` never exceeds this end from now on."""

    def stage(self, start: str, end: str, directory: str) -> None:
        """Write the rows between two offsets as Parquet files to a directory that does not exist yet."""

    def committed(self, offset: str) -> None:
        """Commit an offset. No row before it is read again."""

    def stop(self) -> None: ...


class SparkBridgeSource(Source):
    """Source of a stream that Spark reads.

    Args:
        name: name of the source in Spark.
        bridge: Spark's reader, which stays on the driver.
        schema: schema of the rows.
        time_zone: time zone of the session.
    """

    runs_spark_jobs = True
    keeps_files = True

    def __init__(self, name: str, bridge: SourceBridge, schema: pa.Schema, time_zone: str) -> None:
        self.schema = schema
        self._name = name
        self._bridge: SourceBridge | None = bridge
        self._ranges = StagedRanges(self.describe(), schema, time_zone)
        self._state: Plain = None
        self._frozen = False
        self._end: str | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_bridge": None, "_state": None}

    def describe(self) -> str:
        return f"SparkLane[{self._name}]"

    def open(self, location: str, operator_id: str) -> None:
        self._ranges.open(location, operator_id)
        self._on_driver().open(str(self._ranges.directory / "stream"))

    def create_reader(self) -> SourceReader:
        return self._ranges.reader()

    def freeze(self) -> None:
        self._frozen = True
        start = self._on_driver().initial_offset() if self._state is None else _offset(self._state)
        self._end = self._on_driver().freeze(start)

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        bridge = self._on_driver()
        if state is None:
            state = {"offset": bridge.initial_offset(), "range": 0}
        number, start = _number(state), _offset(state)
        if state is not self._state:
            self._ranges.drop(lambda staged: staged >= number)  # staged by discoveries whose results were lost
        self._state = state
        end = bridge.latest_offset(start) if self._end is None else self._end
        if end == start:
            return Discovery((), state, finished=self._frozen)
        splits = self._ranges.stage(number, lambda directory: bridge.stage(start, end, directory))
        self._state = {"offset": end, "range": number + 1}
        return Discovery(splits, self._state, finished=self._frozen and self._end is not None)

    def committed(self, state: Plain) -> None:
        if state is not None:
            number = _number(state)
            self._ranges.drop(lambda staged: staged < number)
            self._on_driver().committed(_offset(state))

    def close(self) -> None:
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.stop()

    def _on_driver(self) -> SourceBridge:
        assert self._bridge is not None, "the bridge stays on the driver"
        return self._bridge


def _offset(state: Plain) -> str:
    return str(cast("dict[str, Plain]", state)["offset"])


def _number(state: Plain) -> int:
    return cast("int", cast("dict[str, Plain]", state)["range"])
