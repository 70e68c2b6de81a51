"""Structs of a snapshot's metadata, stored as JSON (msgspec). Format versions 1 and 2.

All paths are relative to the checkpoint location. A reader checks every length and checksum. Numbers have bounds that
are checked on decoding, because stored files are untrusted and later code relies on the bounds.
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
"""Upper limit of ever-growing counts, such as bytes and rows. Every JSON parser can represent it."""
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
"""Number of a generation or a checkpoint."""
SectionLength = Annotated[int, msgspec.Meta(ge=0, le=64 << 30)]
"""Length in bytes. A section holds one buffer or one key group, and must fit into a slot's memory on restore."""
Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""Index of a vertex, edge, subtask or slot; also a layer."""
KeyGroup = Annotated[int, msgspec.Meta(ge=0, lt=MAX_KEY_GROUPS)]
LastKeyGroup = Annotated[int, msgspec.Meta(ge=-1, lt=MAX_KEY_GROUPS)]
"""Last key group of a range. -1 after a first key group of 0 means an empty range."""
Microseconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

MAX_LABEL = 200
"""Length in characters. It is limited because the log repeats labels and notes in its summaries."""
MAX_NOTE = 2000


def checked_words(label: str, note: str) -> None:
    """Raise ConfigError if the label or the note is too long for the log."""
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
    """Some rows of one keyed state table.

    The entries of a table are applied in list order. A key group without an entry has no rows.

    Attributes:
        kind: ``base`` or ``delta``. A base holds rows, and no earlier entry has rows of its key groups. A delta
            holds rows that replace those of the same key, and tombstones: rows in which the last column, ``__deleted``,
            is true.
        rows: number of rows in the whole section.
        key_group_first, key_group_last: both inclusive. Only rows of these key groups count, although the section may
            hold others. 0 and -1: none.
        without: columns of the section to ignore. Used only on restore, for columns that the new plan no longer has.
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
    """Rows ``[row_start, row_start + rows)`` of a section that holds captured batches of one channel in order.

    All rows are restored at the consumer, ordered by (layer, side: consumer before producer, list order).

    Attributes:
        narrowed: True if the rows were written for another consumer. Then only rows of the key groups
            ``[key_group_first, key_group_last]`` belong to this consumer. The edge's key columns determine the key
            group of a row.
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
    """Commit message of a sink, staged by a subtask ``index`` that no longer exists. Another subtask keeps it now.

    An epoch is staged at one parallelism, so it has one message per index.
    """

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
    """The data of one subtask in one snapshot.

    Attributes:
        scalars: operator-level state by operator id.
        splits: the source reader's unfinished splits, in reading order.
        channel_watermarks: by ``edge:producer``, the last watermark processed on that input channel.
        pending_messages: epoch -> sink commit message, for every epoch not known to be committed, including this one.
        rows_in: number of rows that this subtask ever consumed, for progress reports.
        inherited_messages: commit messages of subtasks that no longer exist, for epochs not known to be committed.
        shares: used instead of ``scalars`` when a slot restores at another parallelism than the snapshot's.
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
    """Metrics of one subtask in one checkpoint.

    Attributes:
        start_delay_ms: time from the trigger to the first barrier, without the time on the network.
        alignment_ms: time from the first to the last barrier.
        sync_ms: time for which the subtask was paused.
        async_ms: time of the write.
        inflight_bytes: size in memory of the captured in-flight rows. Recovered rows, which are only carried over, do
            not count.
        inflight_persisted_bytes: bytes written for them. Rows that were already durable are only referenced.
        inflight_rows: number of rows captured, written or not.
        state_bytes: bytes written for the tables.
        state_total_bytes: bytes of all sections that hold the tables, new or old, each counted once.
        state_rows: number of rows in the tables, by operator id.
        unaligned: True if the checkpoint was unaligned when it completed at the subtask.
        inflight_processed_bytes: size in memory of the rows that the subtask took from its inputs between the first and
            the last barrier, including recovered rows. A barrier that overtakes counts from the moment when it
            overtakes. 0 in snapshots written before this metric existed.
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
    """The part of one slot in a checkpoint. It is durable before it is sent."""

    slot: Index
    subtasks: list[SubtaskManifest]
    metrics: list[CaptureMetrics] = []


class SourceManifest(msgspec.Struct, frozen=True):
    """The driver's part of a source: its discovery state and the splits not yet assigned, in order.

    Attributes:
        drained: True if event time has ended, so that nothing more may be read.
        sections: blobs of a stored state.
    """

    operator_id: OperatorName
    vertex: Index
    state: Plain
    pending: list[Split]
    drained: bool = False
    sections: list[SectionRef] = []


class PlanManifest(msgspec.Struct, frozen=True):
    """The part of a plan that determines the stored data.

    Attributes:
        operators: operator id -> ``{"role", "name", "schema", "states": {table: schema}, "vertex"}``. The role is
            ``source``, ``operator`` or ``sink``. Schemas are lists of ``name type``. Optional keys: ``"keys": {table:
            number of key columns}`` if known, ``"evolves"`` if rows may lack columns, ``"parameters"`` and
            ``"arguments"`` (``parameters.py``).
        edges: exchange id -> ``{"id", "producer", "consumer", "kind", "keys", "schema"}``, and ``"port"`` if it is not
            the main one. The first three are the numbers of the edge and its vertices in this plan.
    """

    operators: dict[OperatorName, dict[FreeText, Plain]]
    edges: dict[OperatorName, dict[FreeText, Plain]]


class SnapshotMetadata(msgspec.Struct, frozen=True):
    """Content of ``snapshots/<id>/metadata.json``.

    Attributes:
        id: ``chk-<checkpoint>``.
        requested: True if a user requested the snapshot. Such a snapshot is never removed automatically.
        plan: meaning of the numbers of vertices and edges in the snapshot.
        drained: True if every subtask had finished after the end of event time. Only commits remain.
        note: free text of the user.
        batches: batch id of each epoch up to this snapshot that has output and was not known to be committed.
        next_batch: the id after those of all epochs up to this snapshot. None in format version 1, which had no batch
            ids.
    """

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
        """Return a one-line summary for people; ``repr`` shows everything.

        The line has no number of in-flight rows if an entry is narrowed: counting them requires the rows' keys, which
        only the stored data holds.
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

    For format version 1, return the checkpoint's number: there were at most as many batches as epochs.
    """
    return metadata.checkpoint if metadata.next_batch is None else metadata.next_batch


class QueryIdentity(PlanManifest, frozen=True):
    """Content of ``query.json``. A new plan is compared with it; it describes the first plan started at the location.

    Attributes:
        origin: id of the query from which this one was forked.
        archive: True if no query runs here: the location holds copies of snapshots of the query ``query_id``, which
            runs at another location.
    """

    format_version: Count
    query_id: QueryId
    max_parallelism: Count
    parallelism: Count
    origin: OriginId = ""
    archive: bool = False
