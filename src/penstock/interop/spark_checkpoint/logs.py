"""Logs of a Structured Streaming checkpoint: its committed batch, its planned batch, and the positions of sources.

Spark plans a batch in ``offsets/N`` before it runs, and writes ``commits/N`` when it is done. So the newest batch in
both is the committed one, and the input of a newer planned one is read again. Spark 4.3 writes ``v1`` (``commits`` may
be ``v2``); any other version is refused. The directory may be forged: only plain files are opened, and each read is
bounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from penstock.connectors.local_files import local_path
from penstock.connectors.start_positions import path_of
from penstock.errors import LocationError, NotYet
from penstock.snapshots.format.envelope import exceeds_value_limit
from penstock.snapshots.location import IDENTITY_PATH

OFFSETS, COMMITS, SOURCES, STATE, METADATA = "offsets", "commits", "sources", "state", "metadata"
NO_POSITION = "-"
"""Line in ``offsets/N`` for a source from which nothing was read yet."""
COMPACTED = ".compact"
LARGEST_BATCH = (1 << 31) - 1
"""Largest batch id. Epochs get higher numbers than Spark's batches, and file names have ten digits for an epoch."""

MAX_LOG_BYTES = 16 << 20
"""Limit for a file in ``offsets`` or ``commits``: a position of Kafka has some bytes per partition."""
MAX_FILE_LOG_BYTES = 1 << 30
"""Limit for a file in ``sources/0``: a compacted one has the names of all files that were ever read."""

LET_IT_END = "let Spark finish it: start Spark's query there once more with trigger(availableNow=True)"
"""Remedy for a planned batch."""
NOTHING_READ = "start the query at an empty checkpointLocation"

_BATCH = re.compile(r"\d{1,18}")
_COMPACTED = re.compile(r"(\d{1,18})\.compact")
_KNOWN_COMMITS = ("v1", "v2")


@dataclass(frozen=True)
class SparkCheckpoint:
    """Content of the logs.

    Attributes:
        path: path of the directory.
        query_id: id of Spark's query.
        batch: the newest committed batch.
        planned: a newer batch that was planned, and perhaps run, but not committed; None if there is none.
        positions: by source the parsed JSON of its position after ``batch``; None: nothing was read yet.
        closed_ms: the watermark of the committed batch: groups up to it are closed. The next batch accepts rows of all
            other groups, because Spark drops late rows by the watermark of the batch before. 0 if there is none.
        watermark_ms: the watermark of the next batch, which closes groups up to it.
        conf: the settings that Spark stores with a query.
        state_ids: the state stores were written with ids (``stateStore.checkpointFormatVersion`` 2).
        planned_positions: like ``positions``, at the end of the batch ``planned``.
    """

    path: Path
    query_id: str
    batch: int
    planned: int | None
    positions: tuple[Any, ...]
    closed_ms: int
    watermark_ms: int
    conf: Mapping[str, str]
    state_ids: bool
    planned_positions: tuple[Any, ...] = ()

    @property
    def next_batch(self) -> int:
        """Id of the next batch: one more than the last id that Spark has used."""
        return 1 + (self.batch if self.planned is None else self.planned)

    @property
    def has_state(self) -> bool:
        return (self.path / STATE).is_dir()


def read_checkpoint(location: str) -> SparkCheckpoint:
    """Read the logs of a checkpoint.

    Args:
        location: a folder of a local or mounted file system.

    Raises:
        LocationError: it is not a checkpoint of Spark, is damaged, has an unknown version, or has no committed batch.
        NotYet: it is on another kind of file system.
    """
    path = Path(local_path(location))
    _check_is_checkpoint(path)
    query_id = _json_of(path / METADATA, _text(path / METADATA, MAX_LOG_BYTES)).get("id")
    if not isinstance(query_id, str) or not query_id:
        raise _damaged(path / METADATA, "it has no id of a query")
    committed, planned = _batches(path / COMMITS), _batches(path / OFFSETS)
    if not committed:
        raise LocationError(
            f"{path}: no batch of Spark's query was committed, so there is nothing to take over; "
            + (f"batch {max(planned)} was planned: {LET_IT_END}" if planned else NOTHING_READ)
        )
    batch = max(committed)
    if max(batch, *planned) > LARGEST_BATCH:
        raise _damaged(path / OFFSETS, f"it has a batch above {LARGEST_BATCH}")
    if batch not in planned:
        raise _damaged(path / COMMITS / str(batch), f"{OFFSETS}/{batch} is missing, though the batch was committed")
    version, commit = _commit(path / COMMITS / str(batch))
    plan, positions = _offsets(path / OFFSETS / str(batch))
    conf = plan.get("conf", {})
    if not isinstance(conf, dict):
        raise _damaged(path / OFFSETS / str(batch), "its settings are no object")
    newest = max(planned)
    return SparkCheckpoint(
        path=path,
        query_id=query_id,
        batch=batch,
        planned=newest if newest > batch else None,
        positions=positions,
        planned_positions=_offsets(path / OFFSETS / str(newest))[1] if newest > batch else (),
        closed_ms=_whole_number(path / OFFSETS / str(batch), plan, "batchWatermarkMs"),
        watermark_ms=_whole_number(path / COMMITS / str(batch), commit, "nextBatchWatermarkMs"),
        conf={str(name): str(value) for name, value in conf.items()},
        state_ids=version == "v2",
    )


