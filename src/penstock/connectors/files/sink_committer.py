"""Committer of the file sink: publishes staged files under their final names.

The final name of a file contains its epoch. So a commit that a crash interrupted is finished by renaming the files that
do not have their final names yet. Small files of an epoch and directory are merged first, see ``bundles``. With
``rollInterval``, files of several epochs are merged, see ``file_roller``.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.connectors.base import FenceOpener, SinkCommitter
from penstock.connectors.fence import Fence, LocalFence
from penstock.connectors.files.bundles import Bundles, State
from penstock.connectors.files.file_roller import FileRoller
from penstock.connectors.files.format import FileFormat
from penstock.connectors.files.private_directory import HOME, home_of, make_home, move_home
from penstock.connectors.files.sink_plan import (
    PRIVATE_DIRECTORY,
    StagedFile,
    Target,
    decode_files,
    plan_epoch,
    work_directory,
)
from penstock.connectors.files.sink_retraction import newest_epoch, retract_files, spanning_files
from penstock.connectors.local_files import (
    create_exclusively,
    fsync_directory,
    fsync_tree,
    make_folders,
    replace_durably,
)
from penstock.decoding import decode_json
from penstock.errors import CommitFailed, CommitInterrupted, CommitUnknown, SinkError, SinkFenced
from penstock.grammar import REFUSAL, OwnerText
from penstock.logs import get_logger
from penstock.model.commits import EpochCommit, LogPosition
from penstock.model.manifest import Count

log = get_logger(__name__)

SPARK_METADATA = "_spark_metadata"
CLOSE_TIMEOUT_S = 10.0
"""Longest wait of ``close`` for a running commit, in seconds."""
MIN_TIMER_S = 0.1
RETRY_S = 5.0
"""Delay in seconds until a failed roll is repeated, unless a commit comes first."""
FORMAT_VERSION = 3
"""Format of a query's private files. Format 1 has no fence; formats 1 and 2 have another private directory."""
_UNFENCED = ("staged", "bundles", "kept", "kept-epochs")
"""Directories that releases without a fence use, outside of the work directory. In format 2 they are plain files."""
_STAGED_NAME = re.compile(r"^g(\d+)-")


