"""What was staged in an epoch, and which files it becomes.

The plan follows from the messages alone, so that every driver that commits an epoch comes to the same names.
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
"""Messages have paths of staged files below this directory, as in earlier releases: see ``private_directory``."""
SMALL_BYTES = 4 << 20
"""Staged files below this are merged with others of their epoch and directory ..."""
MERGED_BYTES = 16 << 20
"""... to files of about this size, so that an epoch adds at most one file below ``SMALL_BYTES`` to a directory."""

FORKS = "forks"
"""Below it a query has a private directory of its own that shares the output directory with the one it was forked from:
what ``PRIVATE_DIRECTORY`` itself is for that one."""

_FINAL_NAME = re.compile(r"part-(\d+)-.*-e(\d{10})-c\d+(\..*)")
_WRITTEN = re.compile(FINAL_NAME)
_BUNDLE = re.compile(r"(?:e\d{10}-m\d{3,9}|r[0-9a-f]{1,64}(?:-e\d{10}-e\d{10})?)-[0-9a-f]{8}")
_KEPT = re.compile(r"[0-9a-f]{8}")
_MARK = re.compile(r"e\d{10}")
_EPOCH = re.compile(r"^e(\d{10})-[cm]\d+(\..*)$")
_ROLL = re.compile(r"^r[0-9a-f]+(?:-e(\d{10})-e(\d{10}))?(\..*)$")


class StagedFile(msgspec.Struct, frozen=True):
    """A file of one epoch. Both names are relative to the output directory."""

    staged: StagedPath
    final: FinalPath
    rows: Count
    size: Count

    @property
    def directory(self) -> str:
        """Where it becomes visible, relative to the output directory; "" is that itself."""
        parent = PurePosixPath(self.final).parent.as_posix()
        return "" if parent == "." else parent

    @property
    def name(self) -> str:
        return PurePosixPath(self.final).name


class FilesMessage(msgspec.Struct, frozen=True):
    """What one subtask staged in one epoch. ``fingerprint``: the format's; files without one are not merged."""

    files: list[StagedFile]
    fingerprint: Fingerprint = ""


def decode_files(message: bytes, private: str, permit: EpochCommit | None = None) -> FilesMessage:
    """Decode the message of a writer that stages files in a private directory.

    Args:
        permit: the epoch of the message, if it is known: the final names of the files must have the same query and
            epoch.

    Raises:
        SinkError: the message has another format, or a field does not follow its grammar. Files are renamed and removed
            by these names.
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
    """Return True if it is a name of a bundle. Penstock did not create files with other names."""
    return _BUNDLE.fullmatch(name) is not None


def is_kept_folder(name: str) -> bool:
    """Return True if it is a name of a directory with kept files of one format."""
    return _KEPT.fullmatch(name) is not None


def is_mark(name: str) -> bool:
    """Return True if it is a name of an epoch's mark, see ``rolls``."""
    return _MARK.fullmatch(name) is not None


def is_final_name(name: str) -> bool:
    """Return True if it is a final name that a writer gives to files."""
    return _WRITTEN.fullmatch(name) is not None


@dataclass(frozen=True)
class Target:
    """Files of one epoch and directory that become one.

    Attributes:
        fingerprint: of their format.
        files: one or more.
        merged: where the file they are merged to becomes visible, relative to the output directory; a single file
            keeps its own name.
        bundle: the name under which they are collected to be merged.
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
    """Of the file number ``count`` of a subtask and epoch in its directory."""
    return f"part-{subtask:05d}-{query_id}-e{epoch:010d}-c{count:03d}{suffix}"


def private_directory(query_id: str, shared: bool) -> str:
    """Return the name of a query's private directory in messages."""
    return f"{PRIVATE_DIRECTORY}/{FORKS}/{query_id}" if shared else PRIVATE_DIRECTORY


def work_directory(private: str, fence: str, home: str = HOME) -> str:
    """Return the directory of all files of a query that may still become visible, relative to the output directory.

    Args:
        private: see ``private_directory``.
        fence: the token of the driver that has the output; empty if the output has no fence.
        home: see ``private_directory.home_of``.
    """
    place = home + private.removeprefix(PRIVATE_DIRECTORY)
    return f"{place}/work/{fence}" if fence else place


def roll_tag(token: str, epochs: Collection[int]) -> str:
    """The name of a roll of files of these epochs. ``token``: random hex digits."""
    return f"r{token}-e{min(epochs):010d}-e{max(epochs):010d}"


def rolled_name(query_id: str, roll: str, source: str) -> str:
    """Of the file to which files of several epochs are merged; the same for whichever ``source`` among them."""
    match = _FINAL_NAME.fullmatch(source)
    assert match is not None, f"{source} is no name that a writer gives"
    return f"part-00000-{query_id}-{roll}{match[3]}"


@dataclass(frozen=True)
class Epochs:
    """Of which epochs a visible file has rows: of some from ``first`` to ``last``, both inclusive. A file that a
    release wrote that did not say so may have any."""

    first: int = 0
    last: int = sys.maxsize


def epochs_of(name: str, query_id: str) -> Epochs | None:
    """What the name of a visible file says; None: this query has not written it."""
    head, separator, rest = name.partition(f"-{query_id}-")
    if not (separator and head.startswith("part-")):
        return None
    if epoch := _EPOCH.match(rest):
        return Epochs(int(epoch[1]), int(epoch[1]))
    if roll := _ROLL.match(rest):
        return Epochs() if roll[1] is None else Epochs(int(roll[1]), int(roll[2]))
    return None


def epoch_of(name: str) -> int:
    """Of a file named by ``final_name``."""
    match = _FINAL_NAME.fullmatch(name)
    assert match is not None, f"{name} is no name that a writer gives"
    return int(match[2])


def plan_epoch(permit: EpochCommit, private: str) -> list[Target]:
    """Large files as they are, small ones of a directory together, in the order of subtasks."""
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
                targets.append(_together(permit, staged.fingerprint, group, len(targets)))
                group.clear()
            group.append(file)
    for (fingerprint, _), group in small.items():
        if group:
            targets.append(_together(permit, fingerprint, group, len(targets)))
    return targets


def _together(permit: EpochCommit, fingerprint: str, files: list[StagedFile], number: int) -> Target:
    if len(files) == 1:
        return Target(fingerprint, tuple(files))
    match = _FINAL_NAME.fullmatch(files[0].name)
    assert match is not None, f"{files[0].name} is no name that a writer gives"
    tag = f"e{permit.epoch:010d}-m{number:03d}"
    merged = f"part-{match[1]}-{permit.query_id}-{tag}{match[3]}"
    visible = PurePosixPath(files[0].directory) / merged
    return Target(fingerprint, tuple(files), visible.as_posix(), f"{tag}-{fingerprint}")