def read_file_log(checkpoint: SparkCheckpoint, source: int, up_to: int) -> dict[str, int]:
    """Return the files that a source has read up to a position: modification time in milliseconds by path.

    Args:
        checkpoint: the checkpoint.
        source: number of the source.
        up_to: the ``logOffset`` of the position.

    Raises:
        LocationError: the log is damaged or incomplete.
        NotYet: a file is on another kind of file system.
    """
    folder = checkpoint.path / SOURCES / str(source)
    names = {name for name in list_names(folder) if _BATCH.fullmatch(name) or _COMPACTED.fullmatch(name)}
    compacted = sorted(int(match[1]) for name in names if (match := _COMPACTED.fullmatch(name)))
    base = max((number for number in compacted if number <= up_to), default=-1)
    needed = [f"{base}{COMPACTED}"] if base >= 0 else []
    needed += map(str, range(base + 1, up_to + 1)[: len(names) + 1])  # limited, since ``up_to`` may be forged
    if not names.issuperset(needed):  # Spark removes the files of single batches some time after their compaction
        later = next((number for number in compacted if number > up_to), None)
        if later is None:
            raise _damaged(folder / next(name for name in needed if name not in names), "it is missing")
        needed = [f"{later}{COMPACTED}"]
    files: dict[str, int] = {}
    for name in needed:
        for entry in _entries(folder / name):
            if _whole_number(folder / name, entry, "batchId") <= up_to:
                files[_path_of(folder / name, entry)] = _whole_number(folder / name, entry, "timestamp")
    return files


# -- files of a log ---------------------------------------------------------------------------------------------------


def _check_is_checkpoint(path: Path) -> None:
    names = list_names(path)
    if IDENTITY_PATH in names:
        raise LocationError(
            f"{path} is a checkpointLocation of Penstock's own, not of Spark's engine; start a query from it with the "
            "option startFrom"
        )
    missing = [name for name in (METADATA, OFFSETS, COMMITS) if name not in names]
    if missing:
        raise LocationError(
            f"{path} is no checkpoint of Structured Streaming: it has no {' and no '.join(missing)}; give the "
            "checkpointLocation that the query had on Spark's engine"
        )


def list_names(folder: Path) -> list[str]:
    """Return the names of all entries of a folder. Raises LocationError."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        raise LocationError(f"{folder}: there is no such folder") from None
    except OSError as error:
        raise LocationError(f"{folder} cannot be read: {error.strerror}") from error


def _batches(folder: Path) -> set[int]:
    return {int(name) for name in list_names(folder) if _BATCH.fullmatch(name)}


def _text(path: Path, most: int) -> str:
    """Return the content of a plain file. Other files and links are refused: they may lead elsewhere or never end."""
    try:
        status = path.lstat()
        if not S_ISREG(status.st_mode):
            raise _damaged(path, "it is not a plain file")
        if status.st_size > most:
            raise _damaged(path, f"it has {status.st_size} bytes, more than {most}")
        with path.open("rb") as file:
            return file.read(most).decode()
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None
    except OSError as error:
        raise LocationError(f"{path} cannot be read: {error.strerror}") from error


def _offsets(path: Path) -> tuple[dict[str, Any], tuple[Any, ...]]:
    version, *lines = _text(path, MAX_LOG_BYTES).split("\n")
    _check_version(path, version, ("v1",))
    if not lines:
        raise _damaged(path, "it ends too early")
    positions = [None if line == NO_POSITION else _json_of(path, line) for line in lines[1:] if line.strip()]
    return _json_of(path, lines[0]), tuple(positions)


def _commit(path: Path) -> tuple[str, dict[str, Any]]:
    version, *lines = _text(path, MAX_LOG_BYTES).split("\n")
    _check_version(path, version, _KNOWN_COMMITS)
    return version, _json_of(path, lines[0] if lines else "")


def _entries(path: Path) -> list[dict[str, Any]]:
    version, *lines = _text(path, MAX_FILE_LOG_BYTES).split("\n")
    _check_version(path, version, ("v1",))
    return [_json_of(path, line) for line in lines if line.strip()]


def _check_version(path: Path, version: str, known: tuple[str, ...]) -> None:
    if version in known:
        return
    if re.fullmatch(r"v\d+", version):
        raise LocationError(f"{path} is of version {version}; this release reads {' and '.join(known)}")
    raise _damaged(path, "it does not begin with a version")


def _json_of(path: Path, text: str) -> dict[str, Any]:
    if exceeds_value_limit(text.encode()):
        raise _damaged(path, "it holds too many values for its size")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(path, f"{text!r:.60} is not JSON") from None
    if not isinstance(parsed, dict):
        raise _damaged(path, f"{text!r:.60} is not a JSON object")
    return parsed


def _whole_number(path: Path, entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise _damaged(path, f"{name} is {value!r:.60}")
    return value


def _path_of(log: Path, entry: Mapping[str, Any]) -> str:
    """Return the path of an entry, which Spark writes as a percent-encoded URL."""
    text = entry.get("path")
    if not isinstance(text, str) or not text:
        raise _damaged(log, f"path is {text!r:.60}")
    if not text.startswith("file:"):
        raise NotYet(f"{log} names {text:.200}: only local or mounted file systems are read so far")
    return path_of(text)


def _damaged(path: Path, what: str) -> LocationError:
    return LocationError(f"{path}: {what}; the checkpoint is damaged: restore it from a copy")
