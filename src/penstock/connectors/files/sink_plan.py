"""Commit messages of the file sink, and the plan that maps an epoch's staged files to visible files.

The plan depends only on the messages, so that every driver that commits an epoch uses the same names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from penstock.connectors.files.private_directory import HOME
from penstock.decoding import decode_json
from penstock.errors import SinkError
from penstock.grammar import FINAL_NAME, FinalPath, Fingerprint, StagedPath
from penstock.model.commits import EpochCommit
from penstock.model.manifest import Count

PRIVATE_DIRECTORY = "_penstock"
"""Private directory in the paths of messages, as in earlier releases; ``private_directory.HOME`` is the actual one."""
SMALL_BYTES = 4 << 20
"""Staged files smaller than this are merged with others of their epoch and directory."""
MERGED_BYTES = 16 << 20
"""Approximate size of merged files. So an epoch adds at most one file below ``SMALL_BYTES`` to a directory."""

FORKS = "forks"
"""Parent of the private directories of forks that share the output directory with their origin. The origin itself uses
``PRIVATE_DIRECTORY``."""

_FINAL_NAME = re.compile(r"part-(\d+)-.*-e(\d{10})-c\d+(\..*)")
_WRITTEN = re.compile(FINAL_NAME)
_BUNDLE = re.compile(r"(?:e\d{10}-m\d{3,9}|r[0-9a-f]{1,64}(?:-e\d{10}-e\d{10})?)-[0-9a-f]{8}")
_KEPT = re.compile(r"[0-9a-f]{8}")
_MARK = re.compile(r"e\d{10}")
_EPOCH = re.compile(r"^e(\d{10})-[cm]\d+(\..*)$")
_ROLL = re.compile(r"^r[0-9a-f]+(?:-e(\d{10})-e(\d{10}))?(\..*)$")


class StagedFile(msgspec.Struct, frozen=True):
    """Staged file of one epoch. Both paths are relative to the output directory."""

    staged: StagedPath
    final: FinalPath
    rows: Count
    size: Count

    @property
    def directory(self) -> str:
        """Directory of the visible file, relative to the output directory; "" for the output directory itself."""
        parent = PurePosixPath(self.final).parent.as_posix()
        return "" if parent == "." else parent

    @property
    def name(self) -> str:
        return PurePosixPath(self.final).name


class FilesMessage(msgspec.Struct, frozen=True):
    """Commit message of one subtask and epoch.

    Attributes:
        files: the staged files.
        fingerprint: fingerprint of their format. Files without a fingerprint are not merged.
    """

    files: list[StagedFile]
    fingerprint: Fingerprint = ""


def decode_files(message: bytes, private: str, permit: EpochCommit | None = None) -> FilesMessage:
    """Decode the message of a writer that stages files in a private directory.

    Args:
        permit: commit of the message's epoch, if it is known. The final names of the files must then have the same
            query and epoch.

    Raises:
        SinkError: the message has another format, or a field does not follow its grammar. The check is necessary,
            because files are renamed and removed by these names.
    """
    try:
        decoded = decode_json(message, FilesMessage)
    except msgspec.ValidationError as error:
        raise SinkError(
            f"a stored commit message is none that a writer of a file sink wrote: it was forged, and nothing was "
            f"touched: {error!s:.200}"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise SinkError(f"a stored commit message is none of a file sink: {error!s:.200}") from error
    for file in decoded.files:
        of_epoch = permit is None or f"-{permit.query_id}-e{permit.epoch:010d}-c" in file.name
        if file.staged.rpartition("/")[0] != f"{private}/staged" or not of_epoch:
            raise SinkError(
                f"a stored commit message names {file.staged!r:.100} and {file.final!r:.100}, which no writer "
                "of this query does in this epoch: it was forged, and nothing was touched"
            )
    return decoded


def is_bundle(name: str) -> bool:
    """Return True for a valid name of a bundle. Penstock does not create bundles with other names."""
    return _BUNDLE.fullmatch(name) is not None


def is_kept_folder(name: str) -> bool:
    """Return True for a valid name of a directory with kept files of one format."""
    return _KEPT.fullmatch(name) is not None


def is_mark(name: str) -> bool:
    """Return True for a valid name of an epoch's mark, see ``file_roller``."""
    return _MARK.fullmatch(name) is not None


def is_final_name(name: str) -> bool:
    """Return True for a valid final name of a staged file."""
    return _WRITTEN.fullmatch(name) is not None


