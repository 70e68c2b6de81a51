"""Broken recovery: in-flight rows that are read twice, not at all or out of order, event time that is ahead of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.model.elements import Element, Side, Watermark
from penstock.model.ids import ChannelId, CheckpointId
from penstock.model.manifest import InflightEntry
from penstock.protocol.gate import InputGate
from penstock.protocol.recovered import RecoveredRows
from penstock.snapshots import catalog
from penstock.snapshots.restoring.local_state import LocalStateStore
from penstock.snapshots.writing.state_index import TableId
from penstock.state.table import RestorePoint
from penstock.worker import subtask as subtask_module
from simulator.jobs.count_table import CountTable, StoredCounts
from simulator.mutants.mutation import mutant

NEWER_LAYER = 1_000_000


def _nothing_carried(original: Any) -> Any:
    def carried(self: RecoveredRows) -> list[InflightEntry]:
        return []

    return carried


def _whole_entries_carried(original: Any) -> Any:
    def carried(self: RecoveredRows) -> list[InflightEntry]:
        return list(self._entries)

    return carried


def _range_shortened_at_its_end(original: Any) -> Any:
    def carried(self: RecoveredRows) -> list[InflightEntry]:
        narrowed: list[InflightEntry] = original(self)
        if narrowed:
            narrowed[0] = msgspec.structs.replace(narrowed[0], row_start=self._entries[0].row_start)
        return narrowed

    return carried


def _carried_in_a_newer_layer(original: Any) -> Any:
    def carried(self: RecoveredRows) -> list[InflightEntry]:
        return [msgspec.structs.replace(entry, layer=NEWER_LAYER) for entry in original(self)]

    return carried


def _live_before_recovered(original: Any) -> Any:
    return property(lambda self: not self._loaded)


def _sides_before_layers(original: Any) -> Any:
    def order(entry: InflightEntry) -> tuple[bool, int]:
        return entry.side != Side.CONSUMER.value, entry.layer

    return order


def _producer_side_first(original: Any) -> Any:
    def order(entry: InflightEntry) -> tuple[int, bool]:
        return entry.layer, entry.side == Side.CONSUMER.value

    return order


def _watermark_on_arrival(original: Any) -> Any:
    def arrive(self: InputGate, channel: ChannelId, element: Element) -> None:
        original(self, channel, element)
        if isinstance(element, Watermark) and not self.recovered.drained:
            self.channels[channel].watermark_us = element.timestamp_us

    return arrive


def _no_watermarks(original: Any) -> Any:
    def build_gate(graph: Any, subtask: Any, generation: Any, options: Any, watermarks: Any, recovered: Any) -> Any:
        return original(graph, subtask, generation, options, {} if recovered.rows_left else watermarks, recovered)

    return build_gate


def _newest_entry_first(original: Any) -> Any:
    def created(self: RecoveredRows, entries: Sequence[InflightEntry], *more: Any) -> None:
        original(self, sorted(entries, key=lambda entry: -entry.layer), *more)

    return created


def _whatever_is_kept(original: Any) -> Any:
    def take_matching(self: LocalStateStore, checkpoint: CheckpointId, manifests: Any) -> dict[TableId, RestorePoint]:
        newest = max(self._checkpoints.items(), default=(0, {}))[1]
        return {table: one.point for table, one in newest.items()}

    return take_matching


def _as_it_is(original: Any) -> Any:
    def restore(self: CountTable, stored: StoredCounts) -> None:
        self._serial = 0

    return restore


RECOVERY = {
    "tables-in-memory-not-compared": mutant(
        "a table that is still in memory is used, whatever snapshot is restored",
        (LocalStateStore, "take_matching", _whatever_is_kept),
    ),
    "tables-in-memory-as-they-are": mutant(
        "a table that is still in memory is used as its slot has left it", (CountTable, "restore", _as_it_is)
    ),
    "recovered-rows-not-carried": mutant(
        "a checkpoint during recovery forgets what is not read yet",
        (RecoveredRows, "carried", _nothing_carried),
    ),
    "carried-range-not-narrowed": mutant(
        "a checkpoint during recovery refers to rows again that were read already",
        (RecoveredRows, "carried", _whole_entries_carried),
    ),
    "carried-range-cut-at-the-wrong-end": mutant(
        "a half-read entry is carried without its last rows instead of its first",
        (RecoveredRows, "carried", _range_shortened_at_its_end),
    ),
    "carried-rows-in-a-newer-layer": mutant(
        "carried rows count as captured after those of this Generation",
        (RecoveredRows, "carried", _carried_in_a_newer_layer),
    ),
    "live-before-recovered": mutant(
        "live rows are read while recovered ones are still being loaded",
        (RecoveredRows, "drained", _live_before_recovered),
    ),
    "layers-merged": mutant(
        "in-flight rows are restored side by side instead of layer by layer",
        (catalog, "_restore_order", _sides_before_layers),
    ),
    "newest-layer-first": mutant(
        "a restore on top of a restore reads the newer layer first",
        (RecoveredRows, "__init__", _newest_entry_first),
    ),
    "producer-side-first": mutant(
        "of one channel the producer's rows are restored before the consumer's",
        (catalog, "_restore_order", _producer_side_first),
    ),
    "watermark-of-a-live-channel": mutant(
        "during recovery a live watermark counts before the recovered rows in front of it",
        (InputGate, "arrive", _watermark_on_arrival),
    ),
    "restored-watermarks-forgotten": mutant(
        "a subtask that has recovered rows to read starts without the watermarks of its snapshot",
        (subtask_module, "build_gate", _no_watermarks),
    ),
}
