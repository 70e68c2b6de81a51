"""Progress: the JSON that PySpark and the JVM read, and what counts as idle."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.streaming.listener import StreamingQueryProgress

from penstock.query.progress import ProgressHistory, iso_timestamp, progress_json
from penstock.runtime.view import EpochProgress, SinkProgress, SourceProgress, StateProgress

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


def as_progress(epoch: EpochProgress) -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(progress_json(epoch, query_id=ID, run_id=RUN, name="q", parallelism=2))


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
    history = ProgressHistory()
    quiet = replace(EPOCH, sources=(), sinks=(), watermark_us=None, states=())
    assert history.is_idle(quiet)
    assert not history.is_idle(EPOCH)
    assert not history.is_idle(replace(quiet, sinks=EPOCH.sinks))
    assert not history.is_idle(replace(quiet, states=(StateProgress("a", "Aggregate", 0, 1),)))
    assert not history.is_idle(replace(quiet, watermark_us=5)), "the watermark rose"
    history.append(
        replace(quiet, watermark_us=5), progress_json(EPOCH, query_id=ID, run_id=RUN, name=None, parallelism=1)
    )
    assert history.is_idle(replace(quiet, watermark_us=5))


def test_only_the_newest_are_kept() -> None:
    history = ProgressHistory(capacity=3)
    assert history.last() is None
    for number in range(5):
        epoch = replace(EPOCH, epoch=number)
        history.append(epoch, progress_json(epoch, query_id=ID, run_id=RUN, name=None, parallelism=1))
    assert [progress.batchId for progress in history.recent()] == [2, 3, 4]
    last = history.last()
    assert last is not None
    assert last.batchId == 4
