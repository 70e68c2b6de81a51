"""Conversion of positions: from Spark's offsets to discovery states and splits, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from penstock.connectors.base import Source
from penstock.connectors.files.listing import FoundFile
from penstock.connectors.files.source import FileSource
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.python.source import PythonSource
from penstock.connectors.spark.files import SparkFilesSource
from penstock.connectors.start_positions import kafka_offsets, start_after_files
from penstock.errors import NotYet
from penstock.interop.spark_checkpoint.findings import SAME, Finding
from penstock.interop.spark_checkpoint.logs import LET_IT_END, SOURCES, SparkCheckpoint, read_file_log
from penstock.model.manifest import SnapshotMetadata
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

LOG_OFFSET = "logOffset"
_MAPPED = "files, Kafka and Python data sources can be taken over; start the query anew, or read these instead"
WAY_OUT = f'{LET_IT_END}, or use planned="again" to read its rows again under new batch ids'
_READ_ON = (
    "start the query once more with trigger(availableNow=True), let it end, and export the snapshot that this leaves"
)


# -- from Spark -------------------------------------------------------------------------------------------------------


def start_discovery(source: Source, checkpoint: SparkCheckpoint, parallelism: int) -> Discovery | Finding:
    """Return the state and the splits with which the plan's source continues after Spark's position.

    Args:
        source: the only source of the plan.
        checkpoint: Spark's checkpoint.
        parallelism: number of readers.

    Returns:
        State and splits; the state is None if Spark has read nothing yet. A finding if the position cannot be imported.
    """
    what = f"source {source.describe()}"
    if len(checkpoint.positions) != 1:
        return Finding(what, f"Spark's query has {len(checkpoint.positions)} sources, the DataFrame one", SAME)
    position = checkpoint.positions[0]
    if position is None:
        return Discovery((), None)
    keeps_files = (checkpoint.path / SOURCES / "0").is_dir() and set(position) == {LOG_OFFSET}
    try:
        if isinstance(source, FileSource | SparkFilesSource) and keeps_files:
            return _files(source, checkpoint, position)
        if isinstance(source, KafkaSource) and (offsets := kafka_offsets(position)):
            return source.discovery_at(offsets, parallelism)
        if isinstance(source, PythonSource) and not keeps_files:
            return source.discovery_at(position)
    except NotYet as error:
        return Finding(what, str(error), _MAPPED)
    if isinstance(source, FileSource | SparkFilesSource | KafkaSource | PythonSource):
        return Finding(what, f"Spark's position {position!r:.100} is that of another kind of source", SAME)
    return Finding(what, f"Spark's position {position!r:.100} has no counterpart", _MAPPED)


def planned_batch(source: Source, checkpoint: SparkCheckpoint, parallelism: int) -> Discovery | Finding:
    """Return the input of the planned batch as splits, and the source's state after it; or why that is not possible."""
    what = f"batch {checkpoint.planned} of source {source.describe()}"
    if checkpoint.planned != checkpoint.batch + 1:
        return Finding(what, f"Spark has planned several batches after {checkpoint.batch}", WAY_OUT)
    if len(checkpoint.positions) != 1 or len(checkpoint.planned_positions) != 1:
        return Finding(what, f"Spark's query has {len(checkpoint.positions)} sources, the DataFrame one", SAME)
    before, after = checkpoint.positions[0], checkpoint.planned_positions[0]
    if isinstance(source, FileSource) and isinstance(after, dict) and set(after) == {LOG_OFFSET}:
        return _planned_files(source, checkpoint, before, after, what)
    found = None
    if isinstance(before, dict) and isinstance(after, dict):
        if isinstance(source, PythonSource):
            found = source.range_between(before, after)
        if isinstance(source, KafkaSource) and (start := kafka_offsets(before)):
            found = source.range_between(start, kafka_offsets(after), parallelism)
    if found is not None:
        return found
    return Finding(what, "this source cannot be read exactly up to the end of the batch", WAY_OUT)


def _planned_files(
    source: FileSource, checkpoint: SparkCheckpoint, before: Any, after: Mapping[str, Any], what: str
) -> Discovery | Finding:
    try:
        files = read_file_log(checkpoint, 0, after[LOG_OFFSET])
        old = {} if before is None else read_file_log(checkpoint, 0, before[LOG_OFFSET])
        new = [path for path in files if path not in old]
        unlisted = source.file_discovery.not_listed(files)
        if unlisted:
            return Finding(what, f"the DataFrame does not read {unlisted[0]}, which Spark has read", SAME)
        return Discovery(source.file_discovery.splits_of(new), start_after_files(source, files).state)
    except (NotYet, FileNotFoundError) as error:
        return Finding(what, str(error), WAY_OUT)


