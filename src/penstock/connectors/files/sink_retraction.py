"""Retraction of a query's output in a directory after a rollback to a snapshot.

The name of a file contains the query and the epochs of its rows. Files that are not visible yet are removed first, so
that no driver can make rows of these epochs visible afterwards. If the driver dies, the next one repeats the
retraction.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.connectors.files.bundles import Bundles
from penstock.connectors.files.file_roller import FileRoller
from penstock.connectors.files.private_directory import EARLIER_HOME, HOME
from penstock.connectors.files.sink_plan import EpochRange, epoch_range_of
from penstock.connectors.local_files import fsync_directory

_ANY_EPOCH = re.compile(r"(?:^|-)e(\d{10})(?=[-.]|$)")
_PRIVATE = (EARLIER_HOME, HOME.partition("/")[0])
_EPOCHS_BUNDLE = "e"
"""First letter of the names of bundles of one epoch; the ten digits of the epoch follow."""


def spanning_files(root: Path, query_id: str, above: int, below: int) -> list[Path]:
    """Return the visible files that may have rows of epochs between ``above`` and ``below`` and of other epochs."""
    return [
        path
        for path, epochs in _visible(root, query_id)
        if epochs.last > above and epochs.first < below and not _within(epochs, above, below)
    ]


def newest_epoch(root: Path, query_id: str, work: Path) -> int:
    """Return the highest epoch in names of a query's visible or pending files; 0 if there is none."""
    found = [epochs.last for _, epochs in _visible(root, query_id) if epochs.last < sys.maxsize]
    for _, directories, names in os.walk(work):
        found += [int(epoch) for name in (*directories, *names) for epoch in _ANY_EPOCH.findall(name)]
    return max(found, default=0)


def retract_files(
    root: Path, query_id: str, bundles: Bundles, roller: FileRoller, above: int, below: int, trash: Path
) -> None:
    """Remove every row of epochs between ``above`` and ``below``, both exclusive.

    Args:
        trash: a directory that this driver loses when another driver takes over the output. After that this driver
            cannot remove visible files.

    Raises:
        OSError: some rows could not be removed.
    """

    def unwanted(name: str) -> bool:
        epochs = epoch_range_of(name, query_id)
        return epochs is not None and _within(epochs, above, below)

    for name in bundles.names():
        if name.startswith(_EPOCHS_BUNDLE) and above < int(name[1:11]) < below:
            bundles.discard(name)
    roller.retract(query_id, unwanted)
    for path, _ in list(_visible(root, query_id)):
        if unwanted(path.name) and path.exists():
            os.rename(path, trash / secrets.token_hex(8))
            fsync_directory(path.parent)


def _within(epochs: EpochRange, above: int, below: int) -> bool:
    return above < epochs.first and epochs.last < below


def _visible(root: Path, query_id: str) -> Iterator[tuple[Path, EpochRange]]:
    for directory, directories, names in os.walk(root):
        if Path(directory) == root:
            directories[:] = [name for name in directories if name not in _PRIVATE]
        for name in sorted(names):
            epochs = epoch_range_of(name, query_id)
            if epochs is not None:
                yield Path(directory) / name, epochs
