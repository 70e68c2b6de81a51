"""The publishing half of a file sink: staged files get their final names.

The final name says which epoch a file belongs to, so that a commit begun before a crash is finished by looking:
whatever has its final name is done, whatever has not is renamed. Small files of an epoch and directory are merged
first, see ``file_bundles``; with ``rollInterval`` those of many epochs are, see ``file_rolls``.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.connectors.base import EpochCommit, SinkCommitter
from penstock.connectors.file_bundles import Bundles, State
from penstock.connectors.file_rolls import Rolls
from penstock.connectors.file_sink_format import FileFormat
from penstock.connectors.file_sink_plan import PRIVATE_DIRECTORY, StagedFile, Target, decode_files, plan_epoch
from penstock.connectors.file_sink_retraction import retract_files, spanning_files
from penstock.connectors.local_files import create_exclusively, fsync_tree
from penstock.errors import CommitFailed, CommitUnknown, SinkError
from penstock.grammar import QueryId
from penstock.logs import get_logger

log = get_logger(__name__)

SPARK_METADATA = "_spark_metadata"
CLOSE_TIMEOUT_S = 10.0
"""``close`` waits so long for a commit that is still running."""
MIN_TIMER_S = 0.1
RETRY_S = 5.0
"""After a roll that failed while no commit came."""
OWNER = f"{PRIVATE_DIRECTORY}/owner.json"
_STAGED_NAME = re.compile(r"^g(\d+)-")


class FileSinkCommitter(SinkCommitter):
    """Publishes files.

    Args:
        directory: the output directory.
        file_format: of the files that this driver's slots stage.
        roll_interval_s: how long committed small files may be kept back; 0: not at all.
        target_bytes: how much is worth a file of its own.
        clock: the wall clock in seconds.
        private: where this query keeps what readers do not see, relative to the directory: another one than the owner's
            if it shares the directory.
    """

    def __init__(
        self,
        directory: Path,
        file_format: FileFormat,
        roll_interval_s: float,
        target_bytes: int,
        clock: Callable[[], float] = time.time,
        private: str = PRIVATE_DIRECTORY,
    ) -> None:
        self._root = directory
        self._private_name = private
        self._private = directory / private
        self._format = file_format
        self._holds_back = roll_interval_s > 0
        self._worth_bytes = target_bytes // 2
        self._bundles = Bundles(directory, file_format, private)
        self._rolls = Rolls(
            directory, self._bundles, file_format.fingerprint, roll_interval_s, target_bytes, clock, private
        )
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._query_id = ""
        self._taken_up = False
        self._visible = False
        self._touched: set[Path] = set()

    def open(self, query_id: str) -> None:
        """Take the directory for this query. Changes nothing else: another driver of it may still be running.

        Raises:
            SinkError: a file, another query's, Spark's own sink's, or not writable.
        """
        if self._root.exists() and not self._root.is_dir():
            raise SinkError(f"output path {self._root} is a file; give a directory")
        if (self._root / SPARK_METADATA).exists():
            raise SinkError(
                f"{self._root} holds {SPARK_METADATA}: Spark's readers would see only what Spark's own sink "
                "wrote there; write to another directory"
            )
        try:
            (self._private / "staged").mkdir(parents=True, exist_ok=True)
            if self._private == self._root / PRIVATE_DIRECTORY:
                self._own(query_id)
        except OSError as error:
            raise SinkError(f"cannot write to {self._root}: {error}; give a writable directory") from error
        self._query_id = query_id

    def _own(self, query_id: str) -> None:
        owner = self._root / OWNER
        content = json.dumps({"query_id": query_id, "format_version": 1}).encode()
        if not create_exclusively(owner, content) and (other := owner_of(self._root)) != query_id:
            raise SinkError(
                f"{self._root} is written by another query ({other}); two queries cannot share an "
                f"output directory: write to another one, or delete {owner} if that query is gone for good. A fork of "
                "that query may write here with option allowSharedSink=true"
            )

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        """Files are laid out by the columns that their rows were produced with; they only have to be here."""
        try:
            if permit.epoch <= self._rolls.kept_epoch():
                return
            for target in plan_epoch(permit, self._private_name):
                if target.bundle and (self._bundles.state(target.bundle) or (self._root / target.merged).exists()):
                    continue
                for file in target.files:
                    if not (self._root / file.final).exists() and not self._source(target.fingerprint, file).exists():
                        raise self._lost(file, permit.epoch)
        except OSError as error:
            raise SinkError(f"cannot look through {self._root}: {error}") from error

    def commit(self, permit: EpochCommit) -> None:
        with self._lock:
            self._visible = False
            try:
                self._take_up()
                if permit.epoch > self._rolls.kept_epoch():
                    self._settle_epoch(permit)
            except (OSError, pa.ArrowException) as error:
                kind = CommitUnknown if self._visible else CommitFailed
                raise kind(f"epoch {permit.epoch}: cannot publish it in {self._root}: {error}") from error
            try:
                self._rolls.publish()
            except (OSError, pa.ArrowException) as error:
                # The epoch itself is settled, so that the commit may well be repeated.
                raise CommitFailed(f"what is kept back of {self._root} cannot be published: {error}") from error
            self._set_timer(MIN_TIMER_S)

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:
        """Remove what Generations up to ``generation`` staged and no message in ``pending`` names."""
        needed = {f.staged for message in pending for f in decode_files(message, self._private_name).files}
        with self._lock:
            try:
                self._take_up()
                for path in sorted((self._private / "staged").glob("g*")):
                    match = _STAGED_NAME.match(path.name)
                    relative = path.relative_to(self._root).as_posix()
                    if match is not None and int(match[1]) <= generation and relative not in needed:
                        path.unlink(missing_ok=True)
            except OSError as error:
                raise SinkError(f"cannot tidy up {self._root}: {error}") from error
            self._set_timer(MIN_TIMER_S)

    def irrevocable(self, above: int, below: int) -> str:
        """A file that was merged of files of epochs on both sides cannot be divided."""
        try:
            spanning = spanning_files(self._root, self._query_id, above, below)
        except OSError as error:
            raise SinkError(f"cannot look through {self._root}: {error}") from error
        if not spanning:
            return ""
        more = f" and {len(spanning) - 1} more" if len(spanning) > 1 else ""
        return f"{spanning[0]}{more} has rows that were written before the snapshot and others that were not"

    def retract(self, above: int, below: int) -> None:
        with self._lock:
            try:
                retract_files(self._root, self._query_id, self._bundles, self._rolls, above, below)
            except OSError as error:
                raise SinkError(f"cannot take back what was written to {self._root}: {error}") from error

    def close(self) -> None:
        """Publish what is kept back."""
        if not self._lock.acquire(timeout=CLOSE_TIMEOUT_S):
            raise SinkError(
                f"a commit to {self._root} is still running; what is kept back stays so until the next start"
            )
        try:
            self._stop_timer()
            if self._query_id:
                self._take_up()
                self._rolls.publish(everything=True)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot publish what is kept back of {self._root}: {error}") from error
        finally:
            self._query_id = ""
            self._lock.release()

    # -- an epoch --------------------------------------------------------------------------------------------------

    def _settle_epoch(self, permit: EpochCommit) -> None:
        self._touched.clear()
        self._rolls.forget_fresh()
        for target in plan_epoch(permit, self._private_name):
            if target.bundle:
                self._settle_bundle(target, permit.epoch)
            else:
                self._settle_file(target.fingerprint, target.files[0], permit.epoch)
        for directory in sorted(self._touched):
            fsync_tree(directory, self._root)
        self._rolls.mark(permit.epoch)

    def _settle_bundle(self, target: Target, epoch: int) -> None:
        """Files to be merged. What a driver with other options began is ended its way."""
        final = self._root / target.merged
        state = self._bundles.state(target.bundle)
        if not final.exists() and state in (None, State.OPEN) and self._may_merge(target):
            if state is None and self._is_held_back(target):
                for file in target.files:
                    self._keep(target.fingerprint, file, epoch)
                return
            self._collect(target, epoch)
        self._bundles.finish(target.bundle, target.merged)
        if not final.exists():
            for file in target.files:
                self._settle_file(target.fingerprint, file, epoch, may_keep=False)
        self._visible = True

    def _may_merge(self, target: Target) -> bool:
        visible = any((self._root / file.final).exists() for file in target.files)
        return target.fingerprint == self._format.fingerprint and not visible

    def _is_held_back(self, target: Target) -> bool:
        return self._holds_back and bool(target.fingerprint) and target.size < self._worth_bytes

    def _collect(self, target: Target, epoch: int) -> None:
        moves = {self._source(target.fingerprint, file): file.final for file in target.files}
        self._bundles.collect(target.bundle, moves)
        for file in target.files:
            if not self._bundles.holds(target.bundle, file.final):
                raise self._lost(file, epoch)

    def _settle_file(self, fingerprint: str, file: StagedFile, epoch: int, may_keep: bool = True) -> None:
        """Give one file its final name, unless it has it already."""
        final = self._root / file.final
        if final.exists():
            if final.stat().st_size != file.size:
                raise CommitUnknown(f"epoch {epoch}: {final} has {final.stat().st_size} bytes, not {file.size}")
        elif may_keep and self._is_held_back(Target(fingerprint, (file,))):
            self._keep(fingerprint, file, epoch)
            return
        else:
            source = self._source(fingerprint, file)
            if not source.exists():
                raise self._lost(file, epoch)
            final.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, final)
        self._visible = True
        self._touched.add(final.parent)

    def _keep(self, fingerprint: str, file: StagedFile, epoch: int) -> None:
        if not self._rolls.keep(fingerprint, file) and self._rolls.kept_epoch() < epoch:
            raise self._lost(file, epoch)

    def _source(self, fingerprint: str, file: StagedFile) -> Path:
        """Where an unpublished file is: staged, or kept by a commit that was not ended."""
        kept = self._rolls.path(fingerprint, file)
        return kept if kept.exists() else self._root / file.staged

    def _lost(self, file: StagedFile, epoch: int) -> CommitUnknown:
        return CommitUnknown(
            f"epoch {epoch}: neither {self._root / file.staged} nor {self._root / file.final} exists: {file.rows} rows "
            "were staged for another output directory, or someone removed them"
        )

    # -- what is kept back -----------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        if not self._taken_up:
            self._rolls.take_up(self._query_id)
            self._taken_up = True

    def _set_timer(self, least_s: float) -> None:
        """For the next roll, should no commit come before."""
        self._stop_timer()
        due_s = self._rolls.due_in_s()
        if due_s is not None and self._query_id:
            self._timer = threading.Timer(max(due_s, least_s), self._roll)
            self._timer.name, self._timer.daemon = "penstock-roll", True
            self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _roll(self) -> None:
        with self._lock:
            least_s = MIN_TIMER_S
            if self._query_id:
                try:
                    self._rolls.publish()
                except (OSError, pa.ArrowException):
                    log.exception("what is kept back of %s cannot be published; it is tried again", self._root)
                    least_s = RETRY_S
                self._set_timer(least_s)


class _Owner(msgspec.Struct, frozen=True):
    query_id: QueryId


def owner_of(root: Path) -> str:
    """The query that an output directory belongs to; empty if it is nobody's.

    Raises:
        SinkError: the file that says so is not one of ours.
    """
    try:
        return msgspec.json.decode((root / OWNER).read_bytes(), type=_Owner).query_id
    except FileNotFoundError:
        return ""
    except (msgspec.DecodeError, RecursionError) as error:
        raise SinkError(f"{root / OWNER} is not what a file sink wrote: {error!s:.200}") from error