class FileSinkCommitter(SinkCommitter):
    """Committer of one output directory.

    Args:
        directory: the output directory.
        file_format: format of the files that this driver's slots stage.
        roll_interval_s: longest time for which committed small files are kept back, in seconds; 0: not at all.
        target_bytes: kept files are published immediately when their sizes add up to this.
        clock: returns the wall-clock time in seconds.
        private: see ``sink_plan.private_directory``. It differs from the owner's directory if this query shares the
            output directory.
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
        self._home = home_of(directory)
        self._format = file_format
        self._holds_back = roll_interval_s > 0
        self._keep_below_bytes = target_bytes // 2
        self._make_roller: Callable[[Bundles, str], FileRoller] = lambda bundles, work: FileRoller(
            directory, bundles, file_format.fingerprint, roll_interval_s, target_bytes, clock, work
        )
        self._fence = self._new_fence()
        self._is_fenced = False
        self._to_abandon: tuple[int, Collection[str]] | None = None
        self._use_work_directory("")
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._query_id = ""
        self._is_restored = False
        self._is_partly_visible = False
        self._changed_directories: set[Path] = set()

    def open(self, query_id: str) -> None:
        """Claim the directory for this query. Change nothing else: another driver of the query may still be running.

        Raises:
            SinkError: the path is a file, belongs to another query or to Spark's own sink, or is not writable.
        """
        try:
            if self._root.exists() and not self._root.is_dir():
                raise SinkError(f"output path {self._root} is a file; give a directory")
            if (self._root / SPARK_METADATA).exists():
                raise SinkError(
                    f"{self._root} holds {SPARK_METADATA}: Spark's readers would see only what Spark's own sink "
                    "wrote there; write to another directory"
                )
            self._use_home(make_home(self._root))
            self._private.mkdir(parents=True, exist_ok=True)
            if self._is_owner:
                self._claim(query_id)
        except OSError as error:
            raise SinkError(f"cannot write to {self._root}: {error}; give a writable directory") from error
        self._query_id = query_id

    @property
    def _private(self) -> Path:
        return self._root / work_directory(self._private_name, "", self._home)

    @property
    def _is_owner(self) -> bool:
        return self._private_name == PRIVATE_DIRECTORY

    def _new_fence(self) -> Fence:
        return Fence(LocalFence(self._private), f"output directory {self._root}")

    def _use_home(self, home: str) -> None:
        """Use this private directory from now on; see the module ``private_directory``."""
        if home != self._home:
            self._home = home
            self._fence = self._new_fence()
            self._use_work_directory(self._token)

    def _use_work_directory(self, token: str) -> None:
        """Use the work directory of a token from now on."""
        self._token = token
        self._work_name = work_directory(self._private_name, token, self._home)
        self._work = self._root / self._work_name
        self._bundles = Bundles(self._root, self._format, self._work_name)
        self._roller = self._make_roller(self._bundles, self._work_name)
        self._is_restored = False

    def check_fence(self, opener: FenceOpener) -> bool:
        self._is_fenced = True
        with self._readable():
            return self._fence.check(opener)

    def written_from(self) -> str:
        with self._readable():
            return self._fence.written_from()

    def fence(self, opener: FenceOpener) -> str:
        with self._readable():
            if not self._token:
                self._fence.check(opener)  # raises before any file is moved
                move_home(self._root)
                self._use_home(HOME)
            token = self._fence.open(opener)
        if token == self._token:
            return token
        with self._lock, self._readable():
            self._stop_timer()
            self._use_work_directory(token)
            self._move_unfenced()
            (self._work / "staged").mkdir(exist_ok=True)
            owner = _owner(self._root)
            if self._is_owner and (owner is None or owner.format_version < FORMAT_VERSION):
                replace_durably(_owner_path(self._root), _owner_content(self._query_id))  # raise the format version
        return token

    def _move_unfenced(self) -> None:
        """Move files of a release without a fence to the work directory."""
        for name in _UNFENCED:
            left = self._private / name
            if left.is_dir():
                target = self._work / name
                os.rename(left, target.with_name(f"{name}-{secrets.token_hex(8)}") if target.exists() else target)
            else:
                left.unlink(missing_ok=True)
        fsync_directory(self._private)

    def check_held(self) -> None:
        if self._fence.is_lost():
            raise self._fence.lost()

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.check_held()  # another driver may have renamed the work directory in the meantime
            raise SinkError(f"cannot take over {self._root}: {error}; give a writable directory") from error

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        with self._lock, self._unless_lost():
            self._hold(position, next_batch)

    def _hold(self, position: LogPosition, next_batch: int) -> None:
        """Record the position. This must precede any rename of a file of the epoch."""
        if self._token:
            try:
                self._fence.record(position, next_batch)
            except OSError as error:
                raise CommitFailed(f"cannot write to {self._root}: {error}") from error

    def next_batch(self) -> int:
        return self._fence.next_batch

    def newest_epoch(self) -> int:
        with self._readable():
            return newest_epoch(self._root, self._query_id, self._work)

    def _claim(self, query_id: str) -> None:
        owner = _owner_path(self._root)
        if not create_exclusively(owner, _owner_content(query_id)) and (other := owner_of(self._root)) != query_id:
            raise SinkError(
                f"{self._root} is written by another query ({other}); two queries cannot share an "
                f"output directory: write to another one, or delete {owner} if that query is gone for good. A fork of "
                "that query may write here with option allowSharedSink=true"
            )

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        """Check that the files of the epoch exist. Their columns do not matter: the files are already written."""
        token = self._token
        try:
            self._use_work_directory(token or self._fence.held())
            if permit.epoch <= self._roller.kept_epoch():
                return
            for target in plan_epoch(permit, self._private_name):
                if target.bundle and (self._bundles.state(target.bundle) or (self._root / target.merged).exists()):
                    continue
                for file in map(self._in_work_directory, target.files):
                    if (
                        not (self._root / file.final).exists()
                        and not self._current_path(target.fingerprint, file).exists()
                    ):
                        raise self._missing_file(file, permit.epoch)
        except OSError as error:
            raise SinkError(f"cannot look through {self._root}: {error}") from error
        finally:
            self._use_work_directory(token)

    def commit(self, permit: EpochCommit) -> None:
        with self._lock, self._unless_lost():
            self._is_partly_visible = False
            try:
                self._restore_roller()
                if permit.epoch > self._roller.kept_epoch():
                    self._record(permit)
                    self._publish_epoch(permit)
            except (OSError, pa.ArrowException) as error:
                kind = CommitInterrupted if self._is_partly_visible else CommitFailed
                raise kind(f"epoch {permit.epoch}: cannot publish it in {self._root}: {error}") from error
            try:
                self._roller.publish()
            except (OSError, pa.ArrowException) as error:
                # The epoch itself is published, so the commit can be repeated.
                raise CommitFailed(f"what is kept back of {self._root} cannot be published: {error}") from error
            self._set_timer(MIN_TIMER_S)

    def _record(self, permit: EpochCommit) -> None:
        if permit.position is not None:
            self._hold(permit.position, permit.batch + 1)
        if self._to_abandon and self._fence.is_decided:
            self._remove_staged(*self._to_abandon)
            self._to_abandon = None

    @contextmanager
    def _unless_lost(self) -> Iterator[None]:
        """Replace SinkError by SinkFenced if another driver has taken the work directory."""
        try:
            yield
        except SinkFenced:
            raise
        except SinkError as error:
            if self._fence.is_lost():
                raise self._fence.lost() from error
            raise

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:
        """Remove the files that generations up to ``generation`` staged and that no message in ``pending`` names.

        While a copy of the location could still take over the output, the removal is postponed to a later commit.
        """
        files = [file for message in pending for file in decode_files(message, self._private_name).files]
        needed = {file.staged.rpartition("/")[2] for file in files}
        with self._lock, self._unless_lost():
            try:
                self._restore_roller()
                if self._token and not self._fence.is_decided:
                    # Another copy of the location may have staged these files, and may take over the output again.
                    self._to_abandon = generation, needed
                else:
                    self._remove_staged(generation, needed)
            except OSError as error:
                raise SinkError(f"cannot tidy up {self._root}: {error}") from error
            self._set_timer(MIN_TIMER_S)

    def _remove_staged(self, generation: int, needed: Collection[str]) -> None:
        for path in sorted((self._work / "staged").glob("g*")):
            match = _STAGED_NAME.match(path.name)
            if match is not None and int(match[1]) <= generation and path.name not in needed:
                path.unlink(missing_ok=True)

    def retraction_problem(self, above: int, below: int) -> str:
        """Return a problem if a merged file has rows of epochs to retract and of other epochs: it cannot be divided."""
        try:
            spanning = spanning_files(self._root, self._query_id, above, below)
        except OSError as error:
            raise SinkError(f"cannot look through {self._root}: {error}") from error
        if not spanning:
            return ""
        more = f" and {len(spanning) - 1} more" if len(spanning) > 1 else ""
        return f"{spanning[0]}{more} has rows that were written before the snapshot and others that were not"

    def retract(self, above: int, below: int) -> None:
        with self._lock, self._unless_lost():
            try:
                trash = self._work / "trash"
                make_folders(trash, self._work)
                retract_files(self._root, self._query_id, self._bundles, self._roller, above, below, trash)
                shutil.rmtree(trash)
            except OSError as error:
                raise SinkError(f"cannot take back what was written to {self._root}: {error}") from error

    def close(self) -> None:
        """Publish all files that are kept back, unless the output is lost."""
        if not self._lock.acquire(timeout=CLOSE_TIMEOUT_S):
            raise SinkError(
                f"a commit to {self._root} is still running; what is kept back stays so until the next start"
            )
        try:
            self._stop_timer()
            refused = self._is_fenced and not self._token
            if self._query_id and not refused and not self._fence.is_lost():
                self._restore_roller()
                self._roller.publish(everything=True)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot publish what is kept back of {self._root}: {error}") from error
        finally:
            self._query_id = ""
            self._lock.release()

    # -- an epoch --------------------------------------------------------------------------------------------------

    def _publish_epoch(self, permit: EpochCommit) -> None:
        self._changed_directories.clear()
        self._roller.begin_epoch()
        for planned in plan_epoch(permit, self._private_name):
            target = replace(planned, files=tuple(map(self._in_work_directory, planned.files)))
            if target.bundle:
                self._publish_bundle(target, permit.epoch)
            else:
                self._publish_file(target.fingerprint, target.files[0], permit.epoch)
        for directory in sorted(self._changed_directories):
            fsync_tree(directory, self._root)
        self._roller.mark(permit.epoch)

    def _in_work_directory(self, file: StagedFile) -> StagedFile:
        """Return a staged file with its path in the work directory. Messages have another path, see ``sink_plan``."""
        return msgspec.structs.replace(file, staged=f"{self._work_name}/staged/{file.staged.rpartition('/')[2]}")

    def _publish_bundle(self, target: Target, epoch: int) -> None:
        """Merge and publish files, or keep them back. A bundle that another driver began is finished in any case."""
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
                self._publish_file(target.fingerprint, file, epoch, may_keep=False)
        self._is_partly_visible = True

    def _may_merge(self, target: Target) -> bool:
        visible = any((self._root / file.final).exists() for file in target.files)
        return target.fingerprint == self._format.fingerprint and not visible

    def _is_held_back(self, target: Target) -> bool:
        return self._holds_back and bool(target.fingerprint) and target.size < self._keep_below_bytes

    def _collect(self, target: Target, epoch: int) -> None:
        moves = {self._current_path(target.fingerprint, file): file.final for file in target.files}
        self._bundles.collect(target.bundle, moves)
        for file in target.files:
            if not self._bundles.has_file(target.bundle, file.final):
                raise self._missing_file(file, epoch)

    def _publish_file(self, fingerprint: str, file: StagedFile, epoch: int, may_keep: bool = True) -> None:
        """Publish one file under its final name if it is not visible yet, or keep it back."""
        final = self._root / file.final
        if final.exists():
            if final.stat().st_size != file.size:
                raise CommitUnknown(f"epoch {epoch}: {final} has {final.stat().st_size} bytes, not {file.size}")
        elif may_keep and self._is_held_back(Target(fingerprint, (file,))):
            self._keep(fingerprint, file, epoch)
            return
        else:
            source = self._current_path(fingerprint, file)
            if not source.exists():
                raise self._missing_file(file, epoch)
            final.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, final)
        self._is_partly_visible = True
        self._changed_directories.add(final.parent)

    def _keep(self, fingerprint: str, file: StagedFile, epoch: int) -> None:
        if not self._roller.keep(fingerprint, file) and self._roller.kept_epoch() < epoch:
            raise self._missing_file(file, epoch)

    def _current_path(self, fingerprint: str, file: StagedFile) -> Path:
        """Return the path of an unpublished file: among the kept files if an interrupted commit moved it there."""
        kept = self._roller.path(fingerprint, file)
        return kept if kept.exists() else self._root / file.staged

    def _missing_file(self, file: StagedFile, epoch: int) -> CommitUnknown:
        return CommitUnknown(
            f"epoch {epoch}: neither {self._root / file.staged} nor {self._root / file.final} exists: {file.rows} rows "
            "were staged for another output directory, or someone removed them"
        )

    # -- files that are kept back ----------------------------------------------------------------------------------

    def _restore_roller(self) -> None:
        if not self._is_restored:
            self._roller.restore(self._query_id)
            self._is_restored = True

    def _set_timer(self, least_s: float) -> None:
        """Set the timer for the next roll, unless a commit comes first."""
        self._stop_timer()
        due_s = self._roller.due_in_s()
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
            if self._query_id and not self._fence.is_lost():
                try:
                    self._roller.publish()
                except (OSError, pa.ArrowException):
                    log.exception("kept files of %s cannot be published; the roll is repeated", self._root)
                    least_s = RETRY_S
                self._set_timer(least_s)


class _Owner(msgspec.Struct, frozen=True):
    """Content of ``owner.json``.

    Attributes:
        query_id: the owner. In format 2 the text ``REFUSAL`` follows: releases that know only format 1 print it when
            they refuse the directory.
        format_version: format of the private files.
    """

    query_id: OwnerText
    format_version: Count = 1


def owner_of(root: Path) -> str:
    """Return the id of the query that owns an output directory; empty if no query owns it.

    Raises:
        SinkError: ``owner.json`` is not valid, or a later release of Penstock wrote it.
    """
    owner = _owner(root)
    return "" if owner is None else owner.query_id.removesuffix(REFUSAL)


def _owner_path(root: Path) -> Path:
    return root / home_of(root) / "owner.json"


def _owner(root: Path) -> _Owner | None:
    path = _owner_path(root)
    try:
        owner = decode_json(path.read_bytes(), _Owner)
    except FileNotFoundError:
        return None
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise SinkError(f"{path} is not what a file sink wrote: {error!s:.200}") from error
    if owner.format_version > FORMAT_VERSION:
        raise SinkError(f"{path} is of a later release of Penstock: use that release")
    return owner


def _owner_content(query_id: str) -> bytes:
    return msgspec.json.encode(_Owner(query_id, FORMAT_VERSION))