def _files(
    source: FileSource | SparkFilesSource, checkpoint: SparkCheckpoint, position: Mapping[str, Any]
) -> Discovery | Finding:
    offset = position[LOG_OFFSET]
    if type(offset) is not int:
        return Finding(f"source {source.describe()}", f"Spark's position is {position!r:.100}", SAME)
    files = read_file_log(checkpoint, 0, offset)
    unlisted = source.file_discovery.not_listed(files)
    if unlisted:
        why = f"Spark has read {unlisted[0]}, which is there and which the DataFrame does not read"
        return Finding(f"source {source.describe()}", why, f"{SAME}, with the same path and options")
    return start_after_files(source, files)


# -- to Spark ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SparkPosition:
    """Position in Spark's form.

    Attributes:
        offset: the parsed JSON of a line in ``offsets/0``.
        files: the files that ``sources/0/0`` lists; None if the source has no such log.
    """

    offset: dict[str, Any]
    files: tuple[FoundFile, ...] | None = None


def spark_position(source: Source, operator_id: str, metadata: SnapshotMetadata) -> SparkPosition | Finding:
    """Return the position of a snapshot's source in Spark's form, or a finding if Spark cannot continue from there.

    Args:
        metadata: the snapshot, with restored blobs in the states of its sources.
    """
    manifest = next(one for one in metadata.sources if one.operator_id == operator_id)
    splits = [split for slot in metadata.slots for subtask in slot.subtasks for split in subtask.splits]
    splits += manifest.pending
    what = f"source {source.describe()}"
    state = cast("Any", manifest.state)
    if state is None:
        return Finding(what, "nothing was read yet", "start Spark's query anew")
    if isinstance(source, FileSource):
        return _files_read(source, what, state, splits)
    if isinstance(source, SparkFilesSource):
        if splits:
            return Finding(what, f"{len(splits)} files that Spark has staged are not read to their end", _READ_ON)
        return SparkPosition({LOG_OFFSET: 0}, tuple(source.file_discovery.discovered_files(state["files"])))
    if manifest.drained:
        return Finding(what, "it was drained, and its positions were not kept", _READ_ON)
    if isinstance(source, KafkaSource):
        return _kafka_position(what, state, splits)
    if isinstance(source, PythonSource):
        return _python_position(what, state, splits)
    return Finding(what, "its positions have no counterpart in Spark", "start Spark's query anew")


def _files_read(source: FileSource, what: str, state: Plain, splits: Sequence[Split]) -> SparkPosition | Finding:
    """Return the position after the files that were read. Spark's position cannot describe a partly read file."""
    begun = [str(split.spec["path"]) for split in splits if split.position]
    if begun:
        return Finding(what, f"{len(begun)} files are read in part, {begun[0]} among them", _READ_ON)
    waiting = {str(split.spec["path"]) for split in splits}
    files = [file for file in source.file_discovery.discovered_files(state) if file.path not in waiting]
    if not files:
        return Finding(what, "none of the files that are there was read", "start Spark's query anew")
    return SparkPosition({LOG_OFFSET: 0}, tuple(files))


def _kafka_position(what: str, state: Mapping[str, Any], splits: Sequence[Split]) -> SparkPosition | Finding:
    found: dict[str, Any] = {}
    for split in splits:
        offset = split.position.get("offset", split.spec["start"])
        found.setdefault(str(split.spec["topic"]), {})[str(split.spec["partition"])] = offset
    lost = [
        f"{topic}-{p}" for topic, known in state["partitions"].items() for p in known if p not in found.get(topic, {})
    ]
    return Finding(what, f"there is no position of {lost[0]}", _READ_ON) if lost else SparkPosition(found)


def _python_position(what: str, state: Mapping[str, Any], splits: Sequence[Split]) -> SparkPosition | Finding:
    simple = [split for split in splits if split.spec["kind"] == "simple"]
    if simple:
        [split] = simple
        if split.position.get("rows"):
            return Finding(what, f"the rows behind {split.position['start']} are read in part", _READ_ON)
        return SparkPosition(cast("dict[str, Any]", split.position.get("start", split.spec["start"])))
    if splits:
        begin, end = splits[0].spec["start"], splits[0].spec["end"]
        return Finding(what, f"the rows between {begin} and {end} are not read to their end", _READ_ON)
    return SparkPosition(state["offset"])
