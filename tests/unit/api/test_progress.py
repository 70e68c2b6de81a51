"""Progress: the JSON that PySpark and the JVM read, and what counts as idle."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from penstock.coordinator.view import (
    CheckpointState,
    CheckpointView,
    EpochProgress,
    SinkProgress,
    SourceProgress,
    StateProgress,
)
from penstock.model.manifest import CaptureMetrics
from penstock.model.metrics import Backlog
from penstock.queries.progress import ProgressHistory, QueryProgress, for_listeners, iso_timestamp, progress_json
from tests.support.places import DOCS

PAGE = DOCS / "progress.md"
ID = "e28cd03e-c7f9-4dd1-b32c-f2a498b137d0"
RUN = "fae27eac-2b59-4c5e-b519-92bda577ac18"
EPOCH = EpochProgress(
    epoch=7,
    generation=2,
    started_ms=1_357_034_400_123,
    duration_ms=500.0,
    sources=(
        SourceProgress("source-0", "FileStreamSource[file:/in]", 100, 200.0),
        SourceProgress("source-1", "FileStreamSource[file:/other]", 50, 100.0),
    ),
    sinks=(SinkProgress("sink-0", "FileSink[file:/out]", 30),),
    watermark_us=1_357_034_400_000_000,
    states=(StateProgress("aggregate-0", "Aggregate", 40, 2, 1_234),),
    durations_ms={"checkpoint": 20.4, "commit": 3.2},
)


CHECKPOINT = CheckpointView(
    checkpoint=7,
    generation=2,
    alignment="auto",
    requested=False,
    label="",
    state=CheckpointState.COMPLETE,
    triggered_ms=1_357_034_400_500,
    duration_ms=20.4,
    acknowledged=2,
    snapshot_id="chk-7",
    subtasks=(
        CaptureMetrics(0, 0, 1.2, 3.4, 0.6, 10.0, 1_000, 700, 5, 300, 9_000, inflight_processed_bytes=70),
        CaptureMetrics(0, 1, 2.6, 0.0, 0.2, 12.4, 50, 50, 1, 20, 600, unaligned=True, inflight_processed_bytes=7),
    ),
)


def as_json(epoch: EpochProgress) -> dict[str, Any]:
    return progress_json(epoch, query_id=ID, run_id=RUN, name="q", parallelism=2, interval_ms=10_000)


def as_progress(epoch: EpochProgress) -> QueryProgress:
    return QueryProgress.fromJson(as_json(epoch))


def test_pyspark_reads_every_figure() -> None:
    progress = as_progress(EPOCH)
    assert (str(progress.id), str(progress.runId), progress.name) == (ID, RUN, "q")
    assert (progress.batchId, progress.batchDuration, progress.numInputRows) == (7, 500, 150)
    assert (progress.inputRowsPerSecond, progress.processedRowsPerSecond) == (300.0, 300.0)
    assert progress.timestamp == "2013-01-01T10:00:00.123Z"
    assert progress.durationMs == {"checkpoint": 20, "commit": 3, "triggerExecution": 500}
    assert progress.eventTime == {"watermark": "2013-01-01T10:00:00.000Z"}
    assert [source.numInputRows for source in progress.sources] == [100, 50]
    assert progress.sources[0].description == "FileStreamSource[file:/in]"
    assert (progress.sink.description, progress.sink.numOutputRows) == ("FileSink[file:/out]", 30)
    [state] = progress.stateOperators
    assert (state.numRowsTotal, state.numRowsDroppedByWatermark, state.numShufflePartitions) == (40, 2, 2)
    assert state.memoryUsedBytes == 1_234


def test_several_outputs_are_one_sink_to_spark_with_the_rows_of_each() -> None:
    more = (*EPOCH.sinks, SinkProgress("sink-1", "ConsoleSink", 12))
    sink = as_progress(replace(EPOCH, sinks=more)).sink
    assert (sink.description, sink.numOutputRows) == ("FileSink[file:/out], ConsoleSink", 42)
    assert sink.metrics == {
        "sink-0.description": "FileSink[file:/out]",
        "sink-0.numOutputRows": "30",
        "sink-1.description": "ConsoleSink",
        "sink-1.numOutputRows": "12",
    }
    assert as_progress(EPOCH).sink.metrics == {}
    assert as_progress(replace(EPOCH, sinks=(*EPOCH.sinks, replace(more[1], rows=-1)))).sink.numOutputRows == -1


def test_the_checkpoint_is_a_section_of_its_own_and_survives_json() -> None:
    progress = as_progress(replace(EPOCH, checkpoint=CHECKPOINT, batch=4))
    section = {
        "id": 7,
        "snapshotId": "chk-7",
        "sinkBatchId": 4,
        "generation": 2,
        "requested": False,
        "alignment": "auto",
        "unaligned": True,
        "intervalMs": 10_000,
        "durationMs": 20,
        "commitMs": 3,
        "commitFailures": 0,
        "startDelayMs": 3,
        "alignmentMs": 3,
        "syncMs": 1,
        "asyncMs": 12,
        "inflightRows": 6,
        "inflightBytes": 1_050,
        "inflightWrittenBytes": 750,
        "inflightProcessedBytes": 77,
        "stateWrittenBytes": 320,
        "stateTotalBytes": 9_600,
    }
    assert progress.checkpoint == section
    assert progress["checkpoint"] == section
    assert json.loads(progress.json)["checkpoint"] == section
    assert json.loads(progress.prettyJson)["checkpoint"] == section
    forgotten = as_progress(EPOCH)
    assert forgotten.checkpoint is None
    assert json.loads(forgotten.json)["checkpoint"] is None


def test_the_page_explains_every_field() -> None:
    page = PAGE.read_text()
    progress = as_json(replace(EPOCH, checkpoint=CHECKPOINT))
    fields = {*progress, *progress["checkpoint"], *progress["durationMs"], *progress["eventTime"]}
    for part in (progress["stateOperators"][0], progress["sources"][0], progress["sink"]):
        fields |= set(part)
    fields |= {*progress["sources"][0]["metrics"], *progress["stateOperators"][0]["customMetrics"]}
    explained = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", page))))
    assert fields - explained == {"description"}, "that explains itself"


def test_listeners_find_the_checkpoint_among_the_metrics_of_the_sink() -> None:
    progress = as_json(replace(EPOCH, checkpoint=CHECKPOINT))
    told = for_listeners(progress)
    assert set(progress) - set(told) == {"checkpoint"}
    metrics = told["sink"]["metrics"]
    assert (metrics["checkpoint.id"], metrics["checkpoint.alignment"], metrics["checkpoint.unaligned"]) == (
        "7",
        "auto",
        "true",
    )
    assert all(isinstance(text, str) for text in metrics.values()), "Spark's class has texts there and nothing else"
    assert {name.removeprefix("checkpoint.") for name in metrics} == set(progress["checkpoint"])
    assert progress["sink"]["metrics"] == {}, "the progress itself is as it was"
    assert (told["sink"]["description"], told["sink"]["numOutputRows"]) == ("FileSink[file:/out]", 30)
    assert for_listeners(as_json(EPOCH))["sink"]["metrics"] == {}


def test_state_tells_what_its_checkpoint_wrote_and_what_it_dropped() -> None:
    state = StateProgress("dedupe-0", "Deduplicate", 40, 2, 1_234, 3, 5, 320, 9_600, 22.6)
    [told] = as_progress(replace(EPOCH, states=(state,))).stateOperators
    assert (told.commitTimeMs, told.numShufflePartitions, told.numStateStoreInstances) == (23, 2, 6)
    assert told.customMetrics == {
        "numDroppedDuplicateRows": 5,
        "checkpointWrittenBytes": 320,
        "checkpointTotalBytes": 9_600,
    }


def test_a_source_tells_its_offsets_and_how_far_it_is_behind() -> None:
    offsets = {"t": {"0": 10, "1": 4}}, {"t": {"0": 12, "1": 9}}
    kafka = replace(
        EPOCH.sources[0],
        start_offset=offsets[0],
        end_offset=offsets[1],
        pending_splits=1,
        reading_splits=2,
        backlog=Backlog(rows=9, least=2, most=7, splits=2),
    )
    first, other = as_progress(replace(EPOCH, sources=(kafka, EPOCH.sources[1]))).sources
    assert (json.loads(first.startOffset), json.loads(first.endOffset)) == offsets
    assert first.metrics == {
        "pendingSplits": "1",
        "readingSplits": "2",
        "minOffsetsBehindLatest": "2",
        "maxOffsetsBehindLatest": "7",
        "avgOffsetsBehindLatest": "4.5",
    }
    assert (other.startOffset, other.endOffset) == ("null", "null")
    assert other.metrics == {"pendingSplits": "0", "readingSplits": "0"}


@pytest.mark.parametrize(
    ("has_event_time", "watermark_us", "shown"),
    [(True, 1_356_998_400_000_000, "2013-01-01T00:00:00.000Z"), (True, None, "none"), (False, None, None)],
)
def test_a_source_with_event_time_tells_how_far_its_slowest_reader_is(
    has_event_time: bool, watermark_us: int | None, shown: str | None
) -> None:
    source = replace(EPOCH.sources[0], has_event_time=has_event_time, watermark_us=watermark_us)
    metrics = as_progress(replace(EPOCH, sources=(source,))).sources[0].metrics
    assert metrics.get("watermark") == shown


def test_without_event_time_there_is_no_watermark() -> None:
    assert as_progress(replace(EPOCH, watermark_us=None)).eventTime == {}


def test_an_epoch_of_no_length_has_no_infinite_rate() -> None:
    progress = as_progress(replace(EPOCH, duration_ms=0.0))
    assert progress.batchDuration == 1
    assert progress.processedRowsPerSecond == 150_000


def test_timestamps_before_the_epoch_keep_their_milliseconds() -> None:
    assert iso_timestamp(-1) == "1969-12-31T23:59:59.999Z"
    assert iso_timestamp(0) == "1970-01-01T00:00:00.000Z"


def test_an_epoch_is_idle_only_if_nothing_happened() -> None:
    history = ProgressHistory(capacity=100)
    quiet = replace(EPOCH, sources=(), sinks=(), watermark_us=None, states=())
    assert history.is_idle(quiet)
    assert not history.is_idle(EPOCH)
    assert not history.is_idle(replace(quiet, sinks=EPOCH.sinks))
    assert not history.is_idle(replace(quiet, states=(StateProgress("a", "Aggregate", 0, 1),)))
    assert not history.is_idle(replace(quiet, watermark_us=5)), "the watermark rose"
    history.append(replace(quiet, watermark_us=5), as_json(EPOCH))
    assert history.is_idle(replace(quiet, watermark_us=5))


def test_only_the_newest_are_kept() -> None:
    history = ProgressHistory(capacity=3)
    assert history.last() is None
    for number in range(5):
        epoch = replace(EPOCH, epoch=number)
        history.append(epoch, as_json(epoch))
    assert [progress.batchId for progress in history.recent()] == [2, 3, 4]
    last = history.last()
    assert last is not None
    assert last.batchId == 4
