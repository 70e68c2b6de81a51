"""``penstock.exportSparkOffsets``: writes a query's position as a checkpoint from which Spark's engine continues.

Only positions are exported, because only Spark's own operators can write its state stores. So the plan must have no
state. The checkpoint has one batch N that was planned and committed. N is the last batch id of the query's log, so that
Spark's next batch has the next id::

    metadata      {"id": ...}
    offsets/N     v1, {"batchWatermarkMs": ..., "batchTimestampMs": ..., "conf": {...}}, the source's position
    offsets/N-1   the same, unless N is 0: Spark does not start without it
    commits/N     v1, {"nextBatchWatermarkMs": ...}
    commits/N-1   the same
    sources/0/0   v1, one line per file that was read (sources of files only)
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame

from penstock.connectors.local_files import local_path
from penstock.errors import NotSupported
from penstock.interop.spark_checkpoint.findings import Finding, refuse
from penstock.interop.spark_checkpoint.logs import COMMITS, METADATA, OFFSETS, SOURCES
from penstock.interop.spark_checkpoint.plans import graph_of, source_of, stateful_operators
from penstock.interop.spark_checkpoint.positions import SparkPosition, spark_position
from penstock.model.elements import END_OF_TIME_US
from penstock.model.ids import snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.operators.watermark import WatermarkSpec
from penstock.snapshots.commands.opened_location import OpenedLocation, open_location_to_read
from penstock.snapshots.format.blobs import BlobStore
from penstock.snapshots.portable.files import NewFile, new_directory
from penstock.snapshots.rescaling.relocate import relocate
from penstock.snapshots.store.store import LocalStore
from penstock.spark.errors import pysparks_refusals

_SHUFFLE = "spark.sql.shuffle.partitions"
_MICROS_PER_MILLI = 1_000
_END_ORDERLY = "start the query once more with trigger(availableNow=True), let it end, and export the newest snapshot"


@dataclass(frozen=True)
class ExportedOffsets:
    """Result of an export.

    Attributes:
        directory: Spark's new checkpoint.
        snapshot: the exported snapshot.
        position: the position of the source, in Spark's form.
        files: number of files that a source of files has read; None for other sources.
        batch: id of the exported batch; Spark's next id is one more.
    """

    directory: str
    snapshot: str
    position: Mapping[str, Any]
    files: int | None
    batch: int


@pysparks_refusals()
def exportSparkOffsets(  # noqa: N802 - named as PySpark names things
    df: DataFrame,
    location: str,
    directory: str,
    *,
    snapshot: str = "",
    outputMode: str = "append",  # noqa: N803
) -> ExportedOffsets:
    """Write the position of a query as a checkpoint of Structured Streaming.

    ``df`` started there on Spark's engine reads exactly what Penstock has not read.

    Args:
        df: the query's streaming DataFrame, which must have no state.
        location: its checkpoint location; the query must have ended.
        directory: a new folder, absent or empty. It is created atomically.
        snapshot: an id or label, by default the newest snapshot. Others are refused, because output after them would be
            written again.
        outputMode: the output mode of the query.

    Raises:
        NotSupported: Spark cannot continue from there. The text has a table of all reasons, and nothing was written.
        LocationError: the snapshot does not exist or does not fit ``df``, or the directory is not empty.
    """
    target = Path(local_path(directory))
    opened = open_location_to_read(location)
    begin = f"Spark cannot go on where the query at {opened.path} stopped"
    record = opened.record(snapshot) if snapshot else _newest(opened, begin)
    metadata = BlobStore(opened.store).restore_blobs(opened.metadata(record))
    graph = graph_of(df, outputMode, metadata.parallelism, metadata.max_parallelism)
    findings = _unfinished_work(opened, metadata)
    findings += [
        Finding(f"state of {spec.name}", "only Spark itself can write its state stores", "start Spark's query anew")
        for _, spec in stateful_operators(graph)
    ]
    if findings:
        refuse(begin, findings)
    metadata = relocate(metadata, graph, opened.view.committed_epoch)
    source = source_of(graph)
    position = spark_position(source.source, source.operator_id, metadata)
    if isinstance(position, Finding):
        refuse(begin, [position])
    assert isinstance(position, SparkPosition)
    watermarks = [spec.operator_id for vertex in graph.vertices for spec in vertex.operators if _is_watermark(spec)]
    batch = max(0, opened.view.next_batch - 1)
    conf = {_SHUFFLE: str(df.sparkSession.conf.get(_SHUFFLE))}
    with new_directory(target, "the directory") as folder:
        _write(folder, position, _watermark_ms(metadata, watermarks), conf, batch)
    files = None if position.files is None else len(position.files)
    return ExportedOffsets(str(target), metadata.id, position.offset, files, batch)


def _newest(opened: OpenedLocation, begin: str) -> Any:
    lineage = opened.view.lineage
    if not lineage:
        raise NotSupported(f"{begin}: it has no complete snapshot; start Spark's query anew")
    return lineage[-1]


def _is_watermark(spec: object) -> bool:
    return isinstance(spec, WatermarkSpec)


def _unfinished_work(opened: OpenedLocation, metadata: SnapshotMetadata) -> list[Finding]:
    """Return findings if the query has not ended, or if the snapshot is not its exact end.

    A snapshot is the exact end if it is the newest, has no in-flight data, and exactly its output is visible.
    """
    view, findings = opened.view, []
    if not view.ended:
        why = "its driver has not said that it ended: it may be reading on"
        findings.append(Finding("the query", why, f"stop it; if it was killed, {_END_ORDERLY}"))
    newest = view.lineage[-1].checkpoint if view.lineage else metadata.checkpoint
    if metadata.checkpoint != newest or view.committed_epoch > metadata.checkpoint:
        why = f"output behind it is visible already, up to {snapshot_id(max(newest, view.committed_epoch))}"
        findings.append(Finding(f"snapshot {metadata.id}", why, "export the newest one"))
    subtasks = [subtask for slot in metadata.slots for subtask in slot.subtasks]
    rows = sum(entry.rows for subtask in subtasks for entry in subtask.inflight)
    if rows:
        findings.append(Finding(f"snapshot {metadata.id}", f"it holds {rows} rows in flight", _END_ORDERLY))
    epochs = [epoch for subtask in subtasks for epoch in subtask.pending_messages]
    epochs += [message.epoch for subtask in subtasks for message in subtask.inherited_messages]
    if any(epoch > view.committed_epoch for epoch in epochs):
        findings.append(Finding(f"snapshot {metadata.id}", "output up to it is not visible yet", _END_ORDERLY))
    return findings


def _watermark_ms(metadata: SnapshotMetadata, operators: list[str]) -> int:
    """Return the smallest watermark of all subtasks; 0, as in Spark, if a subtask has none or event time has ended."""
    scalars = [subtask.scalars for slot in metadata.slots for subtask in slot.subtasks]
    found = [content[name].get("watermark_us") for content in scalars for name in operators if name in content]
    known = [int(value) for value in found if isinstance(value, int) and value != END_OF_TIME_US]
    return max(0, min(known) // _MICROS_PER_MILLI) if known and len(known) == len(found) else 0


def _write(folder: Path, position: SparkPosition, watermark_ms: int, conf: Mapping[str, str], batch: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    planned = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": now_ms, "conf": dict(conf)}
    texts = {METADATA: _json({"id": str(uuid.uuid4())})}
    for number in range(max(0, batch - 1), batch + 1):
        texts[f"{OFFSETS}/{number}"] = "\n".join(["v1", _json(planned), _json(position.offset)])
        texts[f"{COMMITS}/{number}"] = "\n".join(["v1", _json({"nextBatchWatermarkMs": watermark_ms})])
    if position.files is not None:
        lines = [
            _json({"path": f"file://{quote(file.path)}", "timestamp": file.modified_ms, "batchId": 0})
            for file in position.files
        ]
        texts[f"{SOURCES}/0/0"] = "\n".join(["v1", *lines])
    for path, text in texts.items():
        with NewFile(LocalStore(folder), path) as file:
            file.write(text.encode())


def _json(value: Mapping[str, Any]) -> str:
    """Encode in one line, as Spark does."""
    return json.dumps(value, separators=(",", ":"))