@dataclass(frozen=True)
class Target:
    """File to publish, and the staged files of one epoch and directory that are merged to it.

    Attributes:
        fingerprint: fingerprint of the files' format.
        files: one or more staged files.
        merged: path of the merged file, relative to the output directory; empty for a single file, which keeps its
            final name.
        bundle: name of the bundle in which the files are merged; empty for a single file.
    """

    fingerprint: str
    files: tuple[StagedFile, ...]
    merged: str = ""
    bundle: str = ""

    @property
    def directory(self) -> str:
        return self.files[0].directory

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def final_name(query_id: str, subtask: int, epoch: int, count: int, suffix: str) -> str:
    """Return the final name of a file. ``count``: its number among the files of its subtask, epoch and directory."""
    return f"part-{subtask:05d}-{query_id}-e{epoch:010d}-c{count:03d}{suffix}"


def private_directory(query_id: str, shared: bool) -> str:
    """Return the name of a query's private directory in messages. ``shared``: the output belongs to another query."""
    return f"{PRIVATE_DIRECTORY}/{FORKS}/{query_id}" if shared else PRIVATE_DIRECTORY


def work_directory(private: str, fence: str, home: str = HOME) -> str:
    """Return the directory of all files of a query that may still become visible, relative to the output directory.

    Args:
        private: see ``private_directory``.
        fence: token of the driver that has the output; empty if the output has no fence.
        home: see ``home_of`` in the module ``private_directory``.
    """
    directory = home + private.removeprefix(PRIVATE_DIRECTORY)
    return f"{directory}/work/{fence}" if fence else directory


def roll_tag(token: str, epochs: Collection[int]) -> str:
    """Return the name of a roll that merges files of these epochs. ``token``: random hex digits."""
    return f"r{token}-e{min(epochs):010d}-e{max(epochs):010d}"


def rolled_name(query_id: str, roll: str, source: str) -> str:
    """Return the name of the file that a roll creates. ``source``: name of any merged file."""
    match = _FINAL_NAME.fullmatch(source)
    assert match is not None, f"{source} is no name that a writer gives"
    return f"part-00000-{query_id}-{roll}{match[3]}"


@dataclass(frozen=True)
class EpochRange:
    """Range of epochs that contains all epochs of a visible file's rows. Both ends are inclusive.

    Earlier releases wrote file names without epochs. Such a file may have rows of any epoch.
    """

    first: int = 0
    last: int = sys.maxsize


def epoch_range_of(name: str, query_id: str) -> EpochRange | None:
    """Return the epoch range from the name of a visible file; None if this query has not written the file."""
    head, separator, rest = name.partition(f"-{query_id}-")
    if not (separator and head.startswith("part-")):
        return None
    if epoch := _EPOCH.match(rest):
        return EpochRange(int(epoch[1]), int(epoch[1]))
    if roll := _ROLL.match(rest):
        return EpochRange() if roll[1] is None else EpochRange(int(roll[1]), int(roll[2]))
    return None


def epoch_of(name: str) -> int:
    """Return the epoch in a name that ``final_name`` returned."""
    match = _FINAL_NAME.fullmatch(name)
    assert match is not None, f"{name} is no name that a writer gives"
    return int(match[2])


def plan_epoch(permit: EpochCommit, private: str) -> list[Target]:
    """Plan the visible files of an epoch, in the order of subtasks.

    Large files stay as they are. Small files of the same format and directory are merged.
    """
    targets: list[Target] = []
    small: dict[tuple[str, str], list[StagedFile]] = {}
    for _, message in sorted(permit.messages.items()):
        staged = decode_files(message, private, permit)
        for file in staged.files:
            group = small.setdefault((staged.fingerprint, file.directory), [])
            if file.size >= SMALL_BYTES or not staged.fingerprint:
                targets.append(Target(staged.fingerprint, (file,)))
                continue
            if sum(other.size for other in group) + file.size > MERGED_BYTES:
                targets.append(_merged_target(permit, staged.fingerprint, group, len(targets)))
                group.clear()
            group.append(file)
    for (fingerprint, _), group in small.items():
        if group:
            targets.append(_merged_target(permit, fingerprint, group, len(targets)))
    return targets


def _merged_target(permit: EpochCommit, fingerprint: str, files: list[StagedFile], number: int) -> Target:
    if len(files) == 1:
        return Target(fingerprint, tuple(files))
    match = _FINAL_NAME.fullmatch(files[0].name)
    assert match is not None, f"{files[0].name} is no name that a writer gives"
    tag = f"e{permit.epoch:010d}-m{number:03d}"
    merged = f"part-{match[1]}-{permit.query_id}-{tag}{match[3]}"
    visible = PurePosixPath(files[0].directory) / merged
    return Target(fingerprint, tuple(files), visible.as_posix(), f"{tag}-{fingerprint}")
