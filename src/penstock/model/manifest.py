"""Structs of a snapshot's metadata, stored as JSON (msgspec). Format versions 1 and 2.

Paths are relative to the checkpoint location, always. A reader checks every length and checksum. Numbers have bounds,
which decoding checks: what is stored may be somebody else's work, and nothing behind this computes with numbers of any
size.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.errors import ConfigError
from penstock.grammar import FreeText, OperatorName, OriginId, QueryId
from penstock.model.key_groups import MAX_KEY_GROUPS
from penstock.model.plain import Plain
from penstock.model.splits import Split

FORMAT_VERSION = 2
"""Version 2 adds batch ids (``SnapshotMetadata.batches``) and the columns in messages of sinks (``row_columns``)."""
READ_VERSIONS = (1, FORMAT_VERSION)
LARGEST = 1 << 53
"""Of what counts something for ever, bytes and rows included: every reader of JSON can hold it."""
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
"""Of a Generation or a checkpoint."""
SectionLength = Annotated[int, msgspec.Meta(ge=0, le=64 << 30)]
"""Bytes. A section is one buffer, or a key group, and in the memory of a slot when it is restored."""
Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""Of a vertex, edge, subtask or slot, and a layer."""
KeyGroup = Annotated[int, msgspec.Meta(ge=0, lt=MAX_KEY_GROUPS)]
LastKeyGroup = Annotated[int, msgspec.Meta(ge=-1, lt=MAX_KEY_GROUPS)]
"""-1 behind 0: none."""
Microseconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

MAX_LABEL = 200
"""Characters. The log repeats labels and notes in its summaries."""
MAX_NOTE = 2000


def checked_words(label: str, note: str) -> None:
    """Raise ConfigError if they are too long to be kept in the log."""
    for what, text, most in (("label", label, MAX_LABEL), ("note", note, MAX_NOTE)):
        if len(text) > most:
            raise ConfigError(f"{what} has {len(text)} characters, more than {most}")


class SectionRef(msgspec.Struct, frozen=True):
    """Bytes ``[offset, offset + length)`` of a data file: one self-contained Arrow IPC stream.

    ``checksum`` is the xxh3-128 hex digest over ``identity`` (UTF-8), a zero byte and the bytes.
    """

    path: str
    offset: Count
    length: SectionLength
    identity: FreeText
    checksum: FreeText


class StateEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some rows of one keyed state table. A table's entries apply in list order; for a key group that none of them has,
    it has no rows.

    Attributes:
        kind: ``base`` (rows; for its key groups nothing stands before it) or ``delta`` (rows that replace those of the
            same key, and tombstones, where the last column, ``__deleted``, is true).
        rows: of the whole section.
        key_group_first, key_group_last: both inclusive; only rows of these key groups count, though the section may
            have others. 0 and -1: none.
        without: columns of the section that do not count: only in what a slot restores under a plan that has given them
            up.
    """

    operator_id: OperatorName
    table: FreeText
    kind: FreeText
    rows: Count
    key_group_first: KeyGroup
    key_group_last: LastKeyGroup
    section: SectionRef
    without: tuple[FreeText, ...] = ()


class InflightEntry(msgspec.Struct, frozen=True):
    """Rows ``[row_start, row_start + rows)`` of a section holding one channel's captured batches in order.

    Restored wholly at the consumer, ordered by (layer, side: consumer before producer, list order).

    Attributes:
        narrowed: the consumer was another one when this was written: rows of other key groups than ``[key_group_first,
            key_group_last]`` are among these rows and are not for this one. They are told apart by the edge's key.
    """

    layer: Index
    edge: Index
    producer: Index
    consumer: Index
    side: FreeText
    row_start: Count
    rows: Count
    key_group_first: KeyGroup
    key_group_last: LastKeyGroup
    section: SectionRef
    narrowed: bool = False


class InheritedMessage(msgspec.Struct, frozen=True):
    """A sink's commit message that subtask ``index`` staged, when there were more subtasks; somebody else keeps it now.
    An epoch is staged at one parallelism, so that it has one message per index."""

    epoch: Ordinal
    index: Index
    message: bytes


class ScalarShare(msgspec.Struct, frozen=True):
    """Scalars of subtask ``index`` of a snapshot, by operator id, for its successor in key groups ``[first, last]``."""

    index: Index
    first: KeyGroup
    last: LastKeyGroup
    scalars: dict[OperatorName, dict[FreeText, Plain]]


class SubtaskManifest(msgspec.Struct, frozen=True):
    """Everything of one subtask in one snapshot.

    Attributes:
        scalars: operator-level state by operator id.
        splits: the source reader's unfinished splits, in reading order.
        channel_watermarks: by ``edge:producer``, the last watermark processed on that input channel.
        pending_messages: epoch -> sink commit message, for every epoch not known committed, this one included.
        rows_in: rows this subtask consumed in its life (for progress figures).
        inherited_messages: of subtasks that are not there any more, for epochs not known committed.
        shares: only in what a slot restores at another parallelism than the snapshot's, instead of ``scalars``.
    """

    vertex: Index
    index: Index
    states: list[StateEntry] = []
    scalars: dict[OperatorName, dict[FreeText, Plain]] = {}
    inflight: list[InflightEntry] = []
    splits: list[Split] = []
    channel_watermarks: dict[FreeText, Microseconds] = {}
    pending_messages: dict[Ordinal, bytes] = {}
    rows_in: Count = 0
    inherited_messages: list[InheritedMessage] = []
    shares: list[ScalarShare] = []


class CaptureMetrics(msgspec.Struct, frozen=True):
    """Per subtask, milliseconds: trigger to first barrier (without what it spent on the wire), first to last barrier,
    pause of the subtask, write. ``unaligned``: whether it was when it ended here.

    Attributes:
        inflight_bytes: of the in-flight rows captured, in memory; without recovered ones, which are only carried on.
        inflight_persisted_bytes: what was written for them; rows that were durable already are only referred to.
        inflight_rows: captured, written or not.
        state_bytes: what was written for the tables.
        state_total_bytes: of all sections that hold them, written now or before, each once.
        state_rows: of the tables, by operator id.
        inflight_processed_bytes: of the rows that the subtask took from its inputs between first and last barrier, in
            memory, recovered ones among them; a barrier that overtakes others counts from when it does. 0 in what was
            written before this was measured.
    """

    vertex: Index
    index: Index
    start_delay_ms: float = 0.0
    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    inflight_bytes: Count = 0
    inflight_persisted_bytes: Count = 0
    inflight_rows: Count = 0
    state_bytes: Count = 0
    state_total_bytes: Count = 0
    state_rows: dict[OperatorName, Count] = {}
    unaligned: bool = False
    inflight_processed_bytes: Count = 0


class SlotManifest(msgspec.Struct, frozen=True):
    """Part of one slot in a checkpoint; durable when sent."""

    slot: Index
    subtasks: list[SubtaskManifest]
    metrics: list[CaptureMetrics] = []


class SourceManifest(msgspec.Struct, frozen=True):
    """The driver's side of a source: discovery state and splits found but not yet assigned, in order. ``drained``:
    event time has ended here, so nothing more may be read. ``sections``: the blobs of a stored state."""

    operator_id: OperatorName
    vertex: Index
    state: Plain
    pending: list[Split]
    drained: bool = False
    sections: list[SectionRef] = []


class PlanManifest(msgspec.Struct, frozen=True):
    """Part of a plan that matters for the stored data.

    Attributes:
        operators: operator id -> ``{"role", "name", "schema", "states": {table: schema}, "vertex"}`` with schemas as
            ``name type`` lists, ``"keys": {table: number of key columns}`` where it is known, ``"evolves"`` where
            rows may lack columns, and ``"parameters"`` and ``"arguments"`` of operators that have any
            (``parameters.py``); the role is ``source``, ``operator`` or ``sink``.
        edges: exchange id -> ``{"id", "producer", "consumer", "kind", "keys", "schema"}``, and ``"port"`` where it is
            not the main one; the first three are the numbers of this plan's edge and vertices.
    """

    operators: dict[OperatorName, dict[FreeText, Plain]]
    edges: dict[OperatorName, dict[FreeText, Plain]]


class SnapshotMetadata(msgspec.Struct, frozen=True):
    """``snapshots/<id>/metadata.json``. ``id`` is ``chk-<checkpoint>``. ``requested``: by a user, never collected.
    ``drained``: every subtask had ended behind the end of event time: only commits are left to be made.
    ``plan``: what the numbers of vertices and edges in it mean. ``note``: what the user wanted to remember of it.
    ``batches``: the batch id of each epoch up to this snapshot that has output and was not known to be committed.
    ``next_batch``: the id after those of all epochs up to this snapshot; None in format version 1, which had no ids."""

    format_version: Count
    id: FreeText
    query_id: QueryId
    generation: Ordinal
    checkpoint: Ordinal
    alignment: FreeText
    requested: bool
    label: FreeText
    created_ms: Count
    parallelism: Count
    max_parallelism: Count
    slots: list[SlotManifest]
    sources: list[SourceManifest]
    plan: PlanManifest | None = None
    drained: bool = False
    note: FreeText = ""
    batches: dict[Ordinal, Count] = {}
    next_batch: Count | None = None

    def __str__(self) -> str:
        """Return one line for people; ``repr`` has everything.

        Only the keys of rows say how many of a narrowed entry are its consumer's, and they are at the location. So the
        line has no number then.
        """
        label = f" {self.label!r}" if self.label else ""
        unaligned = sum(one.unaligned for slot in self.slots for one in slot.metrics)
        subtasks = [subtask for slot in self.slots for subtask in slot.subtasks]
        entries = [entry for subtask in subtasks for entry in subtask.inflight]
        shared = any(entry.narrowed and entry.rows for entry in entries)
        inflight = f"{sum(entry.rows for entry in entries):,} rows in flight"
        return (
            f"snapshot {self.id}{label} of query {self.query_id}: generation {self.generation}, parallelism "
            f"{self.parallelism}, {unaligned} of {len(subtasks)} subtasks unaligned, "
            f"{'`penstock snapshot show` counts its rows in flight' if shared else inflight}"
        )


def next_batch_after(metadata: SnapshotMetadata) -> int:
    """Return the batch id after those of all epochs up to a snapshot.

    For format version 1, return the checkpoint's number: there were no more batches than epochs.
    """
    return metadata.checkpoint if metadata.next_batch is None else metadata.next_batch


class QueryIdentity(PlanManifest, frozen=True):
    """``query.json``: what a new plan is compared with; the plan is the first that was started here. ``origin``: the id
    of the query that this one was forked from. ``archive``: no query runs here; this is where copies of snapshots are
    of the query ``query_id``, which runs elsewhere."""

    format_version: Count
    query_id: QueryId
    max_parallelism: Count
    parallelism: Count
    origin: OriginId = ""
    archive: bool = False
