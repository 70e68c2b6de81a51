"""Broken rescaling: what key groups own goes astray, splits and messages are lost or doubled, event time runs ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from penstock.model.job_graph import Edge, Vertex
from penstock.model.manifest import InflightEntry, StateEntry, SubtaskManifest
from penstock.snapshots.rescaling import rescale
from penstock.snapshots.rescaling.rescale import _Rescale
from penstock.snapshots.restoring import narrowing
from penstock.snapshots.restoring.narrowing import ConsumerRows
from penstock.worker.chain import Chain
from simulator.mutants.mutation import mutant


def _every_row(original: Any) -> Any:
    def narrow(entry: InflightEntry, batches: Sequence[Any], *rest: Any) -> ConsumerRows:
        before = np.cumsum([0, *(batch.num_rows for batch in batches)])
        marks = [start + np.arange(1, batch.num_rows + 1) for start, batch in zip(before, batches, strict=False)]
        return ConsumerRows(batches, marks)

    return narrow


def _counted_in_own_rows(original: Any) -> Any:
    def narrow(*args: Any) -> ConsumerRows:
        own: ConsumerRows = original(*args)
        before = np.cumsum([0, *(batch.num_rows for batch in own.batches)])
        marks = [start + np.arange(1, len(reached) + 1) for start, reached in zip(before, own.reached, strict=False)]
        return ConsumerRows(own.batches, marks)

    return narrow


def _to_one_heir(original: Any) -> Any:
    def narrowed(self: _Rescale, entry: InflightEntry, edge: Edge) -> Iterator[InflightEntry]:
        yield msgspec.structs.replace(entry, consumer=entry.consumer % self._after)

    return narrowed


def _one_split_twice(original: Any) -> Any:
    def dealt(readers: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
        splits: list[list[Any]] = original(readers, count)
        if count > 1 and splits[0]:
            splits[-1].append(splits[0][0])
        return splits

    return dealt


def _splits_of_the_last_reader_lost(original: Any) -> Any:
    def dealt(readers: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
        splits: list[list[Any]] = original(readers[:count], count)
        return splits

    return dealt


def _largest_watermark(original: Any) -> Any:
    def watermarks(self: _Rescale, vertex: Vertex, index: int, old: Sequence[SubtaskManifest]) -> Any:
        largest: dict[str, int] = {}
        for edge in self._graph.inputs(vertex.id):
            stood = [us for m in old for at, us in m.channel_watermarks.items() if at.startswith(f"{edge.id}:")]
            if stood:
                largest |= {f"{edge.id}:{p}": max(stood) for p in edge.producers(index, self._after)}
        return largest

    return watermarks


def _state_of_the_namesake(original: Any) -> Any:
    def states(self: _Rescale, manifest: SubtaskManifest, index: int) -> Iterator[StateEntry]:
        if manifest.index == index:
            yield from original(self, manifest, index)

    return states


def _not_held(original: Any) -> Any:
    def hold(self: Chain, held: bool) -> None:
        """Never."""

    return hold


RESCALE = {
    "rows-not-narrowed": mutant(
        "each heir of an in-flight entry processes all of its rows", (narrowing, "_narrow", _every_row)
    ),
    "narrowed-entry-counted-in-own-rows": mutant(
        "how far a narrowed entry was read is counted in the rows that were its reader's",
        (narrowing, "_narrow", _counted_in_own_rows),
    ),
    "in-flight-rows-follow-their-subtask": mutant(
        "rows in flight go to the subtask of the same number, even if another one owns their keys now",
        (_Rescale, "_narrowed", _to_one_heir),
    ),
    "split-dealt-twice": mutant(
        "two readers go on with the same split", (rescale, "_distribute_splits", _one_split_twice)
    ),
    "splits-of-gone-readers-lost": mutant(
        "the splits of readers that no longer exist have no reader",
        (rescale, "_distribute_splits", _splits_of_the_last_reader_lost),
    ),
    "largest-watermark-restored": mutant(
        "a channel stands where the furthest of its forebears stood", (_Rescale, "_watermarks", _largest_watermark)
    ),
    "state-of-the-namesake-only": mutant(
        "a subtask gets what the one of its number had, and nothing else", (_Rescale, "_states", _state_of_the_namesake)
    ),
    "watermark-not-held": mutant(
        "of several splits that come to one reader, the first raises the watermark past the rows of the next",
        (Chain, "hold_watermark", _not_held),
    ),
}
